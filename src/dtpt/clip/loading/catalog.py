"""The models that have a name of their own: data files, read without torch."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, PositiveInt

from dtpt.clip.config import ClipConfig


class CatalogEntry(BaseModel):
    """One known model: where its weights are and what they must look like.

    Attributes:
        architecture: name of a file in `architectures/`.
        repo: repository on the Hugging Face hub.
        weights: weight file in that repository.
        parameters: number of weights; four bytes each in float32.
        aliases: other spellings, OpenAI's own among them.
        torchscript_sha256: hash of OpenAI's `.pt` archive of the same model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    repo: str
    weights: str
    parameters: PositiveInt
    aliases: tuple[str, ...] = ()
    torchscript_sha256: str = ""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the weights in float32: what they take in memory."""
        return 4 * self.parameters


@cache
def catalog() -> Mapping[str, CatalogEntry]:
    """Return all known models, by canonical name.

    Example:
        >>> catalog()["RN50/openai"].repo
        'timm/resnet50_clip.openai'
    """
    text = resources.files("dtpt.clip").joinpath("catalog.json").read_text("utf-8")
    return {name: CatalogEntry.model_validate(entry) for name, entry in json.loads(text).items()}


@cache
def aliases() -> Mapping[str, str]:
    """Return the canonical name of every other spelling."""
    return {alias: name for name, entry in catalog().items() for alias in entry.aliases}


@cache
def architecture(name: str) -> ClipConfig:
    """Return the shapes and the activation that an architecture's data file declares.

    Example:
        >>> architecture("ViT-B-16").activation
        'quick_gelu'
    """
    file = resources.files("dtpt.clip").joinpath("architectures", f"{name}.json")
    return ClipConfig.model_validate_json(file.read_text("utf-8"))
