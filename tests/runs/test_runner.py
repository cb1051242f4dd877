"""A run from beginning to end: what is stored, what resumes, what is refused."""

import hashlib
import json
import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from dtpt.runs.pipeline import encode_views
from tiny_runs import TINY_OPTIONS, draw_pictures, exported, tiny_clip

from dtpt.clip.prompts import PromptSet
from dtpt.data import load_dataset
from dtpt.errors import RunError
from dtpt.images import pixel_digest
from dtpt.methods import resolve_method
from dtpt.metrics import calibration_report
from dtpt.prediction.cache import read_shard
from dtpt.runs import EvalOptions, open_run, results_of, run_options, score_cells
from dtpt.tuning import Tuner, TuningSettings
from dtpt.views import ViewRecipe, make_views


def test_every_sample_has_one_row_per_method_and_seed(run_tiny, pictures):
    run = run_tiny(seed=(0, 1))
    assert len(run.cells) == 6
    assert run.is_complete
    truth = {sample.id: sample.label for sample in pictures.samples}
    for cell in run.cells:
        rows = run.rows_of(cell)
        assert dict(zip(rows.ids, rows.labels, strict=True)) == truth
    assert run.classes(pictures.name) == pictures.classes


def test_rows_say_what_the_engine_says_about_the_same_image(run_tiny, tiny_model, pictures):
    run = run_tiny(method=("tpt", "d-tpt@1000"), seed=(3,))
    prompts = PromptSet.build(tiny_model, pictures.classes)
    tuner = Tuner(tiny_model, prompts, settings=TuningSettings(rho=0.5))
    methods = [resolve_method("tpt"), resolve_method("d-tpt@1000")]
    everything = {"tpt": [], "d-tpt": []}
    for sample in sorted(pictures.samples, key=lambda sample: sample.id):
        image = sample.image.open()
        views = make_views(
            image,
            recipe=ViewRecipe(count=4, augmix=pictures.augmix),
            seed=3,
            image_id=pixel_digest(image),
            preprocessing=tiny_model.preprocessing,
        )
        features = torch.tensor(encode_views(tiny_model, views))
        for outcome in tuner.predict(features, methods):
            everything[outcome.method.name].append(outcome.probabilities.double().numpy())
    for name, probabilities in everything.items():
        rows = run.rows(method=name)
        stacked = np.stack(probabilities)
        np.testing.assert_array_equal(rows.predictions, stacked.argmax(1))
        np.testing.assert_allclose(rows.confidence, stacked.max(1), atol=1e-6)
        (result,) = score_cells(run, run.select(method=name))
        direct = calibration_report(stacked, rows.labels)
        for metric, value in result.metrics.items():
            assert value == pytest.approx(getattr(direct, metric), abs=1e-5), metric
        (cell,) = run.select(method=name)
        top = run.top5(cell)
        assert [top[name][0][0] for name in rows.ids] == rows.predictions.tolist()


def test_zero_shot_alone_looks_at_one_view_and_gives_the_same_rows(run_tiny, tmp_path):
    alone = run_tiny(output=tmp_path / "alone", method=("zero-shot",), views=16)
    (shard,) = (tmp_path / "cache" / "features").glob("*/*.safetensors")
    assert {len(views) for views in read_shard(shard).values()} == {1}
    among = run_tiny(output=tmp_path / "among", method=("zero-shot", "tpt"), views=16)
    assert among.sessions()[0]["encoded_images"] == 30  # one view is not enough for tpt
    later = run_tiny(output=tmp_path / "later", method=("zero-shot",), views=16, seed=(0,))
    assert later.sessions()[0]["encoded_images"] == 0
    for run in (among, later):
        expected, found = alone.rows(), run.rows(method="zero-shot")
        np.testing.assert_array_equal(found.confidence, expected.confidence)
        np.testing.assert_array_equal(found.p_label, expected.p_label)


