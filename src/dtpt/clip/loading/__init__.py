"""Loading of CLIP from every format that users have, without ever running a checkpoint's code.

`names` decides what a name means, `hub` downloads and uploads, `formats` has the files, configs and
tensor names of each format, `read` turns files and folders into one `Checkpoint` (`torch_files` for
what torch wrote, with the `pickles` in it), `build` compares it with its config and reads the
weights into a model. `memory` takes models that other libraries hold, `save` writes our own format.
Names, formats and hub need no torch, so that `dtpt models` stays quick.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtpt.clip.loading.build import load_model

__all__ = ["load_model"]


def __getattr__(name: str) -> object:
    if name != "load_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dtpt.clip.loading.build import load_model  # imports torch

    return load_model
