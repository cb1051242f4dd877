"""AdamW on one tensor, from an empty state: torch's defaults, bit for bit.

Written out because building torch's own optimiser imports its compiler, which takes seconds at the
start of every command that tunes. A test compares the two.
"""

import math

import torch
from torch import Tensor

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


class AdamW:
    """Decoupled weight decay, two moving moments, bias correction.

    With an empty state the first step is -lr · g / (|g| + ε) in every coordinate: signed descent.

    Args:
        start: where to start, of any shape; it is not changed.
        learning_rate: size of a step.
        weight_decay: share of the value that a step of size 1 would take away.

    Example:
        >>> AdamW(torch.zeros(2), learning_rate=0.5, weight_decay=0.0).step(torch.tensor([3.0, -9]))
        tensor([-0.5000,  0.5000])
    """

    def __init__(self, start: Tensor, *, learning_rate: float, weight_decay: float) -> None:
        self._rate = learning_rate
        self._decay = weight_decay
        self._value = start.detach().clone()
        self._mean = torch.zeros_like(start)
        self._square = torch.zeros_like(start)
        self._steps = 0

    def step(self, gradient: Tensor) -> Tensor:
        """Take one step against the gradient and return the new value."""
        self._steps += 1
        self._value.mul_(1 - self._rate * self._decay)
        self._mean.lerp_(gradient, 1 - BETA_1)
        self._square.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        correction = math.sqrt(1 - BETA_2**self._steps)
        spread = (self._square.sqrt() / correction).add_(EPSILON)
        size = self._rate / (1 - BETA_1**self._steps)
        self._value.addcdiv_(self._mean, spread, value=-size)
        return self._value.clone()
