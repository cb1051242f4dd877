"""One pass over the images of a data set that collects what every analysis needs.

Memory is bounded: sums over D dimensions, two numbers per image and method, and the features of a
limited number of images (the caller chooses them by id, so that order plays no part).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from dtpt.analysis.dominant import RunningProfile
from dtpt.analysis.geometry import MeanMovement, MeanState, geometry_state, split_movement
from dtpt.analysis.image_dependence import Predictions, SignTally
from dtpt.analysis.results import MethodGeometry, MethodScore
from dtpt.analysis.scores import score_method
from dtpt.errors import MetricError
from dtpt.methods import ResolvedMethod
from dtpt.tuning import Episode, Outcome, Tuner

# Sensitivity costs images · C · D exponentials per chart; this many take about 20 s on one core.
KEPT_PRODUCTS = 2 * 10**8
FEWEST_KEPT, MOST_KEPT = 256, 2048


def kept_images(classes: int, dimensions: int) -> int:
    """Say how many images to keep for quantiles and sensitivity: fewer for long class lists."""
    return max(FEWEST_KEPT, min(MOST_KEPT, KEPT_PRODUCTS // (classes * dimensions)))


class GeometryTotals:
    """Where one method moves the text features, summed over images.

    Args:
        initial: (C, D) text features before tuning.
        logit_scale: τ.
    """

    def __init__(self, initial: Tensor, logit_scale: float) -> None:
        self._initial = initial
        self._logit_scale = logit_scale
        self._before, self._after = MeanState(), MeanState()
        self._every, self._top, self._others = MeanMovement(), MeanMovement(), MeanMovement()
        self._angle = 0.0

    def add(self, tuned: Tensor, image: Tensor, *, label: int) -> None:
        """Count one image (D,) of class `label` with its tuned text features (C, D)."""
        cosines = self._initial @ image  # (C,)
        top = int(cosines.argmax())
        for state, text in ((self._before, self._initial), (self._after, tuned)):
            state.add(
                geometry_state(text, image, top=top, label=label, logit_scale=self._logit_scale)
            )
        parts = split_movement(self._initial, tuned, image)
        is_top = cosines.new_zeros(len(cosines)).bool().cpu()
        is_top[top] = True
        self._every.add(parts)
        self._top.add(parts, is_top)
        self._others.add(parts, ~is_top)
        self._angle += float(cosines.cpu().double().clamp(-1, 1).arccos().mean())

    def result(self, method: ResolvedMethod) -> MethodGeometry:
        """Return the means over all images."""
        every, top = self._every.mean(), self._top.mean()
        if every is None or top is None:
            raise MetricError(f"There are no images on which {method.name} could be analysed.")
        return MethodGeometry(
            label=method.label,
            method=method.name,
            lambda_=method.lambda_,
            images=self._before.count,
            angle=self._angle / self._before.count,
            before=self._before.mean(),
            after=self._after.mean(),
            every_class=every,
            top_class=top,
            other_classes=self._others.mean(),
        )


class MethodTrack:
    """Everything that is kept about one method."""

    def __init__(self, method: ResolvedMethod, tuner: Tuner) -> None:
        self.method = method
        self.label = method.label
        self.answers: dict[str, tuple[int, float]] = {}
        self.geometry: GeometryTotals | None = None
        self.tally: SignTally | None = None
        if method.modifiers:
            return  # tuned as the method without modifiers
        self.geometry = GeometryTotals(tuner.initial_text_features, tuner.logit_scale)
        if method.method.tunes_on_views:
            regularised = method.method.is_regularised
            gradient = tuner.regulariser_gradient(method.method) if regularised else None
            self.tally = SignTally(gradient, method.lambda_ or 0.0)

    def add(self, sample_id: str, outcome: Outcome) -> None:
        """Keep the prediction for one image."""
        best = int(outcome.probabilities.argmax())
        self.answers[sample_id] = (best, float(outcome.probabilities[best]))

    def predictions(self) -> Predictions:
        """Return the predictions, ordered by sample id."""
        rows = [self.answers[name] for name in sorted(self.answers)]
        return Predictions(
            np.array([row[0] for row in rows], dtype=np.int64),
            np.array([row[1] for row in rows], dtype=np.float64),
        )

    def score(self, labels: npt.NDArray[np.int64]) -> MethodScore:
        """Score the predictions against (n,) labels ordered by sample id."""
        found = self.predictions()
        return score_method(
            self.method.name,
            self.method.lambda_,
            confidence=found.confidence,
            correct=np.equal(found.classes, labels),
        )


class Collector:
    """What is known about one model, class list and list of methods after some images.

    Args:
        tuner: The engine with the class prompts.
        methods: Run on every image.
    """

    def __init__(self, tuner: Tuner, methods: Sequence[ResolvedMethod]) -> None:
        self.tuner = tuner
        self.text = tuner.initial_text_features  # (C, D)
        self.tracks = [MethodTrack(method, tuner) for method in methods]
        self.profile = RunningProfile(self.text.shape[1])
        self._labels: dict[str, int] = {}
        self._matched = 0.0

    def add(self, sample_id: str, label: int, *, views: Tensor, keep: bool = True) -> None:
        """Run all methods on one image.

        Args:
            sample_id: Unique name of the image.
            label: Its true class.
            views: (N, D) features; row 0 is the original view.
            keep: Keep the feature for quantiles and sensitivity.
        """
        outcomes = self.tuner.predict(views, [track.method for track in self.tracks])
        image = views[0].to(self.text)
        self._labels[sample_id] = label
        self.profile.add(image[None].cpu().numpy(), keep=keep)
        self._matched += float(image @ self.text[label])
        for track, outcome in zip(self.tracks, outcomes, strict=True):
            track.add(sample_id, outcome)
            if track.geometry is not None:
                track.geometry.add(outcome.text_features, image, label=label)
        self._count_signs(views)

    def _count_signs(self, views: Tensor) -> None:
        episode = Episode(self.tuner, views)
        for track in self.tracks:
            if track.tally is not None:
                track.tally.add(episode.entropy_gradient(track.method.method))

    @property
    def images(self) -> int:
        """Number of images so far."""
        return len(self._labels)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """(n,) true classes, ordered by sample id."""
        return np.array([self._labels[name] for name in sorted(self._labels)], dtype=np.int64)

    @property
    def matched_cosine(self) -> float:
        """Mean cosine of an image and the text of its true class, before tuning."""
        return self._matched / self.images