def test_fewer_views_come_from_the_cache_of_more(run_tiny, tmp_path):
    fresh = exported(run_tiny(output=tmp_path / "fresh", views=8, cache=False))
    run_tiny(output=tmp_path / "more", views=32).close()
    fewer = run_tiny(output=tmp_path / "fewer", views=8)
    assert fewer.sessions()[0]["encoded_images"] == 0
    assert exported(fewer) == fresh


def test_all_probabilities_are_kept_unless_five_are_enough(run_tiny, tmp_path):
    run = run_tiny()
    for cell in run.cells:
        ids, logs = run.probabilities(cell)
        rows = run.rows_of(cell)
        assert ids.tolist() == rows.ids.tolist()
        assert (logs.shape, logs.dtype) == ((30, 3), np.float32)
        np.testing.assert_allclose(np.exp(logs).sum(1), 1, atol=2e-3)
        np.testing.assert_allclose(np.exp(logs.max(1)), rows.confidence, atol=1e-3)
        np.testing.assert_array_equal(logs.argmax(1), rows.predictions)
    five = run_tiny(output=tmp_path / "five", keep="top5")
    assert exported(five) == exported(run)  # nothing else depends on it
    with pytest.raises(RunError, match="--keep top5"):
        five.probabilities(five.cells[0])


def test_pictures_that_share_forward_passes_get_nearly_the_same_rows(run_tiny, tmp_path):
    options = {"method": ("zero-shot", "tpt", "d-tpt", "d-tpt-static"), "cache": False}
    single = run_tiny(output=tmp_path / "one", **options)
    shared = run_tiny(output=tmp_path / "four", batch=4, **options)
    assert shared.is_complete
    for cell in single.cells:
        one, four = single.rows_of(cell), shared.rows_of(cell)
        np.testing.assert_array_equal(one.predictions, four.predictions)
        np.testing.assert_allclose(one.confidence, four.confidence, rtol=1e-5, atol=1e-6)
    single.close()
    with pytest.raises(RunError, match="batch: 1 → 4"):
        run_tiny(output=tmp_path / "one", batch=4, **options)


def test_zero_shot_columns_repeat_the_zero_shot_method(run_tiny):
    run = run_tiny(method=("zero-shot", "tpt"))
    alone, tuned = run.rows(method="zero-shot"), run.rows(method="tpt")
    np.testing.assert_array_equal(tuned.zero_shot_predictions, alone.predictions)
    np.testing.assert_allclose(tuned.zero_shot_confidence, alone.confidence, atol=1e-6)


def test_same_command_again_computes_nothing(run_tiny):
    first = run_tiny()
    before = exported(first)
    first.close()
    again = run_tiny()
    assert exported(again) == before
    assert again.sessions()[-1]["encoded_images"] == 0


def test_two_runs_agree_bit_for_bit_and_seeds_differ(run_tiny, tmp_path):
    one = run_tiny(output=tmp_path / "a", cache=False)
    two = run_tiny(output=tmp_path / "b", cache=False)
    assert exported(one) == exported(two)
    other = run_tiny(output=tmp_path / "c", seed=(1,))
    assert not np.array_equal(
        one.rows(method="tpt").confidence, other.rows(method="tpt").confidence
    )


def test_another_lambda_does_not_touch_the_image_tower(run_tiny, tmp_path, pictures):
    first = run_tiny(output=tmp_path / "a")
    second = run_tiny(output=tmp_path / "b", lambda_=(5.0,), template="a picture of a {}.")
    assert first.sessions()[0]["encoded_images"] == len(pictures)
    assert second.sessions()[0]["encoded_images"] == 0
    assert second.is_complete


def test_changed_lambda_is_refused_at_once_with_the_difference(run_tiny):
    run_tiny(method=("d-tpt",), lambda_=(10.0,)).close()
    began = time.perf_counter()
    with pytest.raises(RunError, match=r"methods: d-tpt@10 → d-tpt@20") as refusal:
        run_tiny(method=("d-tpt",), lambda_=(20.0,))
    assert time.perf_counter() - began < 1
    assert "--fresh" in str(refusal.value)
    assert "tuning" not in str(refusal.value)  # what is equal is not listed


