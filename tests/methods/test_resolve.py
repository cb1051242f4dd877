"""Names of methods, their lambdas, modifiers and plug-ins."""

import sys
import types

import pytest
import torch

import dtpt
from dtpt.errors import MethodError, UnknownName
from dtpt.methods import METHODS, PAPER_METHODS, known_methods, regularised, resolve_method
from dtpt.methods.dominant import dominant_dimension, replace_by_mean
from dtpt.methods.posthoc import fit_temperature, scale_to_zero_shot_range


@pytest.mark.parametrize(
    ("spec", "family", "lambda_"),
    [
        ("zero-shot", "fine-grained", None),
        ("tpt", "natural-shifts", None),
        ("c-tpt", "fine-grained", 50.0),
        ("c-tpt", "natural-shifts", 20.0),
        ("o-tpt", "fine-grained", 18.0),
        ("o-tpt", "natural-shifts", 2.0),
        ("a-tpt", "fine-grained", 80.0),
        ("d-tpt", "natural-shifts", 1e5),
        ("d-tpt@1e4", "fine-grained", 1e4),
        ("d-tpt-static", "fine-grained", None),
        ("c-tpt+sals@3", "fine-grained", 3.0),
    ],
)
def test_specs_resolve_to_their_lambda(spec, family, lambda_):
    assert resolve_method(spec, family=family).lambda_ == lambda_


def test_lambda_written_in_the_name_wins_over_the_argument():
    assert resolve_method("d-tpt@7", lambda_=9).lambda_ == 7
    assert resolve_method("d-tpt", lambda_=9).lambda_ == 9


def test_names_keep_modifiers_but_not_lambda():
    assert resolve_method("tpt+no-tdd+ts=1.16").name == "tpt+no-tdd+ts=1.16"
    assert resolve_method("d-tpt@5").name == "d-tpt"


@pytest.mark.parametrize(
    "spec", ["tpt@3", "zero-shot@1", "d-tpt@-1", "d-tpt@nan", "d-tpt@x", "tpt+ts=0"]
)
def test_senseless_lambdas_are_refused(spec):
    with pytest.raises(MethodError):
        resolve_method(spec)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownName, match="d-tpt"):
        resolve_method("d-ttp")
    with pytest.raises(UnknownName, match="sals"):
        resolve_method("tpt+salz")


def test_every_regularised_method_has_a_static_variant():
    known = known_methods()
    for name, method in METHODS.items():
        assert (f"{name}-static" in known) == (method.regulariser is not None)
    assert set(PAPER_METHODS) <= set(known)


def test_a_regulariser_added_in_one_line_works_in_the_classifier(tiny_clip, monkeypatch):
    def flatten(text):
        return (text**4).sum(-1).mean()

    monkeypatch.setitem(METHODS, "flat-tpt", regularised("flat-tpt", flatten, lambda_=1e6))
    classifier = dtpt.Classifier(tiny_clip, ["cat", "dog", "bird"], method="flat-tpt")
    views = torch.nn.functional.normalize(torch.randn(64, 32), dim=-1)
    (outcome,) = classifier.tuner.predict(views, [classifier.method])
    assert flatten(outcome.text_features) < flatten(classifier.tuner.initial_text_features)
    assert resolve_method("flat-tpt-static").method.static


def test_an_entry_point_adds_a_method(tmp_path, monkeypatch):
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dtpt.methods]\nsmooth-tpt = smooth_plugin:METHOD\n")
    module = types.ModuleType("smooth_plugin")
    module.METHOD = regularised("anything", lambda text: text.square().mean(), lambda_=4.0)
    monkeypatch.setitem(sys.modules, "smooth_plugin", module)
    monkeypatch.syspath_prepend(str(tmp_path))
    resolved = resolve_method("smooth-tpt")
    assert (resolved.name, resolved.lambda_) == ("smooth-tpt", 4.0)
    assert "smooth-tpt-static" in known_methods()


def test_an_entry_point_that_is_no_method_is_refused(tmp_path, monkeypatch):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dtpt.methods]\nbroken-tpt = math:pi\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MethodError, match="math:pi"):
        resolve_method("broken-tpt")


def test_dominant_dimension_is_the_largest_mean_magnitude_whatever_its_sign():
    features = torch.tensor([[0.1, -0.9, 0.2], [0.3, -0.8, 0.1]])
    assert dominant_dimension(features) == 1
    replaced = replace_by_mean(features, 1)
    torch.testing.assert_close(replaced[:, 1], torch.tensor([-0.85, -0.85]))
    torch.testing.assert_close(replaced[:, [0, 2]], features[:, [0, 2]])


def test_sals_gives_the_zero_shot_range_and_keeps_the_order():
    tuned, zero_shot = torch.tensor([1.0, 30.0, 12.0]), torch.tensor([10.0, 20.0, 25.0])
    scaled = scale_to_zero_shot_range(tuned, zero_shot)
    assert (float(scaled.min()), float(scaled.max())) == (10.0, 25.0)
    assert scaled.argsort().tolist() == tuned.argsort().tolist()
    constant = scale_to_zero_shot_range(torch.ones(3), zero_shot)
    assert bool(torch.isfinite(constant).all())


def test_fitted_temperature_undoes_a_known_overconfidence():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20000, 5, generator=generator) * 2
    labels = torch.multinomial(torch.softmax(logits, -1), 1, generator=generator).squeeze(1)
    assert fit_temperature(logits * 3, labels) == pytest.approx(3.0, rel=0.03)


def test_temperature_needs_matching_labels():
    with pytest.raises(MethodError):
        fit_temperature(torch.randn(4, 3), torch.zeros(5, dtype=torch.long))
