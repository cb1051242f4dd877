"""The model: two towers, tokenizer, preprocessing, loading. Torch is imported on first use only."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtpt.clip.loading.load import load_model
    from dtpt.clip.model import Clip

__all__ = ["Clip", "load_model"]


def __getattr__(name: str) -> object:
    """Import the heavy names when they are asked for."""
    if name == "load_model":
        from dtpt.clip.loading.load import load_model

        return load_model
    if name == "Clip":
        from dtpt.clip.model import Clip

        return Clip
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
