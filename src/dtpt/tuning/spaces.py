"""What can be tuned: a point in some space, from which all classes' text features follow.

A *context* is a point whose features come from the text tower (`encoder.py`); a *shift* moves the
features themselves and needs no tower. The engine treats both alike.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from dtpt.methods.tps import pull_back, shifted


class Linearised(Protocol):
    """Text features at one point, and gradients pulled back from them to the point."""

    @property
    def features(self) -> Tensor:
        """(C, D) unit vectors, without a graph."""
        ...

    def pullback(self, gradient: Tensor) -> Tensor:
        """Turn a gradient for the features (C, D) into one for the point; any number of times."""
        ...


class Space(Protocol):
    """The points that a method may move to."""

    @property
    def origin(self) -> Tensor:
        """Where every image starts."""
        ...

    def encode(self, point: Tensor) -> Tensor:
        """Return the text features (C, D) at a point, without a graph."""
        ...

    def linearise(self, point: Tensor) -> Linearised:
        """Return the text features at a point with what their pullback needs."""
        ...


@dataclass(frozen=True)
class ShiftSpace:
    """Shifts (C, D) of fixed text features.

    Attributes:
        text: (C, D) unit features before tuning.
    """

    text: Tensor

    @property
    def origin(self) -> Tensor:
        """No shift."""
        return self.text.new_zeros(self.text.shape)

    def encode(self, point: Tensor) -> Tensor:
        """Return the shifted features, back on the sphere."""
        return shifted(self.text, point)

    def linearise(self, point: Tensor) -> "ShiftedText":
        """Return the shifted features with their pullback."""
        return ShiftedText(self.text, point, shifted(self.text, point))


@dataclass(frozen=True)
class ShiftedText:
    """Shifted features and their pullback, in closed form."""

    text: Tensor
    shift: Tensor
    features: Tensor

    def pullback(self, gradient: Tensor) -> Tensor:
        """Return the gradient (C, D) for the shift."""
        return pull_back(self.text, self.shift, gradient=gradient)
