"""Predictions: an image in, calibrated probabilities out.

predictor.py    the one predictor: model, class prompts, view recipe, settings
rendering.py    image → views;  features.py: views → features;  cache.py: features on disk
classifier.py   the public classifier, one image or many
prediction.py   what it returns;  saving.py: a classifier in a folder
ood.py          warning about images that differ from the training data
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtpt.prediction.classifier import Classifier as Classifier
    from dtpt.prediction.prediction import KeptViews as KeptViews
    from dtpt.prediction.prediction import Prediction as Prediction
    from dtpt.prediction.predictor import Predictor as Predictor

_HOMES = {
    "Classifier": "classifier",
    "KeptViews": "prediction",
    "Prediction": "prediction",
    "Predictor": "predictor",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:  # processes that only render load no torch
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"dtpt.prediction.{_HOMES[name]}"), name)