def test_changed_weights_are_refused(run_tiny, pictures, tmp_path):
    run_tiny().close()
    options = EvalOptions(output=tmp_path / "run", dataset=(pictures.name,), **TINY_OPTIONS)
    with pytest.raises(RunError, match=r"model.fingerprint: \w{12}… → \w{12}…"):
        run_options(options, model=tiny_clip(seed=1), datasets=[pictures])


def test_fresh_moves_the_old_run_aside_and_loses_nothing(run_tiny, tmp_path):
    old = run_tiny(lambda_=(10.0,))
    before = exported(old)
    old.close()
    new = run_tiny(lambda_=(20.0,), fresh=True)
    assert {cell.lambda_ for cell in new.cells} == {None, 20.0}
    (kept,) = (tmp_path / "run").glob("run-old-*.sqlite")
    assert exported(open_run(kept)) == before


def test_larger_limit_continues_a_limited_run(run_tiny, tmp_path):
    run_tiny(limit=12).close()
    grown = run_tiny(limit=20)
    assert grown.sessions()[-1]["encoded_images"] == 8
    whole = run_tiny(output=tmp_path / "whole", limit=20)
    assert exported(grown) == exported(whole)
    grown.close()
    with pytest.raises(RunError, match=r"limit: 20 → 12"):
        run_tiny(limit=12)


def test_interrupted_run_has_no_half_images_and_ends_equal(run_tiny, tmp_path, monkeypatch):
    whole = exported(run_tiny(output=tmp_path / "whole", cache=False))
    from dtpt.runs.store import Store

    written = Store.write
    count = iter(range(1000))

    def stop_after_eleven(self, *args, **named):
        if next(count) == 11:
            raise KeyboardInterrupt
        written(self, *args, **named)

    monkeypatch.setattr(Store, "write", stop_after_eleven)
    with pytest.raises(KeyboardInterrupt):
        run_tiny()
    monkeypatch.undo()
    monkeypatch.setenv("DTPT_CACHE", str(tmp_path / "cache2"))
    with open_run(tmp_path / "run") as part:
        assert {pair for pair in part.counts().values()} == {(11, 0)}
        assert not part.is_complete
    assert exported(run_tiny()) == whole


def test_cache_damaged_between_runs_changes_nothing(run_tiny, tmp_path, own_cache):
    whole = exported(run_tiny(output=tmp_path / "a"))
    (shard,) = own_cache.glob("*/*.safetensors")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    again = run_tiny(output=tmp_path / "b")
    assert exported(again) == whole
    assert again.sessions()[0]["encoded_images"] == 30
    (healed,) = own_cache.glob("*/*.safetensors")
    third = run_tiny(output=tmp_path / "c")
    assert exported(third) == whole
    assert third.sessions()[0]["encoded_images"] == 0
    assert hashlib.sha256(healed.read_bytes()).hexdigest() == healed.stem


def test_picture_that_changed_under_a_run_is_noticed_when_it_is_resumed(run_tiny, pictures, noise):
    run_tiny(limit=12).close()
    with run_tiny(limit=12) as run:
        sample = next(s for s in pictures.samples if s.id in run.samples(pictures.name))
    original = sample.image.path.read_bytes()
    noise(sample.image.path)
    with pytest.raises(RunError, match=f"the picture '{sample.id}' changed .*--fresh"):
        run_tiny(limit=20)
    sample.image.path.write_bytes(original)  # another time, the same picture
    run_tiny(limit=20).close()
    assert run_tiny(limit=20).samples(pictures.name)[sample.id].stamp == sample.image.stamp()


