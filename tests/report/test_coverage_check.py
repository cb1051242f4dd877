"""The report checks calibrations on rows that they were not fitted on."""

import pytest
from probability_runs import write_probabilities

from dtpt.report.coverage import TARGETS, checked_cells, coverage_report
from dtpt.report.gathering import gather
from dtpt.report.writing import write_report


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_probabilities(tmp_path_factory.mktemp("run"), samples=600)


def test_every_image_is_checked_once_and_targets_are_reached(run):
    with gather([run]) as gathered:
        cells = checked_cells(gathered.conditions[0])
    assert [cell.contender.method for cell in cells] == ["zero-shot", "d-tpt"]
    for cell in cells:
        assert len(cell.lac.covered) == len(cell.aps.covered) == 600
        assert cell.lac.coverage == pytest.approx(TARGETS.coverage, abs=0.05)
        assert cell.lac.acceptance > 0.2
        assert cell.lac.error <= TARGETS.error + 0.03


def test_the_page_shows_the_table_and_the_figure(run, tmp_path):
    written = write_report([run], tmp_path)
    page = written.page.read_text()
    assert 'id="coverage"' in page
    assert "Fine-grained classification: coverage check" in page
    assert (tmp_path / "figures" / "coverage-fine-grained.svg") in written.files


def test_the_figure_has_a_curve_a_level_and_a_ring_for_each_method(run):
    with gather([run]) as gathered:
        (figure,) = coverage_report(gathered.conditions[0]).figures
    (axes,) = figure.draw().axes
    assert [line.get_ydata()[0] for line in axes.lines[2:3]] == [TARGETS.error]
    assert len(axes.lines) == 2 + 1 + 2
    assert "D-TPT" in figure.alternative


def test_runs_without_probabilities_and_small_ones_have_no_such_section(tmp_path):
    bare = write_probabilities(tmp_path / "bare", samples=40, keep=False)
    small = write_probabilities(tmp_path / "small", samples=12)
    for folder in (bare, small):
        with gather([folder]) as gathered:
            assert coverage_report(gathered.conditions[0]).tables == ()
    assert 'id="coverage"' not in write_report([bare], tmp_path / "report").page.read_text()
