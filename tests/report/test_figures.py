"""Every figure shows the numbers it is given, and can be read without colour."""

import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from handmade import dataset, write_run
from PIL import Image

from dtpt.analysis import Analysis, DatasetAnalysis, save_analysis
from dtpt.analysis.features import (
    DimensionProfile,
    DominantDimension,
    ModalityAnalysis,
    ModalityGap,
    Sensitivity,
)
from dtpt.analysis.geometry import GeometryState, ImageDependence, MethodGeometry, Movement
from dtpt.analysis.scores import (
    DispersionPoint,
    DispersionScatter,
    MethodScore,
    TemperatureControl,
)
from dtpt.analysis.tables import analysis_tables
from dtpt.metrics import reliability_bins, risk_coverage_curve
from dtpt.report import load_runs, write_report
from dtpt.report.derived import with_derived_rows
from dtpt.report.facts import Number, Resampling, compare_conditions
from dtpt.report.figures import inline_svg, svg_size, svg_text
from dtpt.report.figures.geometry import (
    analysis_figures,
    dimension_profile,
    dispersion_figure,
    movement_drawing,
    movement_split,
    sensitivity_bars,
)
from dtpt.report.figures.images import view_mosaic
from dtpt.report.figures.reliability import (
    confidence_shift,
    dataset_figures,
    family_figures,
    lead_reliability,
    pareto_figure,
    reliability_row,
    risk_coverage_figure,
)
from dtpt.report.figures.style import looks_for

rng = np.random.default_rng(0)
CONFIDENCE = rng.uniform(0.3, 1, size=300)
CORRECT = rng.uniform(size=300) < CONFIDENCE


def test_reliability_row_has_a_pair_of_axes_per_method_with_its_bins() -> None:
    panels = [
        ("TPT", reliability_bins(CONFIDENCE, CORRECT), None),
        ("other", reliability_bins([0.5], [True]), None),
    ]
    _, pairs = reliability_row(panels)
    assert [upper.get_title() for upper, _ in pairs] == ["TPT", "other"]
    for (_, bins, _), (upper, lower) in zip(panels, pairs, strict=True):
        solid, hatched = upper.containers
        used = bins.count > 0
        assert [bar.get_height() for bar in solid] == pytest.approx(bins.accuracy[used].tolist())
        assert all(bar.get_hatch() for bar in hatched)
        assert sum(bar.get_height() for bar in lower.containers[0]) == pytest.approx(1)


def test_risk_curves_end_at_the_error_rate() -> None:
    curves = [(("tpt", None), "TPT", risk_coverage_curve(CONFIDENCE, CORRECT))]
    curves.append((("d-tpt", 1e5), "D-TPT", risk_coverage_curve(CONFIDENCE, ~CORRECT)))
    _, axes = risk_coverage_figure(curves)
    first, second = axes.get_lines()
    assert first.get_ydata()[-1] == pytest.approx(1 - CORRECT.mean())
    assert second.get_ydata()[-1] == pytest.approx(CORRECT.mean())
    assert first.get_linestyle() != second.get_linestyle()
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["TPT", "D-TPT"]


def test_confidence_marks_are_split_by_correctness() -> None:
    before, after = np.array([0.2, 0.4, 0.6]), np.array([0.3, 0.5, 0.9])
    _, (axes,) = confidence_shift([("D-TPT", before, after, np.array([True, False, True]))])
    _, right, wrong = axes.get_lines()
    assert right.get_xdata().tolist() == [0.2, 0.6]
    assert wrong.get_ydata().tolist() == [0.5]
    assert right.get_marker() != wrong.get_marker()
    assert axes.get_title() == "D-TPT\nmean change +16.7 points"


SCORES = {
    ("tpt", None): (0.6, 0.2),
    ("d-tpt", 1e3): (0.61, 0.1),
    ("d-tpt", 1e5): (0.58, 0.05),
    ("d-tpt", 1e6): (0.50, 0.30),
}
POINTS = [
    (key, *(Number(value, low=value - 0.02, high=value + 0.01) for value in values))
    for key, values in SCORES.items()
]


