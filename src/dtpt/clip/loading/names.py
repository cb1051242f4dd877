"""What a model's name means, the models that have a name, and the names that users add. No torch.

```
ViT-B-16/openai              a model of the catalogue (also OpenAI's own spelling, ViT-B/16)
ViT-B-16-SigLIP2/webli       a repository of the hub that open_clip calls so
pocket                       the model inside the package
my-clip                      a name that the user gave with `dtpt models add`
hf-hub:org/repo[@revision]   a repository of the Hugging Face hub
local-dir:PATH               a folder that transformers, open_clip or dtpt saved
local-file:PATH              one file: safetensors, OpenAI's TorchScript archive, a state dict
features:PATH                a folder with text features and, optionally, an image tower
```

A bare path is refused rather than guessed at, because `models/clip` could as well be a repository.
Added names are kept in `models.json` in the user's config folder: `$DTPT_CONFIG`, or else `dtpt` in
`$XDG_CONFIG_HOME`, or else `~/.config/dtpt`.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from dtpt.clip.config import MAX_MODEL_SIZE, Activation, ClipConfig, OpenClipVisionConfig
from dtpt.clip.loading.formats import read_json
from dtpt.errors import CheckpointError, UnknownName, explain, os_error, short_repr
from dtpt.files import printable, write_atomically

EMBEDDED = "pocket"
SCHEMES = "local-dir:PATH, local-file:PATH, features:PATH or hf-hub:org/repo[@revision]"

_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_NEW = re.compile(r"[A-Za-z0-9][\w.+@-]*(/[A-Za-z0-9][\w.+@-]*)?", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:([\\/]|$)")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
Kind = Literal["catalog", "embedded", "added", "hub", "folder", "file", "features"]
PATHS: dict[str, Kind] = {"local-dir": "folder", "local-file": "file", "features": "features"}
# "own": a new name. A name of the catalogue is "verified" if the file is the published one, else
# "trusted" by the user.
Status = Literal["own", "verified", "trusted"]
Needs = Literal["", "towers"]  # the extra that a model needs
_WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".json", ".ckpt")


@dataclass(frozen=True)
class ModelName:
    """A parsed name."""

    kind: Kind
    value: str  # the name itself, a repository id or a path
    revision: str | None = None  # branch, tag or commit of a hub repository; None: its default

    def __str__(self) -> str:
        """Return the canonical spelling, which parses to the same name."""
        if self.kind == "hub":
            return f"hf-hub:{self.value}" + (f"@{self.revision}" if self.revision else "")
        scheme = next((scheme for scheme, kind in PATHS.items() if kind == self.kind), None)
        return f"{scheme}:{self.value}" if scheme else self.value


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: PositiveInt

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the weights in float32: what they take in memory."""
        return 4 * self.parameters


class CatalogEntry(_Model):
    """A published model."""

    architecture: str  # name of a file in `architectures/`
    repo: str  # on the Hugging Face hub
    weights: str  # file in that repository
    aliases: tuple[str, ...] = ()  # other spellings, OpenAI's own among them
    torchscript_sha256: str = ""  # of OpenAI's `.pt` archive of the same model


class HubModel(_Model):
    """A published model whose repository on the hub states everything."""

    repo: str
    needs: Needs = ""


class AddedModel(_Model):
    """A checkpoint on this machine with a name of the user's choice."""

    path: str  # file or folder, absolute
    fingerprint: str  # when it was added; other weights at that path are refused
    activation: Activation | None = None  # as the user gave it
    status: Status = "own"
    needs: Needs = ""


class _ModelsFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal[1]
    models: dict[str, AddedModel]


@cache
def catalog() -> Mapping[str, CatalogEntry]:
    """Return the published models by canonical name."""
    text = resources.files("dtpt.clip").joinpath("catalog.json").read_text("utf-8")
    return {name: CatalogEntry.model_validate(entry) for name, entry in json.loads(text).items()}


@cache
def hub_models() -> Mapping[str, HubModel]:
    """Return names, spelled as open_clip does, that stand for a repository of the hub."""
    text = resources.files("dtpt.clip").joinpath("hub_models.json").read_text("utf-8")
    return {name: HubModel.model_validate(entry) for name, entry in json.loads(text).items()}


@cache
def aliases() -> Mapping[str, str]:
    """Return the canonical name of every other spelling."""
    return {alias: name for name, entry in catalog().items() for alias in entry.aliases}


@cache
def architecture(name: str) -> ClipConfig:
    """Return the shapes and the activation that an architecture's data file declares."""
    file = resources.files("dtpt.clip").joinpath("architectures", f"{name}.json")
    return ClipConfig.model_validate_json(file.read_text("utf-8"))


def published_config(name: str) -> ClipConfig | None:
    """Return the config of a name of the catalogue; None for any other name."""
    entry = catalog().get(name)
    return architecture(entry.architecture) if entry else None


