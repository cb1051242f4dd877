"""What a model's name means: the grammar of `load_model(name)`.

```
ViT-B-16/openai              a model of the catalogue (also OpenAI's own spelling, ViT-B/16)
pocket                       the model inside the package
my-clip                      a name that the user gave with `dtpt models add`
hf-hub:org/repo[@revision]   a repository of the Hugging Face hub
local-dir:PATH               a folder that transformers or open_clip saved
local-file:PATH              one file: safetensors, OpenAI's TorchScript archive, a state dict
```

A bare path is refused rather than guessed at, because `models/clip` could as well be a repository.
"""

import re
from dataclasses import dataclass
from typing import Literal

from dtpt.clip.loading.added import added_models
from dtpt.clip.loading.catalog import aliases, catalog
from dtpt.errors import CheckpointError, UnknownName, short_repr

EMBEDDED = "pocket"
SCHEMES = "local-dir:PATH, local-file:PATH or hf-hub:org/repo[@revision]"

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_NEW = re.compile(r"[A-Za-z0-9][\w.+@-]*(/[A-Za-z0-9][\w.+@-]*)?", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:([\\/]|$)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".json", ".ckpt")

Kind = Literal["catalog", "embedded", "added", "hub", "folder", "file"]


@dataclass(frozen=True)
class ModelName:
    """A parsed name.

    Attributes:
        kind: where the model comes from.
        value: the name itself, a repository id or a path, according to `kind`.
        revision: branch, tag or commit of a hub repository; None for its default branch.
    """

    kind: Kind
    value: str
    revision: str | None = None

    def __str__(self) -> str:
        """Return the canonical spelling, which parses to the same name."""
        if self.kind == "hub":
            return f"hf-hub:{self.value}" + (f"@{self.revision}" if self.revision else "")
        prefix = {"folder": "local-dir:", "file": "local-file:"}.get(self.kind, "")
        return prefix + self.value


def parse_name(name: str) -> ModelName:
    """Say where the model called `name` comes from.

    Raises:
        CheckpointError: a bare path, an unknown scheme or a malformed repository id.
        UnknownName: neither in the catalogue nor embedded; the nearest names are listed.

    Example:
        >>> parse_name("ViT-B/16")
        ModelName(kind='catalog', value='ViT-B-16/openai', revision=None)
    """
    if not isinstance(name, str):
        raise CheckpointError(f"A model's name is text such as 'pocket', not {short_repr(name)}.")
    if name == EMBEDDED:
        return ModelName("embedded", EMBEDDED)
    known = aliases().get(name, name)
    added = added_models()
    if known in added:  # also a name of the catalogue for which the user has the weights here
        return ModelName("added", known)
    if known in catalog():
        return ModelName("catalog", known)
    scheme = _SCHEME.match(name)
    if scheme and not _DRIVE.match(name):
        return _parse_scheme(scheme[1], name[scheme.end() :], name=name)
    if _looks_like_path(name):
        raise CheckpointError(f"{name!r} is a bare path. Say what it is: {SCHEMES}.")
    spellings = [EMBEDDED, *added, *catalog(), *aliases()]
    hint = f"`dtpt models` lists all; a model of your own is {SCHEMES}."
    raise UnknownName("model", name, spellings, hint)


def check_new_name(name: str) -> str:
    """Return the canonical spelling of a name that the user may give to a checkpoint.

    Raises:
        CheckpointError: it is taken by the embedded model or reads like something else.

    Example:
        >>> check_new_name("ViT-B/16"), check_new_name("flowers/clip-v2")
        ('ViT-B-16/openai', 'flowers/clip-v2')
    """
    known = aliases().get(name, name)
    if name == EMBEDDED:
        raise CheckpointError(f"{EMBEDDED!r} is the model inside the package. Choose another name.")
    if not _NEW.fullmatch(known) or _looks_like_path(known):
        raise CheckpointError(
            f"{name!r} cannot be a model's name: take letters, digits and . _ + @ - with at most "
            "one / in between, and no ending of a weight file."
        )
    return known


def _parse_scheme(scheme: str, rest: str, *, name: str) -> ModelName:
    if scheme not in ("hf-hub", "local-dir", "local-file"):
        raise CheckpointError(f"Unknown scheme {scheme!r} in {name!r}. Use {SCHEMES}.")
    if scheme == "hf-hub":
        return _parse_hub(rest, name=name)
    if not rest.strip() or "\0" in rest:
        raise CheckpointError(f"{name!r} names no path. Write {scheme}:PATH.")
    return ModelName("folder" if scheme == "local-dir" else "file", rest)


def _parse_hub(rest: str, *, name: str) -> ModelName:
    repo, at, revision = rest.partition("@")
    if not _REPO.fullmatch(repo) or ".." in repo:
        raise CheckpointError(f"{name!r} names no repository. Write hf-hub:org/repo[@revision].")
    if at and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise CheckpointError(
            f"{revision!r} in {name!r} is no revision. Write a branch, a tag or a commit."
        )
    return ModelName("hub", repo, revision or None)


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith(("/", "./", "../", "~", "\\"))
        or name in (".", "..")
        or "\\" in name
        or bool(_DRIVE.match(name))
        or name.endswith(("/", *_WEIGHT_SUFFIXES))
        or name.count("/") > 1
    )
