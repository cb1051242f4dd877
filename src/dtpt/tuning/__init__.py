"""The engine: exact episodic tuning, many times faster than running it as written.

The settings (`TuningSettings`) need no torch, because the command line's help reads them; the
engine is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dtpt.tuning.settings import TuningSettings

if TYPE_CHECKING:
    from dtpt.tuning.encoder import PromptEncoder
    from dtpt.tuning.engine import Episode, Outcome, Tuner, views_needed

__all__ = ["Episode", "Outcome", "PromptEncoder", "Tuner", "TuningSettings", "views_needed"]

_HOMES = {
    "Episode": "dtpt.tuning.engine",
    "Outcome": "dtpt.tuning.engine",
    "PromptEncoder": "dtpt.tuning.encoder",
    "Tuner": "dtpt.tuning.engine",
    "views_needed": "dtpt.tuning.engine",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
