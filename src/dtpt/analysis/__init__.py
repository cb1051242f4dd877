"""What the paper computes beside its tables, and studies that go beyond it.

    paper.py        one pass over the images: features.py, geometry.py, scores.py; tables.py
    study.py        what studies share: basis.py, controls.py, regularisers.py, views.py
    bases.py        other bases of the joint space, for basis.py

>>> from dtpt.analysis import load_analysis                     # doctest: +SKIP
>>> load_analysis("runs/analysis").datasets[0].text.dominant    # doctest: +SKIP

torch is imported when something is computed; options, records and files need none.
"""

from dtpt.analysis.paper import (
    Analysis,
    DatasetAnalysis,
    analyse,
    load_analysis,
    save_analysis,
)
from dtpt.analysis.study import Study, StudyFamily, StudyRow, to_json

__all__ = [
    "Analysis",
    "DatasetAnalysis",
    "Study",
    "StudyFamily",
    "StudyRow",
    "analyse",
    "load_analysis",
    "save_analysis",
    "to_json",
]
