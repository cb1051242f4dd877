"""Loading of CLIP from every format that users have, without ever running a checkpoint's code.

`names` decides what a name means, `hub` downloads and uploads, `formats` has the files, configs and
tensor names of each format, `read` turns files and folders into one `Checkpoint` (`torchscript` for
OpenAI's archives), `build` compares it with its config and reads the weights into a model. `memory`
takes models that other libraries hold, `save` writes our own format. Names, formats and hub need no
torch, so that `dtpt models` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dtpt.clip.loading.names import ModelName, parse_name

if TYPE_CHECKING:
    from dtpt.clip.loading.build import load_model
    from dtpt.clip.loading.hub import push_to_hub
    from dtpt.clip.loading.memory import from_open_clip, from_transformers

__all__ = [
    "ModelName",
    "from_open_clip",
    "from_transformers",
    "load_model",
    "parse_name",
    "push_to_hub",
]

_MODULES = {
    "from_open_clip": "memory",
    "from_transformers": "memory",
    "load_model": "build",
    "push_to_hub": "hub",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:  # imported at first use, because they import torch
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