def test_part_of_a_set_is_recorded_with_the_size_of_the_whole(run_tiny, pictures):
    run = run_tiny(dataset_object=replace(pictures, whole=99))
    (entry,) = run.spec.datasets
    assert (entry.samples, entry.whole, entry.is_partial) == (30, 99, True)
    assert entry.size_text == "30 of 99 pictures"


def test_other_thread_count_is_told_and_kept(run_tiny, capsys):
    run_tiny(limit=5).close()
    run_tiny(limit=5, threads=2).close()  # nothing was computed
    assert run_tiny(limit=5).remarks() == ()
    capsys.readouterr()
    run = run_tiny(limit=10, threads=2)
    (remark,) = run.remarks()
    assert "1 and 2 torch threads" in remark
    assert remark in capsys.readouterr().err
    assert results_of(run).remarks == {"": (remark,)}


def test_remarks_of_a_data_set_are_told_and_kept(run_tiny, pictures, capsys):
    odd = replace(pictures, remarks=("2 folders are left out.",))
    run = run_tiny(dataset_object=odd)
    assert run.remarks(pictures.name) == ("2 folders are left out.",)
    assert f"{pictures.name}: 2 folders are left out." in capsys.readouterr().err


def test_results_json_has_counts_units_and_fingerprints(run_tiny, pictures):
    document = json.loads(results_of(run_tiny(seed=(0, 1))).to_json())
    name = pictures.name
    assert document["n-samples"][name] == {
        "original": 30,
        "effective": 30,
        "failed": 0,
        "whole": 30,
    }
    entry = document["results"][name]["d-tpt@100000"]
    seeds = [entry["seeds"][seed]["accuracy"] for seed in ("0", "1")]
    assert entry["mean"]["accuracy"] == pytest.approx(sum(seeds) / 2)
    assert all(0 <= value <= 1 for value in seeds)
    assert document["fingerprints"]["datasets"][name] == pictures.fingerprint
    assert document["higher_is_better"]["accuracy"] is True
    assert document["units"]["ece"] == "fraction"
    assert document["environment"][0]["threads"] == 1


def test_trained_context_replaces_the_words_and_is_part_of_the_configuration(run_tiny, tmp_path):
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    for name in ("one", "two"):
        save_file(
            {"ctx": torch.randn(2, 16, generator=generator)}, tmp_path / f"{name}.safetensors"
        )
    plain = run_tiny(output=tmp_path / "plain")
    one = run_tiny(output=tmp_path / "one", context=tmp_path / "one.safetensors")
    assert one.spec.context
    assert one.spec.template.count("x") == 2
    assert not np.array_equal(one.rows().confidence, plain.rows().confidence)
    one.close()
    with pytest.raises(RunError, match="context:"):
        run_tiny(output=tmp_path / "one", context=tmp_path / "two.safetensors")


def test_family_mean_needs_every_data_set(tiny_model, tmp_path):
    sets = []
    for name in ("one", "two"):
        draw_pictures(tmp_path / name, per_class=2)
        sets.append(load_dataset(f"folder:{tmp_path / name}"))
    options = EvalOptions(dataset=("both",), output=tmp_path / "run", **TINY_OPTIONS)
    run = run_options(options, model=tiny_model, datasets=sets)
    document = results_of(run).document()
    means = [document["results"][d.name]["tpt"]["mean"]["ece"] for d in sets]
    group = document["groups"]["own"]
    assert group["datasets"] == [d.name for d in sets]
    assert group["mean"]["tpt"]["ece"] == pytest.approx(sum(means) / 2)
    run.close()
    with closing(sqlite3.connect(run.path)) as connection:
        connection.execute(
            "DELETE FROM rows WHERE cell IN (SELECT cell FROM cells WHERE"
            " method = 'tpt' AND dataset = ?)",
            (sets[0].name,),
        )
        connection.commit()
    document = results_of(open_run(tmp_path / "run")).document()
    assert "tpt" not in document["groups"]["own"]["mean"]
    assert "zero-shot" in document["groups"]["own"]["mean"]
    assert document["complete"] is False
