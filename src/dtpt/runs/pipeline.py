"""From jobs to view features: the cache first, then views and the image tower.

The features of a picture's views do not depend on what else is computed: its views run in fixed
batches of their own, because a tower's numbers change in the last bits with the size of a batch.
Features enter the engine as fresh tensors whether they come from the tower or the cache, so that
memory alignment cannot make a difference either.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dtpt.errors import ImageError, RunError
from dtpt.runs.features import FeatureCache, Features, GroupKey
from dtpt.runs.workers import Job, Pixels, Rendered, Renderer

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.views import ViewRecipe

CACHES_OPEN = 4


@dataclass(frozen=True)
class Seen:
    """The features of a job, or why there are none.

    Attributes:
        job: With its image key ("" when the image could not even be read).
        features: (N, D) float32 on the CPU, row 0 the original view.
        failure: Why the image cannot be read.
        death: How a process ended that worked on it; it may succeed in another one.
        is_new: Whether the image tower was asked.
    """

    job: Job
    features: Features | None = None
    failure: str = ""
    death: str = ""
    is_new: bool = False


class FeatureCaches:
    """The groups of the feature cache that one model needs, opened as they are met.

    Args:
        model: Whose features they are.
        threads: torch threads, on which features depend in their last bits.
    """

    def __init__(self, model: "Clip", *, threads: int) -> None:
        self._model = model
        device = model.device.type
        self._device = f"{device}-{threads}" if device == "cpu" else device
        self._open: OrderedDict[GroupKey, FeatureCache] = OrderedDict()

    def of(self, recipe: "ViewRecipe", seed: int) -> FeatureCache:
        """Return the group of some views; the number of views does not matter."""
        key = GroupKey(
            model=self._model.fingerprint,
            views=without_count(recipe),
            seed=seed,
            device=self._device,
            precision=self._model.precision,
        )
        if key not in self._open:
            self._open[key] = FeatureCache(key)
        self._open.move_to_end(key)
        while len(self._open) > CACHES_OPEN:
            self._open.popitem(last=False)[1].flush()
        return self._open[key]

    def flush(self) -> None:
        """Write what is waiting."""
        for cache in self._open.values():
            cache.flush()


def without_count(recipe: "ViewRecipe") -> str:
    """Return a recipe's fingerprint without its number of views, on which view k does not depend.

    Example:
        >>> from dtpt.views import ViewRecipe
        >>> without_count(ViewRecipe(count=8)) == without_count(ViewRecipe(count=64))
        True
    """
    return recipe.model_copy(update={"count": 1}).fingerprint


class FeaturePipeline:
    """Turns jobs into features while the views of further jobs are made beside it.

    Args:
        model: Its image tower encodes the views.
        renderer: Makes the views.
        caches: Where features are kept; None for nowhere.
        working_on: Told which job is worked on, before anything that could go wrong with it.
    """

    def __init__(
        self,
        model: "Clip",
        renderer: Renderer,
        *,
        caches: FeatureCaches | None = None,
        working_on: Callable[[Job], None] | None = None,
    ) -> None:
        self._model = model
        self._renderer = renderer
        self._caches = caches
        self._working_on = working_on
        self._waiting: deque[Job] = deque()
        self._ready: deque[Seen] = deque()

    def add(self, job: Job) -> None:
        """Take a job."""
        self._waiting.append(job)

    @property
    def pending(self) -> int:
        """Jobs whose features have not been returned."""
        return len(self._waiting) + len(self._ready) + self._renderer.pending

    def next(self) -> Seen:
        """Return the features of any job; there must be one."""
        self._renderer.release()
        self._feed()  # before waiting, so that views are made while others are encoded
        if self._ready:
            return self._ready.popleft()
        return self._encode(self._renderer.collect())

    def _feed(self) -> None:
        while self._waiting and self._renderer.has_room:
            job = self._waiting.popleft()
            self._tell(job)
            image = job.sample.image
            try:
                keyed = replace(job, stamp=image.stamp(), image_key=image.key())
            except ImageError as error:
                self._ready.append(Seen(job, failure=str(error) or "unreadable"))
                continue
            found = self._cached(keyed)
            if found is None:
                self._renderer.submit(keyed)
            else:
                self._ready.append(Seen(keyed, found))

    def _tell(self, job: Job) -> None:
        if self._working_on is not None:
            self._working_on(job)

    def _cached(self, job: Job) -> Features | None:
        if self._caches is None:
            return None
        return self._caches.of(job.recipe, job.seed).get(job.image_key, views=job.recipe.count)

    def _encode(self, rendered: Rendered) -> Seen:
        job = rendered.job
        if rendered.pixels is None:
            return Seen(job, failure=rendered.failure, death=rendered.death)
        self._tell(job)
        features = encode_views(self._model, rendered.pixels)
        if self._caches is not None:
            self._caches.of(job.recipe, job.seed).put(job.image_key, features)
        return Seen(job, features, is_new=True)

    def stream(self, jobs: Iterable[Job]) -> Iterator[Seen]:
        """Yield the features of all jobs, in any order, with a few of them in work at a time."""
        for job in jobs:
            self.add(job)
            self._feed()
            while self._waiting or self._ready:
                yield self.next()
        while self.pending:
            yield self.next()

    def close(self) -> None:
        """End the renderer and write what the cache holds."""
        self._renderer.close()
        if self._caches is not None:
            self._caches.flush()


def encode_views(model: "Clip", pixels: Pixels) -> Features:
    """Encode the (N, 3, S, S) views of one image: (N, D)."""
    views = torch.empty(pixels.shape, dtype=torch.float32)
    views.copy_(torch.from_numpy(pixels))
    features = model.encode_views(views).to("cpu", torch.float32).numpy()
    if not np.isfinite(features).all():
        raise RunError("The image tower gave numbers that are not finite: check the weights.")
    return features


def as_tensor(features: Features, device: torch.device) -> Tensor:
    """Copy (N, D) features into memory of torch's own on the model's device."""
    tensor = torch.empty(features.shape, dtype=torch.float32)
    tensor.copy_(torch.from_numpy(np.ascontiguousarray(features)))
    return tensor.to(device)
