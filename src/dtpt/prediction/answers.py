"""What a classifier says about one image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dtpt.prediction.notebook import SHOWN, Bar, as_html


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """A distribution over the classes, read at its maximum.

    Attributes:
        label: name of the most probable class, as the caller wrote it.
        index: its position in the class list.
        confidence: its probability, between 0 and 1.
        entropy: of the whole distribution, in nats.
        probabilities: (C,) float32, summing to one.
        classes: the class names, in the order of the probabilities.
    """

    label: str
    index: int
    confidence: float
    entropy: float
    probabilities: npt.NDArray[np.float32]
    classes: tuple[str, ...]

    @classmethod
    def read(cls, probabilities: Tensor, classes: Sequence[str]) -> "Answer":
        """Read a distribution (C,) over classes at its maximum.

        Example:
            >>> Answer.read(torch.tensor([0.25, 0.75]), ["cat", "dog"])
            <Answer 'dog' 75.0 %>
        """
        index = int(probabilities.argmax())
        logs = torch.xlogy(probabilities, probabilities)
        return Answer(
            label=classes[index],
            index=index,
            confidence=float(probabilities[index]),
            entropy=float(-logs.sum()),
            probabilities=probabilities.float().cpu().numpy(),
            classes=tuple(classes),
        )

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the most probable classes with their probabilities, the first one first.

        Example:
            >>> Answer.read(torch.tensor([0.25, 0.5, 0.25]), ["cat", "dog", "cow"]).top(2)
            [('dog', 0.5), ('cat', 0.25)]
        """
        found = self._most_probable(count)
        return [(self.classes[index], float(self.probabilities[index])) for index in found]

    def _most_probable(self, count: int) -> list[int]:
        order = np.argsort(-self.probabilities, kind="stable")  # equal ones in class order
        return [int(index) for index in order[:count]]

    def __repr__(self) -> str:
        return f"<Answer {_sure(self)}>"


@dataclass(frozen=True, eq=False)
class KeptViews:
    """The views that a picture is tuned on: its most confident ones.

    Attributes:
        indices: which of the views, by falling confidence; 0 is the original.
        sheet: they as thumbnails in rows of eight, a JPEG.
    """

    indices: tuple[int, ...]
    sheet: bytes


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Answer):
    """What a method says about one image, with the zero-shot answer beside it.

    A notebook shows it with bars and, where they were asked for, the kept views.

    Attributes:
        method: name of the method, modifiers included.
        lambda_: weight of its regulariser; None where it has none.
        zero_shot: the same model's answer without tuning.
        remark: a warning for people, such as that the picture is not of the model's kind.
        calibrated_confidence: after temperature scaling; None without a calibration.
        prediction_set: classes of the conformal prediction set, the most probable first.
        abstained: whether the confidence is below the calibrated threshold.
        kept: the views that were tuned on; None unless `predict(..., keep_views=True)`.
    """

    method: str
    lambda_: float | None
    zero_shot: Answer
    remark: str | None = None
    calibrated_confidence: float | None = None
    prediction_set: tuple[str, ...] | None = None
    abstained: bool | None = None
    kept: KeptViews | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain data for JSON or a table; numbers are fractions.

        Probabilities come by class name, or as a list where two classes have one name. What a
        calibration adds is in it only where there is one.

        Example:
            >>> answer = Answer.read(torch.tensor([0.25, 0.75]), ["cat", "dog"])
            >>> made = Prediction(**vars(answer), method="tpt", lambda_=None, zero_shot=answer)
            >>> made.to_dict()["probabilities"], made.to_dict()["zero_shot"]
            ({'cat': 0.25, 'dog': 0.75}, {'label': 'dog', 'confidence': 0.75})
        """
        numbers = self.probabilities.tolist()
        unique = len(set(self.classes)) == len(self.classes)
        return {
            "label": self.label,
            "confidence": self.confidence,
            "entropy": self.entropy,
            "method": self.method,
            "lambda": self.lambda_,
            "zero_shot": {
                "label": self.zero_shot.label,
                "confidence": self.zero_shot.confidence,
            },
            "remark": self.remark,
            **self._calibrated(),
            "probabilities": dict(zip(self.classes, numbers, strict=True)) if unique else numbers,
        }

    def _calibrated(self) -> dict[str, Any]:
        if self.prediction_set is None:
            return {}
        return {
            "calibrated_confidence": self.calibrated_confidence,
            "abstained": self.abstained,
            "prediction_set": list(self.prediction_set),
        }

    def __repr__(self) -> str:
        return f"<Prediction {_sure(self)} by {self.method}, zero-shot {_sure(self.zero_shot)}>"

    def _repr_html_(self) -> str:
        """Show the most probable classes in a notebook."""
        bars = [
            Bar(
                self.classes[i],
                float(self.probabilities[i]),
                float(self.zero_shot.probabilities[i]),
            )
            for i in self._most_probable(SHOWN)
        ]
        sheet = None if self.kept is None else self.kept.sheet
        return as_html(bars, method=self.method, remark=self.remark, sheet=sheet)


def _sure(answer: Answer) -> str:
    return f"{answer.label!r} {100 * answer.confidence:.1f} %"
