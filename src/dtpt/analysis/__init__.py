"""What the paper computes beside its tables; the records here need no torch.

>>> from dtpt.analysis import load_analysis                     # doctest: +SKIP
>>> load_analysis("runs/analysis").datasets[0].text.dominant    # doctest: +SKIP
"""

from dtpt.analysis.feature_results import (
    DimensionProfile,
    DimensionValue,
    DominantDimension,
    GapShare,
    ModalityAnalysis,
    ModalityGap,
    Sensitivity,
)
from dtpt.analysis.files import load_analysis, save_analysis, to_json
from dtpt.analysis.results import (
    Analysis,
    DatasetAnalysis,
    DispersionPoint,
    DispersionScatter,
    GeometryState,
    ImageDependence,
    MethodGeometry,
    MethodScore,
    Movement,
    ParetoPoint,
    StaticComparison,
    WithoutDominant,
)

__all__ = [
    "Analysis",
    "DatasetAnalysis",
    "DimensionProfile",
    "DimensionValue",
    "DispersionPoint",
    "DispersionScatter",
    "DominantDimension",
    "GapShare",
    "GeometryState",
    "ImageDependence",
    "MethodGeometry",
    "MethodScore",
    "ModalityAnalysis",
    "ModalityGap",
    "Movement",
    "ParetoPoint",
    "Sensitivity",
    "StaticComparison",
    "WithoutDominant",
    "load_analysis",
    "save_analysis",
    "to_json",
]