def test_pareto_points_are_filled_only_when_efficient_and_grow_with_lambda() -> None:
    _, axes = pareto_figure(POINTS)
    marks = [line for line in axes.get_lines() if line.get_linestyle() == "None"]
    across = [segments.get_segments()[0] for segments in axes.collections[::2]]
    assert np.allclose([(line[0][0], line[1][0]) for line in across[:1]], [(58, 61)])
    filled = [line.get_markerfacecolor() != "none" for line in marks]
    places = [(line.get_xdata()[0], line.get_ydata()[0]) for line in marks]
    assert np.allclose(places, [(60, 20), (61, 10), (58, 5), (50, 30)])
    assert filled == [False, True, True, False]
    sizes = [line.get_markersize() for line in marks[1:]]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    assert {text.get_text() for text in axes.texts} == {"λ=10³", "λ=10⁶"}


def test_dispersion_points_are_at_atfd_and_ece_in_percent() -> None:
    points = tuple(
        DispersionPoint("pets", "t", label, x, y)
        for label, x, y in (("tpt", 0.5, 0.2), ("d-tpt@1e5", 0.4, 0.05), ("tpt", 0.6, 0.3))
    )
    _, axes = dispersion_figure(DispersionScatter(points, 0.9, -0.5, None))
    tpt, own = axes.get_lines()
    assert tpt.get_xdata().tolist() == [0.5, 0.6]
    assert own.get_ydata().tolist() == [5.0]
    assert axes.get_title() == "Pearson +0.90, Spearman −0.50"


def modality(index: int, mean: float) -> ModalityAnalysis:
    values = np.zeros(16)
    values[index] = mean
    row = tuple(values.tolist())
    profile = DimensionProfile(5, 5, row, row, row, tuple(values - 0.01), row, tuple(values + 0.01))
    dominant = DominantDimension(index, mean, abs(mean), 0.4, 1.0, None, None)
    return ModalityAnalysis(dominant, profile)


def test_profiles_name_the_dominant_dimension_of_each_modality() -> None:
    _, (upper, lower) = dimension_profile(modality(3, 0.7), modality(12, -0.5))
    assert upper.texts[0].get_text() == "TDD 3: +0.70"
    assert lower.texts[0].get_text() == "IDD 12: −0.50"
    assert upper.get_lines()[0].get_ydata()[3] == 0.7
    assert len(lower.get_lines()[0].get_ydata()) == 16


def test_sensitivity_bars_are_the_top_values_and_dominant_ones_are_hatched() -> None:
    top = ((7, 0.5), (3, 0.4), (9, 0.1))
    found = Sensitivity("product", 4, tuple(np.zeros(16).tolist()), top)
    _, axes = sensitivity_bars(found, text=7, image=3)
    assert [bar.get_height() for bar in axes.patches] == [0.5, 0.4, 0.1]
    assert [text.get_text() for text in axes.texts] == ["TDD", "IDD"]
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [True, True, False]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["7", "3", "9"]


def geometry() -> list[MethodGeometry]:
    state = GeometryState(0.5, 5.0, 20.0, 0.2, 0.3, 0.3)
    still = Movement(0, 0, 0, 0, 0, 0, 0)
    moved = Movement(0.01, 0.2, 0.1, 0.7, 0.045, -0.03, 0.08)
    return [
        MethodGeometry(name, 1.3, state, state, movement, movement, None)
        for name, movement in (("zero-shot", still), ("tpt", moved))
    ]


def test_movement_shares_stack_to_one_hundred_percent() -> None:
    _, axes = movement_split(geometry())
    widths = [container[0].get_width() for container in axes.containers]
    assert widths == pytest.approx([20, 10, 70])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["TPT"]
    assert len({bar[0].get_hatch() for bar in axes.containers}) == 3


