"""What the engine refuses: features that are none, and answers that are none."""

import torch
from torch import Tensor

from dtpt.errors import MethodError, short_repr
from dtpt.methods.base import ResolvedMethod
from dtpt.tuning.settings import TuningSettings


def check_views(view_features: Tensor, *, dimensions: int) -> None:
    """Refuse what are no features (N, D) of views.

    Example:
        >>> check_views(torch.zeros(3, 8), dimensions=8)
    """
    if not isinstance(view_features, Tensor):
        raise MethodError(f"View features must be a tensor, not {short_repr(view_features)}.")
    shape = tuple(view_features.shape)
    if view_features.ndim != 2 or shape[1] != dimensions or shape[0] == 0:
        raise MethodError(f"View features must be (views, {dimensions}), got {shape}.")
    if not bool(torch.isfinite(view_features).all()):
        raise MethodError("View features contain numbers that are not finite.")


def checked_settings(settings: object) -> TuningSettings:
    """Return the settings; the defaults where none are given.

    Example:
        >>> checked_settings(None).steps
        1
    """
    if settings is None:
        return TuningSettings()
    if not isinstance(settings, TuningSettings):
        raise MethodError(f"settings must be TuningSettings, not {short_repr(settings)}.")
    return settings


def refuse_infinite(probabilities: Tensor, method: ResolvedMethod, *, weight: float | None) -> None:
    """Refuse an answer that has left the range of numbers, and say what led there."""
    if not bool(torch.isfinite(probabilities).all()):
        given = "" if weight is None else f" with lambda {weight:g}"
        raise MethodError(
            f"{method.name}{given} gave probabilities that are not finite: lower lambda or the "
            "learning rate."
        )
