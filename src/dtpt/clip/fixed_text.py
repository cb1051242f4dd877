"""Text features of one class list, computed elsewhere, for a model without a text tower."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from dtpt.clip.prompts import DEFAULT_TEMPLATE, context_digest
from dtpt.errors import ModelError, PromptError, short_repr
from dtpt.files import digest

MAX_DIMENSIONS = 65536  # as in a config
MAX_LOGIT_SCALE = 1e4  # OpenAI's models have 100
UNIT = 1e-6  # rows whose length is this near to 1 are kept as they are


@dataclass(frozen=True, eq=False)
class FixedText:
    """Text features of a class list, with what made them; rows are brought to length 1.

    Classes are looked up by name, where `_` counts as a blank. A name may occur twice (ImageNet has
    two classes "missile"): then its k-th row belongs to its k-th occurrence.

    Raises:
        ModelError: features that are not (C, D) finite numbers, a row without a direction, or an
            invalid logit scale.
    """

    classes: tuple[str, ...]
    features: Tensor  # (C, D) float32 on the CPU
    prompt: str = ""  # for people
    logit_scale: float = 100.0
    logit_bias: float | None = None  # of a sigmoid loss: the softmax cancels it
    source: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        features = self.features
        if not isinstance(features, Tensor) or features.ndim != 2 or 0 in features.shape:
            shape = tuple(features.shape) if isinstance(features, Tensor) else short_repr(features)
            raise ModelError(f"Text features must be a tensor (classes, D), got {shape}.")
        count, dimensions = features.shape
        if count != len(self.classes) or dimensions > MAX_DIMENSIONS:
            raise ModelError(
                f"Text features ({count}, {dimensions}) of {len(self.classes)} classes; expected a "
                f"row for each, of at most {MAX_DIMENSIONS} dimensions."
            )
        if not 0 < self.logit_scale <= MAX_LOGIT_SCALE:
            raise ModelError(
                f"The logit scale must lie above 0 and at most at {MAX_LOGIT_SCALE:g}, got "
                f"{self.logit_scale!r}. It is the factor itself (100 for CLIP), not its logarithm."
            )
        features = features.detach().to("cpu", torch.float32)
        lengths = features.double().norm(dim=-1)
        wrong = torch.nonzero(~(torch.isfinite(lengths) & (lengths > 0)))
        if len(wrong):
            name = self.classes[int(wrong[0])]
            raise ModelError(f"The text feature of class {name!r} is zero or not finite.")
        if bool(((lengths - 1).abs() > UNIT).any()):
            features = F.normalize(features, dim=-1)
        object.__setattr__(self, "features", features.contiguous())

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest of everything that decides a probability, and of the prompt."""
        numbers = context_digest(self.features)
        return digest([self._names, self.prompt, self.logit_scale, self.logit_bias, numbers])

    @property
    def _names(self) -> list[str]:
        return [name.replace("_", " ") for name in self.classes]

    def of(self, classes: Sequence[str]) -> Tensor:
        """Return the features (C, D) of some of the classes, in any order.

        Raises:
            PromptError: a class that is not among them, or not as often.
        """
        wanted = [name.replace("_", " ") for name in classes]
        if wanted == self._names:
            return self.features
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(self._names):
            rows.setdefault(name, []).append(row)
        counts = Counter(wanted)
        for index, name in enumerate(wanted):
            there = len(rows.get(name, ()))
            if counts[name] != there:
                at = self.classes[index] if index < len(self.classes) else None
                raise PromptError(
                    f"Class {index} is {name!r}, of which the model has {there} text features "
                    f"instead of {counts[name]} (its class {index} is {at!r}). Use names of its "
                    f"{len(self.classes)} classes."
                )
        return self.features[[rows[name].pop(0) for name in wanted]]

    def check_prompt(self, template: str, *, context: Tensor | None) -> None:
        """Raise a PromptError for another template than ours, or a context: both had no effect."""
        if context is not None or template not in (DEFAULT_TEMPLATE, self.prompt):
            raise PromptError(
                f"The model's text features are fixed: they are of the prompt {self.prompt!r}. "
                "Leave template and context out."
            )
