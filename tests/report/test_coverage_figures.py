"""The figure of coverage checks shows the numbers it was given."""

import numpy as np
import pytest

from dtpt.calibration import SplitCheck, Targets
from dtpt.report.figures.coverage import coverage_figure


def splits(coverage, error, accepted):
    one = np.full(10, 1.0)
    spread = coverage + np.linspace(-0.02, 0.02, 10)
    return SplitCheck(Targets(), spread, one, one, one, error * one, error * one, accepted * one)


def test_marks_lie_at_means_and_lines_at_the_targets():
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


def test_sets_of_one_method_stand_beside_each_other():
    checked = [(("tpt", None), splits(0.9, 0.01, share)) for share in (0.2, 0.3)]
    _, (_, _, right) = coverage_figure(checked)
    heights = [float(line.get_ydata()[0]) for line in right.lines]
    assert heights == pytest.approx([-0.125, 0.125])
