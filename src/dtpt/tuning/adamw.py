"""AdamW on one context, from an empty state: torch's defaults, bit for bit.

Written out because building torch's own optimiser imports its compiler, which takes seconds at the
start of every command that tunes. A test compares the two.
"""

import math

import torch
from torch import Tensor

from dtpt.tuning.settings import TuningSettings

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class AdamW:
    """Decoupled weight decay, two moving moments, bias correction.

    With an empty state the first step is -lr · g / (|g| + ε) in every coordinate: signed descent.

    Args:
        context: (n, W) where to start; it is not changed.
        settings: learning rate and weight decay.
    """

    def __init__(self, context: Tensor, settings: TuningSettings) -> None:
        self._settings = settings
        self._context = context.detach().clone()
        self._mean = torch.zeros_like(context)
        self._square = torch.zeros_like(context)
        self._steps = 0

    def step(self, gradient: Tensor) -> Tensor:
        """Take one step against the gradient (n, W) and return the new context."""
        self._steps += 1
        rate = self._settings.learning_rate
        self._context.mul_(1 - rate * self._settings.weight_decay)
        self._mean.lerp_(gradient, 1 - BETA_1)
        self._square.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        correction = math.sqrt(1 - BETA_2**self._steps)
        spread = (self._square.sqrt() / correction).add_(EPSILON)
        size = rate / (1 - BETA_1**self._steps)
        self._context.addcdiv_(self._mean, spread, value=-size)
        return self._context.clone()
