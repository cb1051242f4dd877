"""View features of images: from a pack, from the cache, else rendered and encoded.

The features of an image's views do not depend on what else is computed: its views run in fixed
batches of their own, because a tower's numbers change in the last bits with the size of a batch.
Features enter the engine as fresh tensors whether they come from the tower or the cache, so that
memory alignment makes no difference either.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dtpt.clip.model import view_batches, views_per_batch
from dtpt.data.pack import FeatureRef
from dtpt.errors import ImageError, RunError
from dtpt.files import digest
from dtpt.prediction.cache import Array, FeatureCache
from dtpt.prediction.rendering import Renderer, RenderTask
from dtpt.views import ViewRecipe, Views

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data.dataset import ImageRef

GROUPS_OPEN = 4


@dataclass(frozen=True)
class Features:
    """The view features of one image, or why there are none."""

    values: Array | None = None  # (N, D) float32 on the CPU; row 0 is the original view
    image_key: str = ""
    stamp: str = ""  # of the file, just before it was read
    failure: str = ""
    is_new: bool = False  # whether the image tower ran

    def tensor(self, device: torch.device) -> Tensor:
        """Return a copy (N, D) in torch's own memory."""
        if self.values is None:
            raise ImageError(self.failure)
        tensor = torch.empty(self.values.shape, dtype=torch.float32)
        tensor.copy_(torch.from_numpy(np.ascontiguousarray(self.values)))
        return tensor.to(device)


class FeatureCaches:
    """The groups of the feature cache that one model needs, opened as they are met."""

    def __init__(self, model: "Clip", *, threads: int) -> None:
        self._model = model
        device = model.device.type  # on a CPU the last bits depend on the threads
        device = f"{device}-{threads}" if device == "cpu" else device
        self._shared = (model.image_fingerprint, model.precision, device)
        self._open: OrderedDict[str, FeatureCache] = OrderedDict()

    def group(self, recipe: ViewRecipe, seed: int) -> FeatureCache:
        """Return the group of some views; the number of views does not matter."""
        views = recipe.model_copy(update={"count": 1}).fingerprint
        name = digest([*self._shared, views, seed])[:32]
        if name not in self._open:
            self._open[name] = FeatureCache(name, serves=self._serves)
        self._open.move_to_end(name)
        while len(self._open) > GROUPS_OPEN:
            self._open.popitem(last=False)[1].flush()
        return self._open[name]

    def _serves(self, there: int, wanted: int) -> bool:
        """Check that both counts are encoded in the same batches up to the smaller one."""
        if self._model.device.type != "cpu":
            return False
        size = views_per_batch(self._model.visual)
        batches = view_batches(wanted, size=size)
        return batches == view_batches(there, size=size)[: len(batches)]

    def flush(self) -> None:
        for cache in self._open.values():
            cache.flush()


@dataclass(frozen=True)
class _Request:
    ticket: Any
    task: RenderTask
    features: Features = Features()


class FeatureSource:
    """Turns images into view features while further images are rendered ahead.

    Args:
        model: Its image tower encodes the views.
        view_workers: Processes that render beside this one.
        views: Largest number of views of an image.
        caches: Where features are kept; None for nowhere.
        announce: Called with a ticket before anything that may crash on its image.
    """

    def __init__(
        self,
        model: "Clip",
        *,
        view_workers: int = 0,
        views: int = 64,
        caches: FeatureCaches | None = None,
        announce: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._model = model
        self._renderer = Renderer(model.preprocessing, view_workers, views=views)
        self._caches = caches
        self._announce = announce
        self._waiting: deque[_Request] = deque()
        self._ready: deque[tuple[Any, Features]] = deque()

    def add(self, ticket: Any, image: "ImageRef", *, recipe: ViewRecipe, seed: int) -> None:
        self._waiting.append(_Request(ticket, RenderTask(image, recipe, seed)))

    @property
    def pending(self) -> int:
        return len(self._waiting) + len(self._ready) + self._renderer.pending

    def next(self) -> tuple[Any, Features]:
        """Return a ticket with its features; there must be one."""
        self._renderer.release()
        while self._waiting and self._renderer.has_room:
            self._begin(self._waiting.popleft())  # views are made while others are encoded
        if self._ready:
            return self._ready.popleft()
        return self._encode(*self._renderer.collect())

    def get(self, ticket: Any, image: "ImageRef", *, recipe: ViewRecipe, seed: int) -> Features:
        """Return the features of one image at once; nothing else may be pending."""
        self.add(ticket, image, recipe=recipe, seed=seed)
        return self.next()[1]

    def _begin(self, request: _Request) -> None:
        """Render an image unless its features are known or it cannot be read."""
        ticket, image = request.ticket, request.task.image
        self._announce(ticket)
        values = None
        try:
            features = Features(stamp=image.stamp(), image_key=image.key())
            if isinstance(image, FeatureRef):
                values = image.features(request.task.recipe, request.task.seed)
        except ImageError as error:
            self._ready.append((ticket, Features(failure=str(error) or "unreadable")))
            return
        cache = self._cache(request.task)
        if cache is not None and values is None:
            values = cache.get(features.image_key, views=request.task.recipe.count)
        if values is None:
            self._renderer.submit(replace(request, features=features), request.task)
        else:
            self._ready.append((ticket, replace(features, values=values)))

    def _cache(self, task: RenderTask) -> FeatureCache | None:
        return None if self._caches is None else self._caches.group(task.recipe, task.seed)

    def _encode(self, request: _Request, rendered: Views | str) -> tuple[Any, Features]:
        ticket, features = request.ticket, request.features
        if isinstance(rendered, str):
            return ticket, replace(features, failure=rendered)
        self._announce(ticket)
        values = encode_views(self._model, rendered)
        cache = self._cache(request.task)
        if cache is not None:
            cache.put(features.image_key, values)
        return ticket, replace(features, values=values, is_new=True)

    def close(self) -> None:
        self._renderer.close()
        if self._caches is not None:
            self._caches.flush()


def encode_views(model: "Clip", pixels: Views) -> Array:
    """Encode the (N, 3, S, S) views of one image: (N, D)."""
    views = torch.empty(pixels.shape, dtype=torch.float32)
    views.copy_(torch.from_numpy(pixels))
    features = model.encode_views(views).to("cpu", torch.float32).numpy()
    if not np.isfinite(features).all():
        raise RunError("The image tower returned numbers that are not finite: check the weights.")
    return features
