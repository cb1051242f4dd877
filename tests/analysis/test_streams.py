"""The study of streams: tables and curves say what the rows of its runs say."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))

from tiny_runs import draw_images, tiny_clip

from dtpt.analysis.streams import STREAMS, TENTHS, StreamsOptions, stream_tables
from dtpt.data import load_dataset
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
        method=("tda",),
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
        c for c in family.comparisons if (c.first, c.metric) == ("tda, by-class", "accuracy")
    )
    assert difference.second == "zero-shot, by-class"
    assert difference.estimate == pytest.approx(np.mean(gains), abs=1e-12)


def test_curves_are_those_of_the_rows(study):
    made, folder = study
    assert len(made.facts["positions"]) == 2
    (facts,) = (each for each in made.facts["positions"] if each["order"] == "shuffled")
    with open_run(folder / "shuffled") as run:
        values = []
        for order in (0, 1, 2):
            rows = run.rows(method="tda", order=order)
            chosen = rows.position < 6  # two tenths of 30 images
            values.append(rows.confidence[chosen].mean() - rows.correct[chosen].mean())
    assert len(facts["gap"]) == TENTHS
    assert facts["gap_so_far"][1]["value"] == pytest.approx(np.mean(values), abs=1e-12)
    assert facts["gap_so_far"][1]["low"] <= np.mean(values) <= facts["gap_so_far"][1]["high"]
    assert 0 <= facts["ece_so_far"][-1]["value"] <= 1


def test_tables_and_figure_have_every_method_and_order(study):
    made, _ = study
    tables = list(stream_tables(made))
    along = [
        table for table in tables if getattr(table, "columns", ()) and len(table.columns) == 10
    ]
    assert [len(table.rows) for table in along] == [2, 2]
    assert "by-class" in svg_text(positions_figure(made))
