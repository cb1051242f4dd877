"""From images to analysis.json with a tiny random model, and the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dtpt.analysis import analyse, load_analysis, save_analysis, to_json
from dtpt.analysis.paper import kept_images, with_controls
from dtpt.analysis.tables import analysis_tables
from dtpt.data import load_dataset
from dtpt.errors import ReportError, RunError
from dtpt.methods import resolve_method
from dtpt.runs import EvalOptions, run_options, score_methods


def options(dataset, output, **changes):
    basis = {
        "model": "tiny",
        "dataset": (dataset.name,),
        "method": ("tpt", "d-tpt", "d-tpt@1e9", "c-tpt"),
        "views": 4,
        "rho": 0.5,
        "threads": 1,
        "quiet": True,
        "output": output,
    }
    return EvalOptions(**{**basis, **changes})


@pytest.fixture(scope="module")
def analysis(tiny_clip, images):
    return analyse(options(images, Path("unused")), model=tiny_clip, datasets=[images])


def test_one_pass_fills_every_part(analysis):
    (entry,) = analysis.datasets
    assert (entry.classes, entry.images, entry.failures, entry.dimensions) == (3, 12, 0, 32)
    assert [chart.masked for chart in entry.sensitivity] == ["product", "text", "image"]
    assert len(entry.image.profile.mean) == len(entry.sensitivity[0].values) == 32
    labels = ["tpt", "d-tpt@1e5", "d-tpt@1e9", "c-tpt@50"]
    assert [d.label for d in entry.image_dependence] == labels
    assert {g.label for g in entry.geometry} >= {"zero-shot", "d-tpt-static", "c-tpt-static"}
    assert len(analysis.dispersion.points) == len(entry.geometry)
    unmodified = {g.label for g in entry.geometry}
    assert any(score.efficient for score in entry.scores)
    assert all((s.efficient is None) == (s.label not in unmodified) for s in entry.scores)
    titles = [table.title for table in analysis_tables(analysis)]
    assert len(titles) == len(set(titles)) == 8


def test_zero_shot_does_not_move_and_others_do(analysis):
    moved = {g.label: g.every_class for g in analysis.datasets[0].geometry}
    assert moved.pop("zero-shot").squared_length == 0
    for movement in moved.values():
        assert movement.squared_length > 0
        fractions = movement.tangent_fraction, movement.normal_fraction, movement.binormal_fraction
        assert sum(fractions) == pytest.approx(1.0)


def test_static_variant_is_the_limit_of_a_large_lambda(analysis):
    found = {d.label: d for d in analysis.datasets[0].image_dependence}
    limit, tpt = found["d-tpt@1e9"], found["tpt"]
    assert limit.regulariser_agreement > 0.995
    assert limit.same_sign_all > 0.98
    assert (limit.static, limit.same_prediction) == ("d-tpt-static", 1.0)
    assert (tpt.static, tpt.same_prediction) == (None, None)
    assert tpt.same_sign_all < limit.same_sign_all


def test_scores_agree_with_a_run_on_the_same_images(tiny_clip, images, tmp_path, analysis):
    chosen = options(images, tmp_path / "run", method=("zero-shot", "tpt+no-tdd", "d-tpt"))
    with run_options(chosen, model=tiny_clip, datasets=[images]) as run:
        results = score_methods(run)
    assert len(results) == 3
    for result in results:
        score = analysis.datasets[0].score(result.label)
        assert score.accuracy == pytest.approx(result.mean["accuracy"])
        assert score.ece == pytest.approx(result.mean["ece"])


def test_features_analysed_are_the_models_own(tiny_clip, images, analysis):
    (entry,) = analysis.datasets
    vectors = tiny_clip.encode_image(
        torch.stack([tiny_clip.preprocess(sample.image.open()) for sample in images.samples])
    )
    text = tiny_clip.encode_text([f"a photo of a {name}." for name in images.classes])
    index = int(vectors.abs().mean(dim=0).argmax())
    assert entry.image.dominant.index == index
    assert entry.image.dominant.mean == pytest.approx(float(vectors[:, index].mean()), abs=1e-5)
    labels = [sample.label for sample in images.samples]
    matched = float((vectors * text[labels]).sum(dim=1).mean())
    assert entry.gap.matched_cosine == pytest.approx(matched, abs=1e-5)
    distance = float((vectors.mean(dim=0) - text.mean(dim=0)).norm())
    assert entry.gap.distance == pytest.approx(distance, abs=1e-5)


def test_scatter_pairs_the_dispersion_after_tuning_with_the_error(analysis):
    (entry,) = analysis.datasets
    points = {point.label: point for point in analysis.dispersion.points}
    eces = {score.label: score.ece for score in entry.scores}
    for found in entry.geometry:
        assert points[found.label].atfd == found.after.atfd
        assert points[found.label].ece == eces[found.label]
    c_tpt = next(g for g in entry.geometry if g.label == "c-tpt@50")
    assert c_tpt.after.atfd > c_tpt.before.atfd  # what C-TPT is for


def test_file_round_trip_keeps_everything(analysis, tmp_path):
    path = save_analysis(analysis, tmp_path / "new" / "folder")
    assert load_analysis(path) == analysis == load_analysis(path.parent)
    assert json.loads(to_json(analysis))["datasets"][0]["gap"]["distance"] > 0


def test_foreign_files_are_refused(analysis, tmp_path):
    with pytest.raises(ReportError, match="dtpt analyze"):
        load_analysis(tmp_path / "missing.json")
    path = tmp_path / "analysis.json"
    path.write_text('{"format": 1}')
    with pytest.raises(ReportError, match="code_version"):
        load_analysis(path)
    path.write_text(to_json(replace(analysis, format=99)))
    with pytest.raises(ReportError, match="99"):
        load_analysis(path)


def test_templates_are_all_analysed(tiny_clip, images, tmp_path):
    templates = ("a photo of a {}.", "an image of a {}.")
    found = analyse(
        options(images, tmp_path, method=("tpt",)),
        templates=templates,
        model=tiny_clip,
        datasets=[images],
    )
    assert tuple(entry.template for entry in found.datasets) == templates
    first, second = (entry.text.profile.mean for entry in found.datasets)
    assert first != second
    assert len(found.dispersion.points) == 4
    assert found.dispersion.pearson is not None


def test_unreadable_images_are_counted_not_averaged(tiny_clip, own_images, tmp_path):
    (tmp_path / "images" / "cat" / "0.png").write_bytes(b"broken")
    damaged = load_dataset(own_images.name)
    (entry,) = analyse(
        options(damaged, tmp_path, method=("zero-shot",)), model=tiny_clip, datasets=[damaged]
    ).datasets
    assert (entry.images, entry.failures) == (11, 1)
    assert entry.scores[0].images == 11
    assert entry.image_dependence == ()
    with pytest.raises(RunError, match="--max-failures"):
        analyse(options(damaged, tmp_path, max_failures=0), model=tiny_clip, datasets=[damaged])


def test_several_seeds_are_refused(tiny_clip, images, tmp_path):
    with pytest.raises(RunError, match="seed"):
        analyse(options(images, tmp_path, seed=(0, 1)), model=tiny_clip, datasets=[images])


def test_methods_with_other_views_than_the_data_set_are_refused(images, tiny_clip, tmp_path):
    asked = options(images, tmp_path, method=("tpt", "mta:published"))
    with pytest.raises(RunError, match="mta:published"):
        analyse(asked, model=tiny_clip, datasets=[images])


def test_controls_are_added_once():
    methods = [resolve_method(n) for n in ("d-tpt", "d-tpt@10", "d-tpt-static", "tpt+sals")]
    assert [method.label for method in with_controls(methods)] == [
        "zero-shot",
        "d-tpt@1e5",
        "d-tpt-static",
        "d-tpt@10",
        "tpt+sals",
        "zero-shot+no-tdd",
        "zero-shot+no-idd",
    ]


def test_command_prints_tables_and_writes_the_file(
    tiny_clip, images, tmp_path, monkeypatch, capsys
):
    from dtpt.cli.main import call

    monkeypatch.setattr("dtpt.clip.loading.load_model", lambda name, **_: tiny_clip)
    words = ["analyze", "--model", "tiny", "--dataset", images.name, "--limit", "6"]
    words += [
        "--views",
        "4",
        "--view-workers",
        "0",
        "--threads",
        "1",
        "--method",
        "tpt,d-tpt@1234567",
    ]
    words += ["--output", str(tmp_path / "out")]
    call(words)
    printed = capsys.readouterr()
    for title in ("Dominant dimensions", "Modality gap", "Sensitivity", "Movement", "first step"):
        assert title in printed.out
    dependence = printed.out.partition("first step")[2]
    assert "d-tpt@1234567 " in dependence  # the label is not cut
    assert "Wrote" in printed.err
    entry = load_analysis(tmp_path / "out").datasets[0]
    assert entry.images == 6
    assert f"{100 * entry.scores[0].accuracy:.2f}" in printed.out
    call([*words, "--json", "--quiet"])
    document = json.loads(capsys.readouterr().out)
    assert document["datasets"][0]["images"] == 6


def test_order_of_the_images_plays_no_part(tiny_clip, images, tmp_path, analysis):
    turned = replace(images, samples=tuple(reversed(images.samples)))
    again = analyse(options(turned, tmp_path), model=tiny_clip, datasets=[turned]).datasets[0]
    first = analysis.datasets[0]
    assert again.scores == first.scores
    np.testing.assert_allclose(again.image.profile.median, first.image.profile.median)
    np.testing.assert_allclose(again.sensitivity[1].values, first.sensitivity[1].values)


def test_a_set_of_one_class_can_be_analysed(tiny_clip, tmp_path):
    folder = tmp_path / "one" / "cat"
    folder.mkdir(parents=True)
    Image.new("RGB", (40, 40), (200, 30, 60)).save(folder / "a.png")
    data = load_dataset(f"folder:{tmp_path / 'one'}")
    (entry,) = analyse(options(data, tmp_path), model=tiny_clip, datasets=[data]).datasets
    assert entry.geometry[0].other_classes is None
    assert entry.scores[0].accuracy == 1.0
    assert all(chart.values == (0.0,) * 32 for chart in entry.sensitivity)


def test_only_the_kept_images_enter_quantiles_and_sensitivity(
    tiny_clip, images, tmp_path, analysis, monkeypatch
):
    monkeypatch.setattr("dtpt.analysis.paper.kept_images", lambda classes, dimensions: 5)
    chosen = options(images, tmp_path, method=("zero-shot",))
    (entry,) = analyse(chosen, model=tiny_clip, datasets=[images]).datasets
    assert (entry.image.profile.rows, entry.image.profile.quantile_rows) == (12, 5)
    assert {chart.images for chart in entry.sensitivity} == {5}
    np.testing.assert_allclose(entry.image.profile.mean, analysis.datasets[0].image.profile.mean)


def test_long_class_lists_keep_fewer_images_but_never_too_few():
    assert kept_images(10, 512) == 2048
    assert kept_images(1000, 1024) == 256
    assert 256 < kept_images(1000, 512) < 2048


def test_a_folder_that_cannot_be_made_is_noticed_before_the_work(images, tmp_path, monkeypatch):
    from dtpt.cli.main import call

    def fail(name, device):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("dtpt.clip.loading.load_model", fail)
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="--output"):
        call(["analyze", "--dataset", images.name, "--output", str(tmp_path / "file" / "out")])


def test_a_trained_context_of_any_length_can_be_analysed(tiny_clip, images, tmp_path):
    file = tmp_path / "context.pt"
    torch.save({"ctx": torch.zeros(2, tiny_clip.config.text.width)}, file)
    chosen = options(images, tmp_path, method=("tpt",), context=file)
    (entry,) = analyse(chosen, model=tiny_clip, datasets=[images]).datasets
    assert entry.template == "x x {}."
    with pytest.raises(RunError, match="template"):
        analyse(chosen, templates=["a {}."], model=tiny_clip, datasets=[images])


def test_a_lambda_that_only_a_run_selects_is_refused_with_the_remedy(tiny_clip, images, tmp_path):
    chosen = options(images, tmp_path, method=("d-tpt@auto",))
    with pytest.raises(RunError, match="d-tpt@LAMBDA"):
        analyse(chosen, model=tiny_clip, datasets=[images])
