"""A run from beginning to end: what is stored, what resumes, what is refused."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_runs import TINY_OPTIONS, exported, tiny_clip

from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError, OptionError, RunError
from dtpt.images import pixel_digest
from dtpt.methods import resolve_method
from dtpt.metrics import calibration_report
from dtpt.prediction.cache import read_shard
from dtpt.runs import EvalOptions, open_run, results_of, run_options, score_methods
from dtpt.runs.store import Store
from dtpt.tuning import Tuner, TuningSettings
from dtpt.views import ViewRecipe, make_views


def test_every_sample_has_one_row_per_method_and_seed(run_tiny, images):
    run = run_tiny(seed=(0, 1))
    assert len(run.cells) == 6
    assert run.is_complete
    truth = {sample.id: sample.label for sample in images.samples}
    for cell in run.cells:
        rows = run.rows_of(cell)
        assert dict(zip(rows.sample, rows.label, strict=True)) == truth
    assert run.classes(images.name) == images.classes


def test_rows_are_what_the_engine_computes(run_tiny, tiny_model, images):
    run = run_tiny(method=("tpt", "d-tpt@1e3"), seed=(3,))
    prompts = PromptSet.build(tiny_model, images.classes)
    tuner = Tuner(tiny_model, prompts, settings=TuningSettings(rho=0.5))
    methods = [resolve_method("tpt"), resolve_method("d-tpt@1e3")]
    probabilities = {"tpt": [], "d-tpt": []}
    for sample in sorted(images.samples, key=lambda sample: sample.id):
        image = sample.image.open()
        views = make_views(
            image,
            recipe=ViewRecipe(count=4, augmix=images.augmix),
            seed=3,
            image_id=pixel_digest(image),
            preprocessing=tiny_model.preprocessing,
        )
        features = tiny_model.encode_views(torch.from_numpy(views))
        for outcome in tuner.predict(features, methods):
            probabilities[outcome.method.name].append(outcome.probabilities.double().numpy())
    results = {result.label.partition("@")[0]: result for result in score_methods(run)}
    for name, expected in probabilities.items():
        (cell,) = run.select(method=name)
        rows, stacked = run.rows_of(cell), np.stack(expected)
        np.testing.assert_array_equal(rows.prediction, stacked.argmax(1))
        np.testing.assert_allclose(rows.confidence, stacked.max(1), atol=1e-6)
        direct = calibration_report(stacked, rows.label)
        for metric, value in results[name].mean.items():
            assert value == pytest.approx(getattr(direct, metric), abs=1e-5), metric


def test_zero_shot_alone_uses_one_view_and_gives_the_same_rows(run_tiny, tmp_path):
    alone = run_tiny(output=tmp_path / "alone", method=("zero-shot",), views=16)
    (shard,) = (tmp_path / "cache" / "features").glob("*/*.safetensors")
    assert {len(views) for views in read_shard(shard).values()} == {1}
    among = run_tiny(output=tmp_path / "among", method=("zero-shot", "tpt"), views=16)
    assert among.sessions()[0]["encoded_images"] == 30  # one view is not enough for tpt
    later = run_tiny(output=tmp_path / "later", method=("zero-shot",), views=16, seed=(0,))
    assert later.sessions()[0]["encoded_images"] == 0
    for run in (among, later):
        expected, rows = alone.rows(), run.rows(method="zero-shot")
        np.testing.assert_array_equal(rows.confidence, expected.confidence)
        np.testing.assert_array_equal(rows.p_label, expected.p_label)


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
        assert ids.tolist() == rows.sample.tolist()
        assert (logs.shape, logs.dtype) == ((30, 3), np.float32)
        np.testing.assert_allclose(np.exp(logs).sum(1), 1, atol=2e-3)
        np.testing.assert_allclose(np.exp(logs.max(1)), rows.confidence, atol=1e-3)
        np.testing.assert_array_equal(logs.argmax(1), rows.prediction)
    five = run_tiny(output=tmp_path / "five", keep="top5")
    assert exported(five) == exported(run)  # nothing else depends on it
    with pytest.raises(RunError, match="--keep top5"):
        five.probabilities(five.cells[0])


def test_images_that_share_forward_passes_get_nearly_the_same_rows(run_tiny, tmp_path):
    options = {"method": ("zero-shot", "tpt", "d-tpt", "d-tpt-static"), "cache": False}
    single = run_tiny(output=tmp_path / "one", **options)
    shared = run_tiny(output=tmp_path / "four", batch=4, **options)
    assert shared.is_complete
    for cell in single.cells:
        one, four = single.rows_of(cell), shared.rows_of(cell)
        np.testing.assert_array_equal(one.prediction, four.prediction)
        np.testing.assert_allclose(one.confidence, four.confidence, rtol=1e-5, atol=1e-6)
    single.close()
    with pytest.raises(RunError, match="batch: 1 → 4"):
        run_tiny(output=tmp_path / "one", batch=4, **options)


def test_zero_shot_columns_repeat_the_zero_shot_method(run_tiny):
    run = run_tiny(method=("zero-shot", "tpt"))
    alone, tuned = run.rows(method="zero-shot"), run.rows(method="tpt")
    np.testing.assert_array_equal(tuned.zero_shot_prediction, alone.prediction)
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
    confidences = (run.rows(method="tpt").confidence for run in (one, other))
    assert not np.array_equal(*confidences)


def test_another_lambda_or_template_does_not_run_the_image_tower(run_tiny, tmp_path, images):
    first = run_tiny(output=tmp_path / "a")
    second = run_tiny(output=tmp_path / "b", lambda_=(5.0,), template="an image of a {}.")
    assert first.sessions()[0]["encoded_images"] == len(images)
    assert second.sessions()[0]["encoded_images"] == 0
    assert second.is_complete


def test_changed_lambda_is_refused_with_the_difference(run_tiny):
    run_tiny(method=("d-tpt",), lambda_=(10.0,)).close()
    with pytest.raises(RunError, match="d-tpt@10 → d-tpt@20") as refusal:
        run_tiny(method=("d-tpt",), lambda_=(20.0,))
    assert "--fresh" in str(refusal.value)
    assert "tuning" not in str(refusal.value)  # what is equal is not listed


def test_changed_weights_are_refused(run_tiny, images, tmp_path):
    run_tiny().close()
    options = EvalOptions(output=tmp_path / "run", dataset=(images.name,), **TINY_OPTIONS)
    with pytest.raises(RunError, match=r"fingerprint: \w{12}… → \w{12}…"):
        run_options(options, model=tiny_clip(seed=1), datasets=[images])


def test_fresh_archives_the_old_run(run_tiny, tmp_path):
    old = run_tiny(lambda_=(10.0,))
    before = exported(old)
    old.close()
    new = run_tiny(lambda_=(20.0,), fresh=True)
    assert {cell.lambda_ for cell in new.cells} == {None, 20.0}
    (archived,) = (tmp_path / "run").glob("run-old-*.sqlite")
    assert exported(open_run(archived)) == before


def test_larger_limit_continues_a_limited_run(run_tiny, tmp_path):
    run_tiny(limit=12).close()
    grown = run_tiny(limit=20)
    assert grown.sessions()[-1]["encoded_images"] == 8
    whole = run_tiny(output=tmp_path / "whole", limit=20)
    assert exported(grown) == exported(whole)
    grown.close()
    with pytest.raises(RunError, match="limit: 20 → 12"):
        run_tiny(limit=12)


def test_interrupted_run_has_no_half_images_and_ends_equal(run_tiny, tmp_path, monkeypatch):
    whole = exported(run_tiny(output=tmp_path / "whole", cache=False))
    write, count = Store.write, iter(range(1000))

    def stop_after_eleven(self, *args, **named):
        if next(count) == 11:
            raise KeyboardInterrupt
        write(self, *args, **named)

    monkeypatch.setattr(Store, "write", stop_after_eleven)
    with pytest.raises(KeyboardInterrupt):
        run_tiny()
    monkeypatch.undo()
    monkeypatch.setenv("DTPT_CACHE", str(tmp_path / "cache2"))
    with open_run(tmp_path / "run") as part:
        assert set(part.counts().values()) == {(11, 0)}
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


def test_image_that_changed_is_refused_and_one_that_was_touched_is_not(run_tiny, images, noise):
    with run_tiny(limit=12) as run:
        sample = next(s for s in images.samples if s.id in run.samples(images.name))
    original = sample.image.path.read_bytes()
    noise(sample.image.path)
    with pytest.raises(RunError, match=f"'{sample.id}'.*--fresh"):
        run_tiny(limit=20)
    sample.image.path.write_bytes(original)  # another time, the same content
    with run_tiny(limit=20) as run:
        assert run.samples(images.name)[sample.id].stamp == sample.image.stamp()


def test_part_of_a_set_is_recorded_with_the_size_of_the_whole(run_tiny, images):
    run = run_tiny(dataset_object=replace(images, whole=99))
    (entry,) = run.spec.datasets
    assert (entry.samples, entry.whole, entry.is_partial) == (30, 99, True)


def test_other_thread_count_is_noted_if_rows_were_computed(run_tiny, capsys):
    run_tiny(limit=5).close()
    run_tiny(limit=5, threads=2).close()  # nothing was computed
    assert run_tiny(limit=5).notes() == {}
    capsys.readouterr()
    run = run_tiny(limit=10, threads=2)
    (note,) = run.notes()[""]
    assert "1 and 2" in note
    assert note in capsys.readouterr().err
    assert results_of(run).notes == {"": (note,)}


def test_notes_of_a_data_set_are_shown_and_stored(run_tiny, images, capsys):
    odd = replace(images, notes=("2 folders are left out.",))
    run = run_tiny(dataset_object=odd)
    assert run.notes() == {images.name: ("2 folders are left out.",)}
    assert "2 folders are left out." in capsys.readouterr().err


def test_trained_context_replaces_the_words_and_is_part_of_the_configuration(run_tiny, tmp_path):
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(0)
    for name in ("one", "two"):
        context = torch.randn(2, 16, generator=generator)
        save_file({"ctx": context}, tmp_path / f"{name}.safetensors")
    plain = run_tiny(output=tmp_path / "plain")
    one = run_tiny(output=tmp_path / "one", context=tmp_path / "one.safetensors")
    assert one.spec.context
    assert one.spec.template.count("x") == 2
    assert not np.array_equal(one.rows().confidence, plain.rows().confidence)
    one.close()
    with pytest.raises(RunError, match="context:"):
        run_tiny(output=tmp_path / "one", context=tmp_path / "two.safetensors")


def test_samples_keep_group_and_cluster(run_tiny, images):
    samples = [
        replace(sample, group="photo", cluster=sample.id.split("/")[0]) for sample in images.samples
    ]
    run = run_tiny(dataset_object=replace(images, samples=samples))
    stored = run.samples(images.name)
    assert {record.cluster for record in stored.values()} == {"bird", "cat", "dog"}
    assert {record.group for record in stored.values()} == {"photo"}
    alone = run_tiny(output=run.path.parent / "alone")
    records = alone.samples(images.name)
    assert all(record.cluster == record.id for record in records.values())


def test_several_prompts_are_part_of_the_run_and_are_not_tuned(run_tiny, tmp_path, images):
    one = run_tiny(method=("zero-shot",))
    words = tmp_path / "words.json"
    texts = {name: [f"a {name}", f"a wild {name}"] for name in images.classes}
    words.write_text(json.dumps(texts))
    two = tmp_path / "two.txt"
    two.write_text("a photo of a {}.\na drawing of a {}.\n")
    runs = {
        "two": {"templates": str(two)},
        "words": {"descriptions": words},
    }
    for name, given in runs.items():
        made = run_tiny(method=("zero-shot", "vte"), output=tmp_path / name, **given)
        found = {cell.template for cell in made.spec.cells()}
        assert len(found) == 1
        assert found != {cell.template for cell in one.spec.cells()}
        again = run_tiny(method=("zero-shot", "vte"), output=tmp_path / name, **given)
        assert again.spec.template == made.spec.template
        with pytest.raises(MethodError, match="several"):
            run_tiny(method=("tpt",), output=tmp_path / "refused", **given)
    with pytest.raises(OptionError):
        run_tiny(templates=str(two), descriptions=words, output=tmp_path / "both")
