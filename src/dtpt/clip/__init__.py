"""The model: two towers, tokenizer, preprocessing, loading. Torch is imported on first use only."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtpt.clip.loading.build import load_model
    from dtpt.clip.model import Clip

__all__ = ["Clip", "load_model"]

_MODULES = {"Clip": "dtpt.clip.model", "load_model": "dtpt.clip.loading.build"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
