"""Calibrated test-time prompt tuning for CLIP-like vision-language models.

The names below are the public API; each is imported when it is first used, so that `import dtpt`
and the command line's help stay fast and load no torch.
"""

import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

logging.getLogger("dtpt").addHandler(logging.NullHandler())  # who wants to read us adds another

# Torch's threads sleep while they wait for each other, if torch is loaded after us: those that spin
# instead take the cores from the ones that they wait for, as soon as a machine is busy.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from dtpt.clip.loading import load_model as load_model
    from dtpt.clip.loading.features import FeatureModel as FeatureModel
    from dtpt.clip.loading.hub import push_to_hub as push_to_hub
    from dtpt.clip.loading.memory import from_open_clip as from_open_clip
    from dtpt.clip.loading.memory import from_transformers as from_transformers
    from dtpt.clip.model import Clip as Clip
    from dtpt.clip.prompts import PromptSet as PromptSet
    from dtpt.data import Dataset as Dataset
    from dtpt.data import load_dataset as load_dataset
    from dtpt.errors import DtptError as DtptError
    from dtpt.methods import METHODS as METHODS
    from dtpt.methods import Method as Method
    from dtpt.methods import regularised as regularised
    from dtpt.methods import resolve_method as resolve_method
    from dtpt.metrics import calibration_report as calibration_report
    from dtpt.prediction import Classifier as Classifier
    from dtpt.prediction import Prediction as Prediction
    from dtpt.prediction import Predictor as Predictor
    from dtpt.report.compare import compare as compare
    from dtpt.runs import Run as Run
    from dtpt.runs.evaluation import evaluate as evaluate
    from dtpt.runs.evaluation import load_run as load_run
    from dtpt.runs.packing import write_pack as write_pack
    from dtpt.tuning import Tuner as Tuner
    from dtpt.tuning import TuningSettings as TuningSettings
    from dtpt.views import ViewRecipe as ViewRecipe

_NAMES = {
    "dtpt.clip.loading": "load_model",
    "dtpt.clip.loading.features": "FeatureModel",
    "dtpt.clip.loading.hub": "push_to_hub",
    "dtpt.clip.loading.memory": "from_open_clip from_transformers",
    "dtpt.clip.model": "Clip",
    "dtpt.clip.prompts": "PromptSet",
    "dtpt.data": "Dataset load_dataset",
    "dtpt.errors": "DtptError",
    "dtpt.methods": "METHODS Method regularised resolve_method",
    "dtpt.metrics": "calibration_report",
    "dtpt.prediction": "Classifier Prediction Predictor",
    "dtpt.report.compare": "compare",
    "dtpt.runs": "Run",
    "dtpt.runs.evaluation": "evaluate load_run",
    "dtpt.runs.packing": "write_pack",
    "dtpt.tuning": "Tuner TuningSettings",
    "dtpt.views": "ViewRecipe",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'dtpt' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
