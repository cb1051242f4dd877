"""What the paper computes beside its tables, and studies that go beyond it.

    paper.py        one pass over the images: dominant.py, geometry.py, sensitivity.py,
                    dependence.py, scores.py; tables.py prints it
    study.py        what studies share: basis.py, controls.py, regularisers.py, views.py

>>> from dtpt.analysis import load_analysis                     # doctest: +SKIP
>>> load_analysis("runs/analysis").datasets[0].text.dominant    # doctest: +SKIP

torch is imported when something is computed; options, records and files need none.
"""

from dtpt.analysis.files import to_json
from dtpt.analysis.paper import (
    Analysis,
    DatasetAnalysis,
    analyse,
    load_analysis,
    save_analysis,
)
from dtpt.analysis.study import Study, StudyFamily, StudyRow

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
