"""From the engine's outcome to what is stored of it."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dtpt.errors import RunError
from dtpt.runs.probabilities import pack
from dtpt.runs.store import Answer

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.tuning import Outcome

TOP = 5


def to_answer(outcome: "Outcome", label: int, *, keep_all: bool = True) -> Answer:
    """Reduce the (C,) probabilities to a row; arithmetic in float64, ties to the first class.

    Args:
        outcome: What the engine says.
        label: The true class.
        keep_all: Whether the row holds all probabilities beside the five largest.
    """
    p = _numbers(outcome.probabilities)
    zero_shot = softmax(_numbers(outcome.zero_shot_logits))
    if not np.isfinite(p).all():
        raise RunError(
            f"{outcome.method.name} with lambda {outcome.method.lambda_} gave probabilities that "
            "are not finite: lower the learning rate or lambda."
        )
    order = np.argsort(-p, kind="stable")[:TOP]
    positive = p[p > 0]
    return Answer(
        prediction=int(order[0]),
        confidence=float(p[order[0]]),
        entropy=float(max(0.0, -(positive * np.log(positive)).sum())),
        p_label=float(p[label]),
        sum_squares=float((p * p).sum()),
        top5=tuple((int(k), float(p[k])) for k in order),
        zero_shot_prediction=int(zero_shot.argmax()),
        zero_shot_confidence=float(zero_shot.max()),
        log_probabilities=pack(log_softmax(_numbers(outcome.logits))) if keep_all else None,
        weight=outcome.lambda_,
    )


def softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return exp(logits) divided by their sum, without overflow."""
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def log_softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the logarithm of `softmax`, also where that is too small for a float."""
    shifted = logits - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _numbers(tensor: "Tensor") -> npt.NDArray[np.float64]:
    return np.asarray(tensor.detach().cpu().double().numpy())