def parse_name(name: str) -> ModelName:
    """Return where the model called `name` comes from.

    Example:
        >>> parse_name("ViT-B/16")
        ModelName(kind='catalog', value='ViT-B-16/openai', revision=None)
    """
    if not isinstance(name, str):
        raise CheckpointError(f"A model's name is text such as 'pocket', got {short_repr(name)}.")
    if name == EMBEDDED:
        return ModelName("embedded", EMBEDDED)
    canonical = aliases().get(name, name)
    added = added_models()
    if canonical in added:  # also a name of the catalogue whose weights the user has here
        return ModelName("added", canonical)
    if canonical in catalog():
        return ModelName("catalog", canonical)
    if name in hub_models():
        return ModelName("hub", hub_models()[name].repo)
    scheme = _SCHEME.match(name)
    if scheme and not _DRIVE.match(name):
        return _parse_scheme(scheme[1], name[scheme.end() :], name=name)
    if _looks_like_path(name):
        raise CheckpointError(f"{name!r} is a bare path. Use {SCHEMES}.")
    spellings = [EMBEDDED, *added, *catalog(), *hub_models(), *aliases()]
    raise UnknownName("model", name, spellings, f"See `dtpt models`, or use {SCHEMES}.")


def _parse_scheme(scheme: str, rest: str, *, name: str) -> ModelName:
    if scheme == "hf-hub":
        repo, at, revision = rest.partition("@")
        if not _REPO.fullmatch(repo) or ".." in repo:
            raise CheckpointError(f"{name!r}: invalid repository. Use hf-hub:org/repo[@revision].")
        if at and (not _REVISION.fullmatch(revision) or ".." in revision):
            raise CheckpointError(
                f"{name!r}: invalid revision {revision!r}. Use a branch, a tag or a commit."
            )
        return ModelName("hub", repo, revision or None)
    if scheme not in PATHS:
        raise CheckpointError(f"{name!r}: unknown scheme {scheme!r}. Use {SCHEMES}.")
    if not rest.strip() or "\0" in rest:
        raise CheckpointError(f"{name!r}: the path is missing or invalid. Use {scheme}:PATH.")
    return ModelName(PATHS[scheme], rest)


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith(("/", "./", "../", "~", "\\"))
        or name in (".", "..")
        or "\\" in name
        or bool(_DRIVE.match(name))
        or name.endswith(("/", *_WEIGHT_SUFFIXES))
        or name.count("/") > 1
    )


def check_new_name(name: str) -> str:
    """Return the canonical spelling of a name that the user may give to a checkpoint."""
    canonical = aliases().get(name, name)
    if name == EMBEDDED:
        raise CheckpointError(f"{EMBEDDED!r} is the model inside the package. Choose another name.")
    if not _NEW.fullmatch(canonical) or _looks_like_path(canonical):
        raise CheckpointError(
            f"{name!r} cannot be a model's name. Use letters, digits and . _ + @ - with at most "
            "one / in between, and no suffix of a weight file."
        )
    return canonical


def config_folder() -> Path:
    """Return the folder of the user's own settings; it need not exist."""
    given = os.environ.get("DTPT_CONFIG")
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(given).expanduser() if given else Path(base).expanduser() / "dtpt"


def added_models() -> Mapping[str, AddedModel]:
    """Return the models that the user added, by name."""
    path = config_folder() / "models.json"
    if not os.path.lexists(path):
        return {}
    try:
        return _ModelsFile.model_validate(read_json(path)).models
    except ValidationError as error:
        raise CheckpointError(
            f"{printable(path)} is damaged: {explain(error)}. Repair or delete it."
        ) from error


def add_model(
    name: str,
    path: Path,
    *,
    trust: bool = False,
    activation: Activation | None = None,
    max_model_size: float = MAX_MODEL_SIZE,
) -> AddedModel:
    """Let `name` mean the checkpoint (file or folder) at `path` from now on.

    The checkpoint is loaded once, to check it and to store its fingerprint. A name of the catalogue
    is reserved for the published weights: the published file, recognised by its sha256, or,
    with `trust`, any weights of the same shapes. `activation` is for checkpoints that state none.
    """
    from dtpt.clip.loading.build import assemble, read_path

    canonical, path = check_new_name(name), Path(path).expanduser().absolute()
    if printable(path) != str(path):
        raise CheckpointError(f"{printable(path)}: this path is not UTF-8. Rename it first.")
    checkpoint = read_path(path, activation, expected=published_config(canonical))
    status = _status(canonical, path, trust=trust)
    model = assemble(checkpoint, device="cpu", max_model_size=max_model_size)
    added = AddedModel(
        path=str(path),
        fingerprint=model.fingerprint,
        parameters=sum(weight.numel() for weight in model.parameters()),
        activation=activation,
        status=status,
        needs="towers" if isinstance(model.config.vision, OpenClipVisionConfig) else "",
    )
    _write({**added_models(), canonical: added})
    return added


def _status(name: str, path: Path, *, trust: bool) -> Status:
    from dtpt.clip.loading.read import file_digest

    entry = catalog().get(name)
    if entry is None:
        return "own"
    if path.is_file() and file_digest(path) == entry.torchscript_sha256:
        return "verified"
    if trust:
        return "trusted"
    raise CheckpointError(
        f"{path} has the shapes of {name}, but only OpenAI's own .pt file can be verified by its "
        "hash. Pass `trust=True` (--trust) if the weights are the published ones, or choose "
        "another name."
    )


def remove_model(name: str) -> None:
    """Remove a name that the user added; the checkpoint itself stays."""
    models = dict(added_models())
    if name not in models:
        raise UnknownName("model", name, models, "It was not added by `dtpt models add`.")
    del models[name]
    _write(models)


def _write(models: Mapping[str, AddedModel]) -> None:
    path = config_folder() / "models.json"
    content = _ModelsFile(format=1, models=dict(sorted(models.items())))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (content.model_dump_json(indent=2) + "\n").encode())
    except OSError as error:
        raise CheckpointError(f"{printable(path)} cannot be written: {os_error(error)}.") from error
