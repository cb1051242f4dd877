"""Which files make up a checkpoint folder, on disk or on the hub. Needs no torch.

Safetensors always come before pickles, so that a pickle is neither read nor even downloaded where
the same weights exist in the safe format.
"""

from collections.abc import Collection, Sequence

OWN_CONFIG = "dtpt_config.json"
OPEN_CLIP_CONFIG = "open_clip_config.json"
TRANSFORMERS_CONFIG = "config.json"
CONFIGS = (OWN_CONFIG, OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG)

_SUPPORT = (
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
)
_SAFE = ("model.safetensors", "model.safetensors.index.json")
_WEIGHTS = {
    OWN_CONFIG: ("model.safetensors",),
    OPEN_CLIP_CONFIG: (
        "open_clip_model.safetensors",
        *_SAFE,
        "open_clip_pytorch_model.bin",
        "pytorch_model.bin",
    ),
    TRANSFORMERS_CONFIG: (*_SAFE, "pytorch_model.bin", "pytorch_model.bin.index.json"),
}

WEIGHT_NAMES = frozenset(name for names in _WEIGHTS.values() for name in names)


def config_file(names: Collection[str]) -> str | None:
    """Return the config that decides a folder's format, or None if there is none.

    Example:
        >>> config_file(["config.json", "open_clip_config.json"])
        'open_clip_config.json'
    """
    return next((name for name in CONFIGS if name in names), None)


def weight_file(names: Collection[str]) -> str | None:
    """Return the weight file (or the index of shards) that belongs to the folder's config."""
    config = config_file(names)
    return next((name for name in _WEIGHTS.get(config or "", ()) if name in names), None)


def wanted_files(names: Collection[str]) -> Sequence[str]:
    """Return the files to fetch from a repository that holds `names`; shards by usual names.

    Example:
        >>> wanted_files(["README.md", "config.json", "model.safetensors", "pytorch_model.bin"])
        ['config.json', 'model.safetensors']
    """
    weights = weight_file(names)
    if weights is None:
        return []
    wanted = [config_file(names), weights, *(name for name in _SUPPORT if name in names)]
    if weights.endswith(".index.json"):
        stem, suffix = weights.removesuffix(".index.json").rsplit(".", 1)
        shards = [n for n in names if n.startswith(f"{stem}-") and n.endswith(f".{suffix}")]
        wanted += [name for name in shards if "/" not in name]
    return [name for name in wanted if name is not None]