def test_movement_is_drawn_from_the_text_toward_the_image() -> None:
    _, axes = movement_drawing(geometry())
    (line,) = [line for line in axes.get_lines() if line.get_label() == "TPT"]
    x, y = line.get_data()
    text = np.array([x[0], y[0]])
    assert np.linalg.norm(text) == pytest.approx(1)
    step = np.array([x[1], y[1]]) - text
    along = np.array([text[1], -text[0]])
    factor = step @ along / 0.045
    assert factor > 1
    assert step @ text == pytest.approx(-0.03 * factor)
    assert f"{factor:.3g} times" in axes.get_xlabel()


def test_mosaic_shows_every_view_with_its_entropy_and_frames_the_kept() -> None:
    views = rng.integers(0, 255, (6, 8, 8, 3), dtype=np.uint8)
    _, axes = view_mosaic(views, [0.1 * i for i in range(6)], kept=[0, 4])
    assert len(axes.images) == 6
    assert np.array_equal(axes.images[5].get_array(), views[5])
    assert [text.get_text() for text in axes.texts] == [
        "0.00 ✓",
        "0.10",
        "0.20",
        "0.30",
        "0.40 ✓",
        "0.50",
    ]
    assert len(axes.patches) == 2


def test_methods_differ_in_more_than_colour() -> None:
    names = ["zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt", "a-tpt", "mine"]
    looks = looks_for((name, None) for name in names)
    assert len({look.marker for look in looks.values()}) == 7
    assert len({(str(look.dash), look.marker) for look in looks.values()}) == 7


def test_lambdas_of_one_method_differ_in_shade_and_marker() -> None:
    lambdas = [("d-tpt", 10.0**power) for power in range(1, 7)]
    looks = looks_for([("zero-shot", None), ("tpt", None), ("tpt+sals", None), *lambdas])
    assert len({look.colour for look in looks.values()}) == len(looks)
    assert len({look.marker for look in looks.values()}) == len(looks)
    assert len({look.dash for (name, _), look in looks.items() if name == "d-tpt"}) == 1


def test_figures_of_a_run_are_drawn_at_the_chosen_lambda(tmp_path) -> None:
    def says(cell, index):
        best = {"pets": 1e4, "cars": 1e6, "cows": 1e6}[cell.dataset]
        return index % 2 == 0, 0.95 if cell.lambda_ not in (None, best) else 0.5

    grid = (("tpt", None), ("d-tpt", 1e4), ("d-tpt", 1e5), ("d-tpt", 1e6))
    sizes = {"pets": 300, "cars": 240, "cows": 60}
    sets = [dataset(name, samples=n, methods=grid) for name, n in sizes.items()]
    with load_runs([write_run(tmp_path, sets, says)]) as loaded:
        (condition,) = with_derived_rows(loaded).conditions
    figures = {figure.key: figure for figure in dataset_figures(condition, prefix="")}
    assert list(figures) == ["pets-reliability", "cars-reliability"]  # cows are too few
    assert "D-TPT (λ = 10⁶)" in figures["pets-reliability"].alternative
    assert "10⁴" not in figures["pets-reliability"].alternative
    few = Resampling(resamples=20)
    (facts,) = compare_conditions([condition], few)[0]
    drawn = {f.key: f for f in family_figures(condition, facts, key="k")}
    assert list(drawn) == ["k-reliability", "k-risk", "k-pareto"]  # no zero-shot, no confidence
    assert drawn["k-pareto"].alternative.count("D-TPT") == 3  # the chosen λ is one of them
    assert len(drawn["k-reliability"].parts) == len(facts.shown) == 3
    lead = lead_reliability(condition, [facts], key="lead")
    assert len(lead.parts) == 3
    assert "600 images" in lead.caption


def test_svg_is_the_same_every_time_and_well_formed() -> None:
    first, second = (svg_text(pareto_figure(POINTS)[0]) for _ in range(2))
    assert first == second
    ET.fromstring(first)


