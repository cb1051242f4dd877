"""The public classifier: an image in, a calibrated prediction out.

`classifier` puts model, prompts, views and method together; `answers` is what it says, `notebook`
how that looks in a notebook; `batches` answers many pictures in several processes; `saving` writes
a classifier to a folder and reads it back.

>>> import dtpt
>>> from dtpt.data.openmoji import OpenMojiRef
>>> model = dtpt.load_model("pocket")
>>> classifier = dtpt.Classifier(model, ["bicycle", "tropical drink"], method="d-tpt", views=16)
>>> classifier.predict(OpenMojiRef("1F6B2").open()).label
'bicycle'
"""

from dtpt.prediction.answers import Answer, KeptViews, Prediction
from dtpt.prediction.classifier import Classifier

__all__ = ["Answer", "Classifier", "KeptViews", "Prediction"]
