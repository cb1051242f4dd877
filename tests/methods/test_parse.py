"""Names of methods, their lambdas, modifiers and plug-ins."""

import subprocess
import sys
import types
from dataclasses import replace

import pytest
import torch

import dtpt
from dtpt.errors import MethodError, UnknownName
from dtpt.methods import (
    METHODS,
    PAPER_METHODS,
    AutoLambda,
    Method,
    expand_views,
    known_methods,
    method_label,
    method_title,
    parse_label,
    regularised,
    resolve_method,
)
from dtpt.methods.dominant import dominant_dimension, replace_by_mean
from dtpt.methods.mean_views import FRACTIONS
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
    tuner = classifier.predictor.tuner
    (outcome,) = tuner.predict(views, [classifier.method])
    assert flatten(outcome.text_features) < flatten(tuner.initial_text_features)
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
    ("spec", "name", "quantile", "each"),
    [
        ("d-tpt@auto", "d-tpt@auto=0.9", 0.9, False),
        ("c-tpt+sals@auto=0.75", "c-tpt+sals@auto=0.75", 0.75, False),
        ("o-tpt@auto-each", "o-tpt@auto-each=0.9", 0.9, True),
        ("d-tps:aligned@auto-each=0.5", "d-tps:aligned@auto-each=0.5", 0.5, True),
    ],
)
def test_a_lambda_rule_is_part_of_the_name_and_resolves_to_itself(spec, name, quantile, each):
    resolved = resolve_method(spec)
    assert (resolved.name, resolved.lambda_, resolved.label) == (name, None, name)
    assert resolved.auto == AutoLambda(quantile, each)
    assert resolved.needs_lambda_search is not each
    assert replace(resolved, lambda_=3.0).label == name
    assert resolve_method(resolved.name) == resolved


def test_learning_rates_come_from_the_modifier_then_the_method_then_the_settings():
    assert resolve_method("tpt").learning_rate is None
    assert resolve_method("tps").learning_rate == 1e-3
    assert resolve_method("tps", protocol="natural-shifts").learning_rate == 5e-3
    assert resolve_method("tps", protocol="imagenet").learning_rate == 5e-3
    assert resolve_method(METHODS["tps"], protocol="imagenet").learning_rate == 5e-3
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


def test_the_fraction_of_views_is_selected_on_labelled_rows_only():
    with pytest.raises(MethodError, match="calibrate"):
        resolve_method("tpt+views=auto")


def test_a_name_with_automatic_views_means_every_fraction():
    names = expand_views("d-tpt+views=auto+sals@1e-3")
    assert names == tuple(f"d-tpt+views={fraction:g}+sals@1e-3" for fraction in FRACTIONS)
    assert expand_views("tpt+views=0.3@7") == ("tpt+views=0.3@7",)


@pytest.mark.parametrize(
    ("text", "base", "modifiers", "rule", "name"),
    [
        ("tpt", "tpt", (), "", "tpt"),
        ("d-tpt@1e5", "d-tpt", (), "1e5", "d-tpt"),
        ("c-tpt+sals+ts=2@auto=0.5", "c-tpt", ("sals", "ts=2"), "auto=0.5", "c-tpt+sals+ts=2"),
        ("d-tpt:aligned-static+no-tdd", "d-tpt:aligned-static", ("no-tdd",), "", None),
        ("unknown@x", "unknown", (), "x", "unknown"),
        ("", "", (), "", ""),
    ],
)
def test_every_text_has_parts_and_they_make_the_text_again(text, base, modifiers, rule, name):
    parsed = parse_label(text)
    assert (parsed.base, parsed.modifiers, parsed.rule) == (base, modifiers, rule)
    assert parsed.name == (text if name is None else name)
    assert str(parsed) == text


def test_lambda_is_added_replaced_and_removed():
    parsed = parse_label("d-tpt+sals")
    assert str(parsed.with_lambda(1e6)) == "d-tpt+sals@1e6"
    assert str(parsed.with_lambda(AutoLambda(0.8))) == "d-tpt+sals@auto=0.8"
    assert str(parse_label("d-tpt@0.12345678901234").with_modifier("sals")) == (
        "d-tpt+sals@0.12345678901234"
    )
    assert str(parse_label("d-tpt@7").with_lambda("")) == "d-tpt"


def test_the_fraction_of_views_is_read_and_removed():
    parsed = parse_label("d-tpt+views=0.25+sals@7")
    assert (parsed.views, str(parsed.without_views())) == (0.25, "d-tpt+sals@7")
    assert parse_label("d-tpt").views is None


@pytest.mark.parametrize(
    ("label", "name", "lambda_", "expected"),
    [
        ("d-tpt", "d-tpt", 1e5, True),
        ("d-tpt", "d-tpt+sals", 1e5, False),
        ("d-tpt", "d-tpt@auto=0.9", None, False),
        ("d-tpt@1e5", "d-tpt", 100000.0, True),
        ("d-tpt@1e5", "d-tpt", 1e6, False),
        ("d-tpt@auto", "d-tpt@auto=0.9", None, True),
        ("d-tpt@auto=0.90", "d-tpt@auto=0.9", None, True),
        ("d-tpt@auto", "d-tpt@auto=0.8", None, False),
        ("d-tpt@auto", "d-tpt", 1e5, False),
        ("d-tpt@auto", "d-tpt@auto-each=0.9", None, False),
        ("tpt+views=auto", "tpt+views=0.3", None, True),
        ("tpt+views=auto", "tpt", None, False),
        ("tpt+views=auto", "c-tpt+views=0.3", 50.0, False),
        ("d-tpt+views=auto@auto", "d-tpt+views=0.02@auto=0.9", None, True),
        ("d-tpt+views=auto@7", "d-tpt+views=0.02", 8.0, False),
    ],
)
def test_a_label_matches_the_cells_that_it_means(label, name, lambda_, expected):
    assert parse_label(label).matches(name, lambda_) is expected


@pytest.mark.parametrize("label", ["d-tpt@x", "d-tpt@automatic", "d-tpt@auto=2"])
def test_a_label_with_an_invalid_rule_matches_nothing_silently(label):
    with pytest.raises(MethodError):
        parse_label(label).matches("d-tpt", 1.0)


@pytest.mark.parametrize(
    ("spec", "label"),
    [("tpt", "tpt"), ("d-tpt", "d-tpt@1e5"), ("c-tpt+sals@2.5", "c-tpt+sals@2.5")],
)
def test_a_label_resolves_to_the_same_method(spec, label):
    resolved = resolve_method(spec)
    assert resolved.label == method_label(resolved.name, resolved.lambda_) == label
    assert resolve_method(label) == resolved


@pytest.mark.parametrize(
    ("name", "lambda_", "title"),
    [
        ("d-tpt@1e6", None, "D-TPT (λ = 10⁶)"),
        ("d-tpt", 3e5, "D-TPT (λ = 3·10⁵)"),
        ("d-tpt@auto-each=0.8", None, "D-TPT (λ auto for each image, 80 % of signs)"),
        ("tpt+unknown", None, "TPT +unknown"),
        ("d-tpt@x", None, "D-TPT (λ x)"),
    ],
)
def test_titles(name, lambda_, title):
    assert method_title(name, lambda_) == title


def test_a_method_with_half_a_state_is_refused():
    with pytest.raises(MethodError, match="initial"):
        Method("half", "", parameter="nothing", step=lambda *_, **__: None)
    with pytest.raises(MethodError, match="read_out"):
        Method("both", "", initial=list, step=list, read_out=list)
