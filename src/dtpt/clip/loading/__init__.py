"""Loading of CLIP from every format that users have, without ever running a checkpoint's code.

`names` says what a name means, `catalog` knows OpenAI's models, `hub` downloads, `folders` and
`files` find config, tokenizer, preprocessing and weights, `layouts` translates key names into
OpenAI's, `checks` compares everything with the config before memory is allocated, and `load` puts a
model together. Names, catalogue and hub need no torch: `dtpt models` stays quick.
"""

from typing import TYPE_CHECKING

from dtpt.clip.loading.names import ModelName, parse_name

if TYPE_CHECKING:
    from dtpt.clip.loading.load import load_model

__all__ = ["ModelName", "load_model", "parse_name"]


def __getattr__(name: str) -> object:
    """Import torch only when a model is really loaded."""
    if name == "load_model":
        from dtpt.clip.loading.load import load_model

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
