"""From jobs to view features: the cache first, then workers and the image tower.

One image's views are one batch of the image tower, always, because a tower's numbers change in the
last bits with the size of the batch. Features enter the engine as fresh tensors whether they come
from the tower or the cache, so that memory alignment cannot make a difference either.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dtpt.errors import ImageError, RunError
from dtpt.runs.features import FeatureCache, Features
from dtpt.runs.workers import Job, Pixels, Rendered, Renderer

if TYPE_CHECKING:
    from dtpt.clip.model import Clip


@dataclass(frozen=True)
class Seen:
    """The features of a job, or why there are none.

    Attributes:
        job: With its image key ("" when the image could not even be read).
        features: (N, D) float32 on the CPU, row 0 the original view.
        failure: Reason when `features` is None.
    """

    job: Job
    features: Features | None
    failure: str = ""


class Encoder:
    """The image tower with a count of the images it worked on."""

    def __init__(self, model: "Clip") -> None:
        self._model = model
        self.images = 0

    def encode(self, pixels: Pixels) -> Features:
        """Encode the (N, 3, S, S) views of one image: (N, D)."""
        batch = torch.empty(pixels.shape, dtype=torch.float32)
        batch.copy_(torch.from_numpy(pixels))
        features = self._model.encode_views(batch).to("cpu", torch.float32).numpy()
        self.images += 1
        if not np.isfinite(features).all():
            raise RunError("The image tower gave numbers that are not finite: check the weights.")
        return features


def stream_features(
    jobs: Iterable[Job], *, encoder: Encoder, cache: FeatureCache | None, renderer: Renderer
) -> Iterator[Seen]:
    """Yield the features of all jobs, cached ones at once, others as their views get ready."""
    for job in jobs:
        try:
            image = job.sample.image
            keyed = replace(job, stamp=image.stamp(), image_key=image.key())
        except ImageError as error:
            yield Seen(job, None, str(error))
            continue
        cached = cache.get(keyed.image_key) if cache is not None else None
        if cached is not None:
            yield Seen(keyed, cached)
            continue
        renderer.submit(keyed)
        while renderer.is_full:
            yield _encode(renderer.collect(), encoder=encoder, cache=cache)
    while renderer.pending:
        yield _encode(renderer.collect(), encoder=encoder, cache=cache)


def _encode(rendered: Rendered, *, encoder: Encoder, cache: FeatureCache | None) -> Seen:
    if rendered.pixels is None:
        return Seen(rendered.job, None, rendered.failure)
    features = encoder.encode(rendered.pixels)
    if cache is not None:
        cache.put(rendered.job.image_key, features)
    return Seen(rendered.job, features)


def as_tensor(features: Features, device: torch.device) -> Tensor:
    """Copy (N, D) features into memory of torch's own on the model's device."""
    tensor = torch.empty(features.shape, dtype=torch.float32)
    tensor.copy_(torch.from_numpy(np.ascontiguousarray(features)))
    return tensor.to(device)
