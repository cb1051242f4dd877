"""The engine: exact episodic tuning, many times faster than running it as written.

The settings (`TuningSettings`) need no torch, because the command line's help reads them; the
engine is imported at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dtpt.tuning.settings import TuningSettings

if TYPE_CHECKING:
    from dtpt.tuning.encoder import PromptEncoder
    from dtpt.tuning.engine import Episode, Outcome, Tuner, initial_state, step_method

__all__ = [
    "Episode",
    "Outcome",
    "PromptEncoder",
    "Tuner",
    "TuningSettings",
    "initial_state",
    "step_method",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "encoder" if name == "PromptEncoder" else "engine"
    return getattr(import_module(f"dtpt.tuning.{home}"), name)
