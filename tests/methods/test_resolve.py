"""Names of methods, their lambdas, modifiers and plug-ins."""

import subprocess
import sys
import types

import pytest
import torch

import dtpt
from dtpt.errors import MethodError, UnknownName
from dtpt.methods import METHODS, PAPER_METHODS, known_methods, regularised, resolve_method
from dtpt.methods.dominant import dominant_dimension, replace_by_mean
from dtpt.methods.posthoc import scale_to_zero_shot_range


@pytest.mark.parametrize(
    ("spec", "protocol", "lambda_"),
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
def test_specs_resolve_to_their_lambda(spec, protocol, lambda_):
    assert resolve_method(spec, protocol=protocol).lambda_ == lambda_


def test_lambda_written_in_the_name_wins_over_the_argument():
    assert resolve_method("d-tpt@7", lambda_=9).lambda_ == 7
    assert resolve_method("d-tpt", lambda_=9).lambda_ == 9


def test_names_keep_modifiers_but_not_lambda():
    assert resolve_method("tpt+no-tdd+ts=1.16").name == "tpt+no-tdd+ts=1.16"
    assert resolve_method("d-tpt@5").name == "d-tpt"


@pytest.mark.parametrize(
    "spec",
    [
        "tpt@3",
        "zero-shot@1",
        "d-tpt@-1",
        "d-tpt@nan",
        "d-tpt@x",
        "tpt+ts=0",
        "tpt+views=0",
        "tpt+views=1.1",
        "tpt+lr=-1",
        "tpt@auto",
        "d-tpt-static@auto",
        "d-tpt@auto=1",
        "d-tpt@auto=0",
        "d-tpt@automatic",
        "vte+views=0.3",
        "tpt+views=0.3+views=0.4",
    ],
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
        assert (f"{name}-static" in known) == method.is_regularised
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


@pytest.mark.parametrize(
    ("spec", "name", "share", "each"),
    [
        ("d-tpt@auto", "d-tpt@auto=0.9", 0.9, False),
        ("c-tpt+sals@auto=0.75", "c-tpt+sals@auto=0.75", 0.75, False),
        ("o-tpt@auto-each", "o-tpt@auto-each=0.9", 0.9, True),
        ("d-tps:aligned@auto-each=0.5", "d-tps:aligned@auto-each=0.5", 0.5, True),
    ],
)
def test_a_strength_is_part_of_the_name_and_resolves_to_itself(spec, name, share, each):
    found = resolve_method(spec)
    assert (found.name, found.lambda_) == (name, None)
    assert (found.strength.share, found.strength.each) == (share, each)
    assert resolve_method(found.name) == found


def test_learning_rates_come_from_the_modifier_then_the_method_then_the_settings():
    assert resolve_method("tpt").learning_rate is None
    assert resolve_method("tps").learning_rate == 1e-3
    assert resolve_method("tps", protocol="natural-shifts").learning_rate == 5e-3
    assert resolve_method("tps+lr=0.02").learning_rate == 0.02


def test_only_methods_that_look_at_views_use_them():
    used = {name for name in known_methods() if resolve_method(name).uses_views}
    assert "zero-shot" not in used
    assert not any(name.endswith("-static") for name in used)
    assert {"tpt", "mean-views", "vte", "zero", "mta", "tps"} <= used
    assert resolve_method("zero-shot+views=0.5").uses_views


def test_every_method_of_the_table_has_a_title_a_colour_and_a_marker():
    looks = [method.look for method in METHODS.values()]
    assert all(look.title and look.colour and look.marker for look in looks)
    assert len({look.title for look in looks}) == len(looks)
    assert len({(look.colour, look.marker) for look in looks}) == len(looks)


def test_importing_the_methods_loads_no_torch():
    code = "import sys, dtpt.methods; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_share_of_views_is_chosen_on_labelled_rows_only():
    with pytest.raises(MethodError, match="chosen on labelled rows"):
        resolve_method("tpt+views=auto")


def test_a_run_takes_all_shares_of_views():
    from dtpt.methods.mean_views import SHARES
    from dtpt.runs.setup import expand_methods

    found = expand_methods(["zero-shot", "d-tpt+views=auto@7"], [], protocol="fine-grained")
    assert [method.name for method in found[1:]] == [f"d-tpt+views={s:g}" for s in SHARES]
    assert {method.lambda_ for method in found[1:]} == {7.0}
