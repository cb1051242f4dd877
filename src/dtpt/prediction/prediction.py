"""The prediction for one image, as data, as text and in a notebook."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

CLASSES_SHOWN = 5  # in a notebook

_TABLE = "border-collapse:collapse;font-size:13px"
_NAME = "text-align:left;padding:1px 8px 1px 0"
_TRACK = "width:180px;padding:1px 8px 1px 0"
_NUMBER = "text-align:right;padding:1px 0"


@dataclass(frozen=True, eq=False)
class KeptViews:
    """The views that an image is tuned on: its most confident ones."""

    indices: tuple[int, ...]  # by falling confidence; 0 is the original
    sheet: bytes  # thumbnails in rows of eight, a JPEG


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What a method predicts for one image."""

    label: str  # of the most probable class, as the caller wrote it
    index: int  # of that class
    confidence: float  # its probability
    entropy: float  # of the whole distribution, in nats
    probabilities: npt.NDArray[np.float32]  # (C,) in the order of `classes`
    classes: tuple[str, ...]
    method: str = "zero-shot"  # with modifiers
    lambda_: float | None = None  # of the regulariser; None where there is none
    without_tuning: "Prediction | None" = None  # None: this is it
    warning: str | None = None  # for people, such as that the image is out of distribution
    calibrated_confidence: float | None = None  # None without a calibration, as the next two
    prediction_set: tuple[str, ...] | None = None  # conformal; the most probable class first
    abstained: bool | None = None  # whether the confidence is below the calibrated threshold
    kept: KeptViews | None = None  # the views that were tuned on, if `keep_views=True`

    @classmethod
    def read(
        cls,
        probabilities: Tensor,
        classes: Sequence[str],
        *,
        method: str = "zero-shot",
        lambda_: float | None = None,
        without_tuning: "Prediction | None" = None,
    ) -> "Prediction":
        """Read a distribution (C,) over classes at its maximum.

        Example:
            >>> Prediction.read(torch.tensor([0.25, 0.75]), ["cat", "dog"])
            <Prediction 'dog' 75.0 % by zero-shot>
        """
        index = int(probabilities.argmax())
        logs = torch.xlogy(probabilities, probabilities)
        return cls(
            label=classes[index],
            index=index,
            confidence=float(probabilities[index]),
            entropy=float(-logs.sum()),
            probabilities=probabilities.float().cpu().numpy(),
            classes=tuple(classes),
            method=method,
            lambda_=lambda_,
            without_tuning=without_tuning,
        )

    @property
    def zero_shot(self) -> "Prediction":
        """The same model's prediction without tuning."""
        return self if self.without_tuning is None else self.without_tuning

    def top(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the most probable classes with their probabilities, the first one first.

        Example:
            >>> Prediction.read(torch.tensor([0.25, 0.5, 0.25]), ["cat", "dog", "cow"]).top(2)
            [('dog', 0.5), ('cat', 0.25)]
        """
        return [(self.classes[k], float(self.probabilities[k])) for k in self._most_probable(count)]

    def _most_probable(self, count: int) -> list[int]:
        order = np.argsort(-self.probabilities, kind="stable")  # equal ones in class order
        return [int(index) for index in order[:count]]

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain data for JSON or a table; numbers are fractions.

        Probabilities come by class name, or as a list where two classes have one name. What a
        calibration adds is in it only where there is one.

        Example:
            >>> Prediction.read(torch.tensor([0.25, 0.75]), ["cat", "dog"]).to_dict()["zero_shot"]
            {'label': 'dog', 'confidence': 0.75}
        """
        values = self.probabilities.tolist()
        is_unique = len(set(self.classes)) == len(self.classes)
        calibrated = {}
        if self.prediction_set is not None:
            calibrated = {
                "calibrated_confidence": self.calibrated_confidence,
                "abstained": self.abstained,
                "prediction_set": list(self.prediction_set),
            }
        zero_shot = self.zero_shot
        return {
            "label": self.label,
            "confidence": self.confidence,
            "entropy": self.entropy,
            "method": self.method,
            "lambda": self.lambda_,
            "zero_shot": {"label": zero_shot.label, "confidence": zero_shot.confidence},
            "warning": self.warning,
            **calibrated,
            "probabilities": dict(zip(self.classes, values, strict=True)) if is_unique else values,
        }

    def __repr__(self) -> str:
        beside = "" if self.without_tuning is None else f", zero-shot {_brief(self.without_tuning)}"
        return f"<Prediction {_brief(self)} by {self.method}{beside}>"

    def _repr_html_(self) -> str:
        """Show the most probable classes in a notebook, without scripts or outside resources."""
        head = f"<tr><th></th><th></th><th>{escape(self.method)}</th><th>&nbsp;zero-shot</th></tr>"
        shown = self._most_probable(CLASSES_SHOWN)
        rows = "".join(self._html_row(k, is_first=k == shown[0]) for k in shown)
        parts = [f'<table style="{_TABLE}">{head}{rows}</table>']
        if self.warning:
            parts.append(f"<p>{escape(self.warning)}</p>")
        if self.kept is not None:
            code = base64.b64encode(self.kept.sheet).decode("ascii")
            parts.append(
                "<p>Tuned on these views:</p>"
                f'<img alt="The views that were tuned on" src="data:image/jpeg;base64,{code}">'
            )
        return f"<div>{''.join(parts)}</div>"

    def _html_row(self, index: int, *, is_first: bool) -> str:
        p, before = (float(one.probabilities[index]) for one in (self, self.zero_shot))
        weight = "bold" if is_first else "normal"
        return (
            f'<tr style="font-weight:{weight}"><td style="{_NAME}">{escape(self.classes[index])}'
            f'</td><td style="{_TRACK}">{_stripe(p, height=8, colour="#2864b4")}'
            f"{_stripe(before, height=3, colour='#999')}</td>"
            f'<td style="{_NUMBER}">{100 * p:.1f} %</td>'
            f'<td style="{_NUMBER}">{100 * before:.1f} %</td></tr>'
        )


def _brief(prediction: Prediction) -> str:
    return f"{prediction.label!r} {100 * prediction.confidence:.1f} %"


def _stripe(fraction: float, *, height: int, colour: str) -> str:
    return f'<div style="width:{100 * fraction:.1f}%;height:{height}px;background:{colour}"></div>'
