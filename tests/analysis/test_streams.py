"""The study of streams: tables and curves say what the rows of its runs say."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))

import stream_tables
from tiny_runs import draw_images, tiny_clip

from dtpt.analysis import streams
from dtpt.analysis.positions import WINDOWS, along_streams
from dtpt.analysis.streams import STREAMS, StreamsOptions
from dtpt.analysis.study import save_json
from dtpt.data import load_dataset
from dtpt.metrics import METRICS, Conventions, Predictions
from dtpt.metrics.distributions import student_quantile
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import positions_figure
from dtpt.runs import open_run


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    draw_images(folder / "images", per_class=10)
    dataset = load_dataset(f"folder:{folder / 'images'}")
    options = StreamsOptions(
        output=folder / "runs",
        dataset=(dataset.name,),
        model="tiny",
        method=("tda", "mean-views"),
        views=4,
        orders=("shuffled", "by-class"),
        order_seeds=(0, 1, 2),
        threads=1,
        cache=False,
        quiet=True,
    )
    return STREAMS.run(options, model=tiny_clip(), datasets=[dataset]), folder / "runs"


def test_every_order_is_compared_with_zero_shot(study):
    made, folder = study
    (family,) = made.families
    assert {row.group for row in family.rows} == {"order shuffled", "order by-class"}
    with open_run(folder / "by-class") as run:
        gains = [
            run.rows(method="tda", order=order).correct.mean()
            - run.rows(method="zero-shot").correct.mean()
            for order in (0, 1, 2)
        ]
    (difference,) = (
        c
        for c in family.comparisons
        if (c.first, c.second, c.metric) == ("tda, by-class", "zero-shot, by-class", "accuracy")
    )
    assert difference.estimate == pytest.approx(np.mean(gains), abs=1e-12)


def test_methods_without_state_are_further_references(study):
    (family,) = study[0].families
    pairs = {(c.first, c.second) for c in family.comparisons}
    one, base, other = (f"{name}, shuffled" for name in ("tda", "zero-shot", "mean-views"))
    assert {(one, base), (one, other), (other, base)} <= pairs
    assert len(pairs) == 6


def test_curves_are_those_of_the_rows(study):
    made, folder = study
    assert len(made.facts["positions"]) == 2
    (facts,) = (each for each in made.facts["positions"] if each["order"] == "shuffled")
    with open_run(folder / "shuffled") as run:
        streams = [run.rows(method="tda", order=order) for order in (0, 1, 2)]
    windows = {"": lambda p: (p >= 3) & (p < 6), "_so_far": lambda p: p < 6}  # of 30 images
    for suffix, chosen in windows.items():
        rows = [(r.correct, r.confidence, r.zero_shot_prediction == r.label) for r in streams]
        kept = [chosen(r.position) for r in streams]
        accuracy, confidence, untuned = (
            np.array([part[k].mean() for part, k in zip(parts, kept, strict=True)])
            for parts in zip(*rows, strict=True)
        )
        values = {"accuracy": accuracy, "gain": accuracy - untuned, "gap": confidence - accuracy}
        for key, expected in values.items():
            found = facts[f"{key}{suffix}"]
            assert len(found) == WINDOWS
            assert found[1]["value"] == pytest.approx(expected.mean(), abs=1e-12)
            half = student_quantile(0.95, 2) * expected.std(ddof=1) / math.sqrt(3)
            assert found[1]["high"] - found[1]["low"] == pytest.approx(2 * half, abs=1e-12)
    whole = [METRICS["ece"].value(predictions(r), Conventions()) for r in streams]
    assert facts["ece_so_far"][-1]["value"] == pytest.approx(np.mean(whole), abs=1e-12)
    assert facts["zero_shot_ece"][0]["value"] != facts["ece"][0]["value"]


def predictions(rows):
    return Predictions.from_confidence(rows.confidence, rows.correct)


def test_windows_without_an_image_have_no_value():
    types = [("position", int), ("confidence", float), ("correct", bool), ("label", int)]
    types += [("zero_shot_prediction", int), ("zero_shot_confidence", float)]
    rows = np.array([(0, 0.5, True, 1, 1, 0.5), (2, 0.5, False, 1, 1, 0.5)], types)
    (first, *_, last), so_far = (along_streams([(0, rows, 3)])[k] for k in ("gap", "gap_so_far"))
    assert (first["value"], first["low"]) == (-0.5, None)  # one order has no interval
    assert last["value"] is None
    assert so_far[-1]["value"] == 0


def test_tables_and_figure_have_every_method_and_order(study):
    made, _ = study
    tables = list(streams.stream_tables(made))
    along = [
        table for table in tables if getattr(table, "columns", ()) and len(table.columns) == 10
    ]
    assert [len(table.rows) for table in along] == [2, 4, 4]
    figure = positions_figure(made)
    text = svg_text(figure)
    for words in ("by-class", "shuffled", "ECE (%)", "confidence", "tda"):
        assert words in text
    gaps = [each["value"] for each in made.facts["positions"][0]["gap_so_far"]]
    lines = [line.get_ydata() for axes in figure.axes for line in axes.lines]
    assert any(np.allclose(line, 100 * np.array(gaps)) for line in lines if len(line) == WINDOWS)


def test_tables_of_the_documentation_are_those_of_the_study(study, tmp_path):
    made, _ = study
    save_json(made, tmp_path / "streams.json")
    (tmp_path / "streams.svg").write_text("<svg/>")
    page = tmp_path / "streams.md"
    page.write_text(
        "![](streams-tiny.svg)\n<!-- made: tiny -->\n<!-- end -->\n"
        "<!-- made: other -->\nold\n<!-- end -->\n"
    )
    table = stream_tables.write("tiny", tmp_path, page=page)
    text = page.read_text()
    assert f"<!-- made: tiny -->\n{table}\n<!-- end -->\n" in text
    assert text.endswith("<!-- made: other -->\nold\n<!-- end -->\n")
    (family,) = made.families
    cells = [row.split(" | ") for row in text.splitlines() if row.startswith("| `tda`")]
    assert [row[0] for row in cells] == ["| `tda` − `zero-shot`", "| `tda` − `mean-views`"]
    for row, base in zip(cells, ("zero-shot", "mean-views"), strict=True):
        (gap,) = (
            c
            for c in family.comparisons
            if (c.first, c.second) == ("tda, shuffled", f"{base}, shuffled")
            if c.metric == "signed_gap"
        )
        assert row[3].startswith(f"{100 * gap.estimate:+.2f}".replace("-", "−"))
        assert ("*" in row[3]) == gap.significant
    assert (tmp_path / "streams-tiny.svg").read_text() == "<svg/>"
    assert stream_tables.write("none", tmp_path, page=page) == table
    assert page.read_text() == text
