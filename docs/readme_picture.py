"""Draw the README's picture: `python docs/readme_picture.py RUN docs/reliability-line.svg`.

RUN is the run that docs/findings.md names.
"""

import sys
from pathlib import Path

from dtpt.report import Contender, gather
from dtpt.report.comparison import Resampling, compare_families
from dtpt.report.figures.pooled_reliability import pooled_reliability

METHODS = (
    Contender("zero-shot"),
    Contender("tpt"),
    Contender("d-tpt", 1e6),
    Contender("mean-views"),
)


def draw(run: str, target: str) -> None:
    """Write the reliability of four methods on all line-art pictures of a run; print its words."""
    with gather([run]) as gathered:
        _, line = compare_families(gathered.conditions[0], Resampling(resamples=20))
    figure = pooled_reliability(line, key="readme", contenders=METHODS)
    Path(target).write_text(figure.svg, "utf-8")
    print(figure.alternative)


if __name__ == "__main__":
    draw(sys.argv[1], sys.argv[2])
