"""Loading of CLIP from every format that users have, without ever running a checkpoint's code.

`names` says what a name means, `catalog` knows OpenAI's models, `added` those that the user named,
`hub` downloads, `folders` and `files` find config, tokenizer, preprocessing and weights, `layouts`
translates key names into OpenAI's, `checks` compares everything with the config before memory is
allocated, and `load` puts a model together. `from_memory` takes models that other libraries hold,
`save` writes our own format and `publish` uploads it. Names and hub need no torch: `dtpt models`
stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dtpt.clip.loading.names import ModelName, parse_name

if TYPE_CHECKING:
    from dtpt.clip.loading.from_memory import from_open_clip, from_transformers
    from dtpt.clip.loading.load import load_model
    from dtpt.clip.loading.publish import push_to_hub

__all__ = [
    "ModelName",
    "from_open_clip",
    "from_transformers",
    "load_model",
    "parse_name",
    "push_to_hub",
]

# Imported when they are first asked for, because they import torch.
_HOMES = {
    "from_open_clip": "from_memory",
    "from_transformers": "from_memory",
    "load_model": "load",
    "push_to_hub": "publish",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
