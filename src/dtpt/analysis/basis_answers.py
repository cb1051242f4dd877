"""Answers in several bases of the joint space, picture by picture.

Both towers' outputs are multiplied by one orthogonal matrix: the text tower's projection in a copy
of the model, the image features as they come. Everything else is computed anew in every basis.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dtpt.analysis.basis import Basis, common_bases, dominant_share, rotated
from dtpt.data import Sample
from dtpt.methods import ResolvedMethod, resolve_method
from dtpt.runs.orders import WorkOrder
from dtpt.runs.pipeline import as_tensor
from dtpt.runs.replica import Replica
from dtpt.runs.workers import Job
from dtpt.tuning import Episode, Outcome, Tuner
from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES
from dtpt.tuning.engine import fraction_won

if TYPE_CHECKING:
    from dtpt.clip.model import Clip

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BasisOrder:
    """What a process needs to know to answer some pictures of one data set in all bases.

    Attributes:
        work: model, prompts and settings of the one data set; its methods are those that no basis
            should change, followed by D-TPT with each weight.
        samples: the pictures.
        seed: of the views.
        image_mean: (D,) mean image feature, from which the gap is measured.
        weights: how many of the methods are D-TPT's.
    """

    work: WorkOrder
    samples: tuple[Sample, ...]
    seed: int
    image_mean: Floats
    weights: int

    @property
    def methods(self) -> tuple[ResolvedMethod, ...]:
        """All methods, D-TPT's last."""
        return self.work.tasks[0].methods


@dataclass(frozen=True)
class BasisAnswers:
    """What n pictures gave in B bases with M methods, the last L of which are D-TPT's.

    Attributes:
        samples: (n,) ids.
        confidence: (n, B, M).
        correct: (n, B, M).
        p_label: (n, B, M) probability of the label.
        sum_squares: (n, B, M) sum of the squared probabilities.
        moved: (n, B, M) largest change of a probability from the model's own basis.
        same: (n, B, M) whether the answer is that of the model's own basis.
        signs_won: (n, B, L) share of the first step's signs that DEM wins.
        dominant: (B,) share of the text features' energy in their largest dimension.
        gradient: (B,) norm of DEM's gradient.
    """

    samples: npt.NDArray[np.str_]
    confidence: Floats
    correct: npt.NDArray[np.bool_]
    p_label: Floats
    sum_squares: Floats
    moved: Floats
    same: npt.NDArray[np.bool_]
    signs_won: Floats
    dominant: Floats
    gradient: Floats

    @classmethod
    def joined(cls, parts: Sequence["BasisAnswers"]) -> "BasisAnswers":
        """Put the pictures of several parts together, ordered by id."""
        order = np.argsort(np.concatenate([part.samples for part in parts]), kind="stable")
        columns = {}
        for field in fields(cls):
            values = [getattr(part, field.name) for part in parts]
            is_per_picture = field.name not in ("dominant", "gradient")
            columns[field.name] = np.concatenate(values)[order] if is_per_picture else values[0]
        return cls(**columns)


def answer_pictures(
    order: BasisOrder, *, replica: Replica, advance: Callable[[], None]
) -> BasisAnswers:
    """Answer some pictures in every basis; those that cannot be read are left out.

    Args:
        order: pictures and methods.
        replica: the model, and where features come from.
        advance: called after every picture.
    """
    tuners = RotatedTuners(replica.model, replica.tuner(0), order=order)
    recipe = order.work.tasks[0].recipe
    found: list[tuple[str, _Picture]] = []
    for seen in replica.pipeline.stream(Job(one, order.seed, recipe) for one in order.samples):
        if seen.features is not None:
            views = as_tensor(seen.features, replica.model.device)
            sample = seen.job.sample
            found.append((sample.id, tuners.answer(views, sample.label)))
        advance()
    return tuners.collected(found)


@dataclass(frozen=True)
class _Picture:
    """What one picture gave: arrays as in `BasisAnswers`, without the first axis."""

    confidence: Floats
    correct: npt.NDArray[np.bool_]
    p_label: Floats
    sum_squares: Floats
    moved: Floats
    same: npt.NDArray[np.bool_]
    signs_won: Floats


class RotatedTuners:
    """One tuner for every basis.

    Args:
        model: in its own basis.
        tuner: of the class list.
        order: methods, and the mean image feature.
    """

    def __init__(self, model: "Clip", tuner: Tuner, *, order: BasisOrder) -> None:
        mean = torch.from_numpy(order.image_mean)
        self.bases = common_bases(tuner.initial_text_features, mean)
        self._methods, self._weights = order.methods, order.weights
        budget = DEFAULT_BUDGET_BYTES // len(self.bases)
        self._tuners = [
            Tuner(
                rotated(model, basis.rotation),
                tuner.prompts,
                settings=tuner.settings,
                budget_bytes=budget,
            )
            for basis in self.bases
        ]

    def answer(self, views: Tensor, label: int) -> _Picture:
        """Answer one picture with (N, D) views in every basis."""
        outcomes, signs = [], []
        for basis, tuner in zip(self.bases, self._tuners, strict=True):
            turned = _turned(views, basis)
            outcomes.append(tuner.predict(turned, self._methods))
            signs.append(self._signs_won(tuner, turned))
        probabilities = np.stack([_stacked(row) for row in outcomes])  # (B, M, C)
        best = probabilities.argmax(axis=-1)  # (B, M)
        return _Picture(
            confidence=probabilities.max(axis=-1),
            correct=best == label,
            p_label=probabilities[..., label],
            sum_squares=(probabilities**2).sum(axis=-1),
            moved=np.abs(probabilities - probabilities[:1]).max(axis=-1),
            same=best == best[:1],
            signs_won=np.array(signs),
        )

    def _signs_won(self, tuner: Tuner, views: Tensor) -> list[float]:
        """Return the share of signs that DEM wins with each weight."""
        of_dem = self._methods[len(self._methods) - self._weights :]
        thresholds = Episode(tuner, views).thresholds(of_dem[0])
        return [fraction_won(thresholds, method.lambda_ or 0.0) for method in of_dem]

    def collected(self, found: Sequence[tuple[str, _Picture]]) -> BasisAnswers:
        """Put the answers to all pictures together."""
        dem = resolve_method("d-tpt").method
        gradients = [float(tuner.regulariser_gradient(dem).norm()) for tuner in self._tuners]
        shares = [dominant_share(tuner.initial_text_features) for tuner in self._tuners]
        columns = {field.name: self._column(field.name, found) for field in fields(_Picture)}
        return BasisAnswers(
            samples=np.array([name for name, _ in found], dtype=np.str_),
            **columns,
            dominant=np.array(shares),
            gradient=np.array(gradients),
        )

    def _column(self, name: str, found: Sequence[tuple[str, _Picture]]) -> npt.NDArray[Any]:
        """Return one array of all pictures, also where there are none."""
        last = self._weights if name == "signs_won" else len(self._methods)
        kind = bool if name in ("correct", "same") else float
        values = np.empty((len(found), len(self.bases), last), dtype=kind)
        for row, (_, picture) in zip(values, found, strict=True):
            row[:] = getattr(picture, name)
        return values


def _turned(views: Tensor, basis: Basis) -> Tensor:
    """Return (N, D) features in another basis, multiplied in double precision on the CPU."""
    return (views.cpu().double() @ basis.rotation).to(views)


def _stacked(outcomes: Sequence[Outcome]) -> Floats:
    """Return the probabilities of all methods, (M, C)."""
    found: Floats = torch.stack([one.probabilities for one in outcomes]).cpu().double().numpy()
    return found
