"""The report says whether promises hold on rows that they were not fitted on."""

import pytest
from promised_runs import write_probabilities

from dtpt.report.gathering import gather
from dtpt.report.kept_promises import LEVELS, judged_cells, promise_report
from dtpt.report.writing import write_report


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_probabilities(tmp_path_factory.mktemp("run"), samples=600)


def test_every_picture_is_judged_once_and_promises_hold(run):
    with gather([run]) as gathered:
        cells = judged_cells(gathered.conditions[0])
    assert [cell.contender.method for cell in cells] == ["zero-shot", "d-tpt"]
    for cell in cells:
        assert len(cell.lac.hit) == len(cell.aps.hit) == 600
        assert cell.lac.coverage == pytest.approx(LEVELS.coverage, abs=0.05)
        assert cell.lac.share_answered > 0.2
        assert cell.lac.error <= LEVELS.error + 0.03


def test_the_page_shows_the_table_and_the_figure(run, tmp_path):
    written = write_report([run], tmp_path)
    page = written.page.read_text()
    assert 'id="promises"' in page
    assert "Fine-grained classification: promises kept" in page
    assert "at most 10 % of the answers given are wrong" in page
    assert (tmp_path / "figures" / "promises-fine-grained.svg") in written.files


def test_the_figure_has_a_curve_a_level_and_a_ring_for_each_method(run):
    with gather([run]) as gathered:
        (figure,) = promise_report(gathered.conditions[0]).figures
    (axes,) = figure.draw().axes
    assert [line.get_ydata()[0] for line in axes.lines[2:3]] == [LEVELS.error]
    assert len(axes.lines) == 2 + 1 + 2
    assert "D-TPT" in figure.alternative


def test_runs_without_probabilities_and_small_ones_have_no_such_section(tmp_path):
    bare = write_probabilities(tmp_path / "bare", samples=40, keep=False)
    small = write_probabilities(tmp_path / "small", samples=12)
    for folder in (bare, small):
        with gather([folder]) as gathered:
            assert promise_report(gathered.conditions[0]).tables == ()
    assert 'id="promises"' not in write_report([bare], tmp_path / "report").page.read_text()
