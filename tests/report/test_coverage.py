"""The report checks coverage and errors on rows that nothing was fitted on."""

import numpy as np
import pytest
from probability_runs import write_probabilities

from dtpt.calibration import SplitCheck, Targets, concatenate
from dtpt.report import load_runs, write_report
from dtpt.report.coverage import TARGETS, checked_cells, coverage_report
from dtpt.report.figures.studies import coverage_figure, selective_risk_figure


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_probabilities(tmp_path_factory.mktemp("run"), samples=600)


@pytest.fixture(scope="module")
def cells(run):
    with load_runs([run]) as loaded:
        return checked_cells(loaded.conditions[0])


def test_every_image_is_checked_once_and_targets_hold(cells):
    assert [cell.variant.method for cell in cells] == ["zero-shot", "d-tpt"]
    for cell in cells:
        assert len(cell.lac.covered) == len(cell.aps.covered) == 600
        assert cell.lac.coverage == pytest.approx(TARGETS.coverage, abs=0.05)
        assert cell.lac.acceptance > 0.2
        assert cell.lac.error <= TARGETS.error + 0.03


def test_the_page_shows_the_table_and_the_figure(run, tmp_path):
    written = write_report([run], tmp_path)
    assert 'id="coverage"' in written.page.read_text()
    (table,) = written.report.parts[0].coverage.tables
    assert [row.title for row in table.rows] == ["Zero-shot", "D-TPT (λ = 10⁵)"]
    assert (tmp_path / "figures" / "coverage-fine-grained.svg") in written.files


def test_images_of_one_cluster_are_on_one_side_and_classes_are_counted_by_set(tmp_path):
    clusters = [f"thing {k // 4}" for k in range(600)]
    run = write_probabilities(tmp_path, samples=600, clusters=clusters)
    with load_runs([run]) as loaded:
        cell, _ = checked_cells(loaded.conditions[0])
    np.testing.assert_allclose(cell.lac.weight, 1 / 4)
    pooled = concatenate([cell.lac, cell.lac], same_classes=False)
    assert sorted(set(pooled.label.tolist())) == list(range(8))
    assert pooled.class_coverage == pytest.approx(cell.lac.class_coverage, abs=0.05)


def test_the_figure_has_a_curve_a_target_and_a_ring_for_each_method(cells):
    curves = [(cell.variant.look, cell.variant.title, cell.lac) for cell in cells]
    _, axes = selective_risk_figure(curves, error=TARGETS.error)
    assert [line.get_ydata()[0] for line in axes.lines[2:3]] == [TARGETS.error]
    assert len(axes.lines) == 2 + 1 + 2


def test_runs_without_probabilities_and_small_ones_have_no_such_section(tmp_path):
    bare = write_probabilities(tmp_path / "bare", samples=40, keep=False)
    small = write_probabilities(tmp_path / "small", samples=12)
    for folder in (bare, small):
        with load_runs([folder]) as loaded:
            assert coverage_report(loaded.conditions[0]).tables == ()
    assert 'id="coverage"' not in write_report([bare], tmp_path / "report").page.read_text()


def splits(coverage, error, accepted):
    one = np.full(10, 1.0)
    spread = coverage + np.linspace(-0.02, 0.02, 10)
    rates = (error * one, error * one, accepted * one)
    return SplitCheck(Targets(), spread, one, one, one, *rates, 0.5, 0.6)


def test_marks_are_at_means_and_lines_at_targets():
    checked = [
        (("zero-shot", None), splits(0.91, 0.01, 0.3)),
        (("d-tpt", 1e5), splits(0.88, 0.09, 0.6)),
    ]
    _, (left, middle, right) = coverage_figure(checked)
    marks = [line.get_xdata() for line in left.lines if len(line.get_xdata()) == 1]
    assert [float(x[0]) for x in marks] == pytest.approx([91, 88])
    assert [float(line.get_xdata()[0]) for line in middle.lines[:2]] == [100, 0]
    assert [float(line.get_xdata()[0]) for line in right.lines] == pytest.approx([30, 60])
    assert left.lines[-1].get_xdata()[0] == 90
    assert middle.lines[-1].get_xdata()[0] == 95
    labels = [text.get_text() for text in left.get_yticklabels()]
    assert labels == ["Zero-shot", "D-TPT (λ = 10⁵)"]


def test_sets_of_one_method_are_beside_each_other():
    checked = [(("tpt", None), splits(0.9, 0.01, fraction)) for fraction in (0.2, 0.3)]
    _, (_, _, right) = coverage_figure(checked)
    heights = [float(line.get_ydata()[0]) for line in right.lines]
    assert heights == pytest.approx([-0.125, 0.125])
