"""Shapes and activation of a CLIP: frozen data, read from JSON, never guessed from weights.

The activation is part of the configuration because the weights do not show it: OpenAI's models use
QuickGELU, most others GELU, and mixing them up costs accuracy without any error. The bounds keep a
hostile config from building a billion layers; no CLIP comes near them. What all layers together may
take is `MAX_MODEL_SIZE`.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

Activation = Literal["quick_gelu", "gelu", "gelu_tanh"]
Precision = Literal["float32", "bfloat16", "float16"]

# GiB of weights in float32 that a checkpoint may declare: the largest CLIP, ViT-bigG-14, has 9.5.
MAX_MODEL_SIZE = 16.0

_TIMM_NAME = re.compile(r"[a-z0-9_]{1,80}(\.[a-z0-9_]{1,80})?")  # no scheme, no path

Side = Annotated[int, Field(ge=1, le=4096)]
Width = Annotated[int, Field(ge=1, le=65536)]
Layers = Annotated[int, Field(ge=1, le=256)]
Epsilon = Annotated[float, Field(gt=0, le=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _neutral(value: object) -> Any:
    """Return a field that leaves a dump, and with it a fingerprint, as it was where it is unset."""
    return Field(default=value, exclude_if=lambda given: given == value)


def _check_heads(heads: int, width: int) -> None:
    if width % heads:
        raise ValueError(f"{heads} heads do not divide the width {width}")


class _TransformerConfig(_Frozen):
    width: Width
    layers: Layers
    heads: PositiveInt
    mlp_width: Width
    norm_eps: Epsilon = 1e-5

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_heads(self.heads, self.width)
        return self


class VitConfig(_TransformerConfig):
    """A Vision Transformer image tower."""

    kind: Literal["vit"] = "vit"
    image_size: Side
    patch_size: Width

    @property
    def tokens(self) -> int:
        """Number of positions: one for each patch, and the class token."""
        return (self.image_size // self.patch_size) ** 2 + 1


class SiglipVitConfig(_TransformerConfig):
    """SigLIP's image tower: patches only, pooled by attention from one learned query.

    The feature is the pooled state itself, so the joint space is as wide as the tower.
    """

    kind: Literal["siglip_vit"] = "siglip_vit"
    image_size: Side
    patch_size: Width
    activation: Activation  # the text tower may have another

    @property
    def tokens(self) -> int:
        """Number of patches."""
        return (self.image_size // self.patch_size) ** 2


class ResNetConfig(_Frozen):
    """CLIP's modified ResNet: three-convolution stem, anti-aliased strides, attention pool."""

    kind: Literal["resnet"] = "resnet"
    image_size: Side
    width: Annotated[int, Field(ge=1, le=2048)]
    layers: tuple[Layers, Layers, Layers, Layers]
    heads: PositiveInt

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_heads(self.heads, 32 * self.width)
        return self


class SmallResNetConfig(_Frozen):
    """A ResNet for small images: two strided convolutions, basic blocks, mean pool.

    Stage k has `layers[k]` blocks of `widths[k]` channels; every stage but the first halves the
    side, which is `image_size / 4` after the stem.
    """

    kind: Literal["small_resnet"] = "small_resnet"
    image_size: Side
    stem_width: Width
    widths: Annotated[tuple[Width, ...], Field(min_length=1, max_length=16)]
    layers: Annotated[tuple[Layers, ...], Field(min_length=1, max_length=16)]


class OpenClipVisionConfig(_Frozen):
    """Any image tower that open_clip builds, also those of timm: its `vision_cfg`, unchanged."""

    kind: Literal["open_clip"] = "open_clip"
    image_size: Side
    settings: dict[str, Any]

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        """Let timm build only what it has registered, and bound what open_clip builds itself."""
        name, layers = self.settings.get("timm_model_name"), self.settings.get("layers", 12)
        if name is not None and not (isinstance(name, str) and _TIMM_NAME.fullmatch(name)):
            raise ValueError(f"timm_model_name {str(name)[:80]!r} is not a name of timm's")
        if self.settings.get("timm_model_pretrained") is not False:
            raise ValueError("timm_model_pretrained must be false: weights are the checkpoint's")
        counts = layers if isinstance(layers, list) else [layers]
        if len(counts) > 4 or not all(type(n) is int and 0 < n <= 256 for n in counts):
            raise ValueError("layers must be a number from 1 to 256, or four of them")
        return self


class GivenVisionConfig(_Frozen):
    """An image tower that came as a module with its weights, of a model in memory."""

    kind: Literal["given"] = "given"
    image_size: Side


class TextConfig(_TransformerConfig):
    """The text transformer."""

    context_length: Width
    vocab_size: Annotated[int, Field(ge=1, le=4_000_000)]
    is_causal: bool = _neutral(True)
    reads: Literal["end", "last"] = _neutral("end")  # the feature: at the end token, or at the
    # last position of the context, which is padding for most texts
    projection_bias: bool = _neutral(False)

    @model_validator(mode="after")
    def _check_reading(self) -> Self:
        if self.reads == "last" and self.is_causal:
            raise ValueError("a causal text tower is read at the end token, not at the last")
        return self


VisionConfig = Annotated[
    VitConfig
    | SiglipVitConfig
    | ResNetConfig
    | SmallResNetConfig
    | OpenClipVisionConfig
    | GivenVisionConfig,
    Field(discriminator="kind"),
]


class ModelConfig(_Frozen):
    """The joint space (`embed_dim` = D) and the towers that dtpt builds itself."""

    embed_dim: Width
    activation: Activation  # of the text tower, and of an image tower that states none
    vision: VisionConfig | None  # None: an image encoder of another kind is given to `Clip`
    text: TextConfig | None  # None: no text tower, or one of another kind is given to `Clip`

    @model_validator(mode="after")
    def _check_joint_space(self) -> Self:
        vision = self.vision
        if isinstance(vision, SiglipVitConfig) and vision.width != self.embed_dim:
            raise ValueError(f"image features have {vision.width} dimensions, not {self.embed_dim}")
        return self


class ClipConfig(ModelConfig):
    """A CLIP of OpenAI's kind: both towers are ours. Every loader returns this."""

    vision: VisionConfig
    text: TextConfig
