"""Draw the README's figure: `python docs/readme_figure.py RUN docs/reliability-line.svg`.

RUN is the run that docs/findings.md names.
"""

import sys
from pathlib import Path

from dtpt.report import Variant, load_runs
from dtpt.report.facts import Resampling, compare_conditions
from dtpt.report.figures.reliability import pooled_reliability

METHODS = (
    Variant("zero-shot"),
    Variant("tpt"),
    Variant("d-tpt", 1e6),
    Variant("mean-views"),
)


def draw(run: str, target: str) -> None:
    """Write the reliability of four methods on all line-art images; print the alternative text."""
    with load_runs([run]) as loaded:
        (condition,) = loaded.conditions
    ((_, line),) = compare_conditions([condition], Resampling(resamples=20))
    figure = pooled_reliability(condition, line, key="readme", variants=METHODS)
    Path(target).write_text(figure.svg, "utf-8")
    print(figure.alternative)


if __name__ == "__main__":
    draw(sys.argv[1], sys.argv[2])