def test_inline_svg_has_a_text_alternative_and_the_pages_colours() -> None:
    text = svg_text(pareto_figure(POINTS)[0])
    markup = inline_svg(text, name="f1", title="A < B", description="x & y")
    root = ET.fromstring(markup)
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title").text == "A < B"
    assert root.find(f"{space}desc").text == "x & y"
    ids = [node.get("id") for node in root.iter() if node.get("id")]
    assert all(name.startswith("f1-") for name in ids)
    assert "currentColor" in markup
    assert "#1b1f24" not in markup
    assert "#ffffff" not in markup


def test_figures_leave_pyplot_alone() -> None:
    pareto_figure(POINTS)
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def analysis() -> Analysis:
    labels = ["tpt", "d-tpt@1e3", "tpt+no-tdd", "tpt+no-idd"]
    pairs = zip(labels, SCORES.values(), strict=True)
    scores = tuple(MethodScore(label, 10, *values, 0.5) for label, values in pairs)
    top = Sensitivity("product", 4, tuple(np.zeros(16).tolist()), ((7, 0.5),))
    depends = (
        ImageDependence("tpt", 0.25, 0.5, None),
        ImageDependence("d-tpt@1e3", 0.25, 0.5, 0.8, static="tpt", same_prediction=0.9),
    )
    entry = DatasetAnalysis(
        dataset="openmoji/food-drink",
        template="a photo of a {}.",
        classes=3,
        images=4,
        failures=0,
        dimensions=16,
        text=modality(3, 0.7),
        image=modality(12, 0.5),
        gap=ModalityGap(0.5, 0.7, 0.3, 0.2, ()),
        sensitivity=(top,),
        scores=scores,
        geometry=tuple(geometry()),
        image_dependence=depends,
        temperatures=tuple(TemperatureControl(f"tpt+{m}", 1.25, 0.1) for m in ("no-tdd", "no-idd")),
    )
    points = (DispersionPoint("openmoji/food-drink", "t", "tpt", 0.5, 0.2),)
    scatter = DispersionScatter(points, None, None, None)
    return Analysis(1, "test", "tiny", "weights", 0, 4, (entry,), scatter)


def test_an_analysis_becomes_figures_with_words_and_tables_with_its_numbers() -> None:
    drawings = list(analysis_figures(analysis()))
    assert len({drawing.key for drawing in drawings}) == len(drawings) == 5
    assert all("<svg" in drawing.svg and drawing.alternative for drawing in drawings)
    tables = {table.title.partition(":")[0]: table for table in analysis_tables(analysis())}
    without = tables["Without dominant dimensions, accuracy / ECE (%)"]
    texts = [cell.text for cell in without.rows[0].cells]
    control = "10.00 (T 1.25)"
    assert texts == ["60.00 / 20.00", "58.00 / 5.00", control, "50.00 / 30.00", control]


def test_the_page_shows_an_analysis_file(tmp_path) -> None:
    path = save_analysis(analysis(), tmp_path)
    run = write_run(tmp_path, [dataset(methods=(("tpt", None),))], lambda cell, i: (True, 0.5))
    made = write_report([run], tmp_path / "out", analysis=path)
    text = made.page.read_text("utf-8")
    assert 'id="analysis"' in text
    assert (tmp_path / "out" / "figures" / "analysis-dispersion.svg").exists()


def test_figures_are_also_pdf_with_fonts_and_png_for_print(five_method_run, tmp_path) -> None:
    few = Resampling(resamples=20)
    written = write_report([five_method_run], tmp_path, resampling=few, figures=("pdf", "png"))
    figures = written.report.all_figures
    assert {p.suffix for p in (tmp_path / "figures").iterdir()} == {".pdf", ".png"}
    pdf = (tmp_path / "figures" / f"{figures[0].key}.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert b"/FontFile2" in pdf
    assert pdf == figures[0].content("pdf")
    with Image.open(tmp_path / "figures" / f"{figures[0].key}.png") as image:
        assert image.width == pytest.approx(300 * svg_size(figures[0].svg)[0], abs=2)
