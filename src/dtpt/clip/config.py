"""The shape of a CLIP: plain frozen data, read from JSON, never guessed from weights.

The activation is part of the configuration because the weights do not show it: OpenAI's models use
QuickGELU, most others GELU, and mixing them up costs accuracy without any error.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

Activation = Literal["quick_gelu", "gelu"]
Precision = Literal["float32", "bfloat16", "float16"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VitConfig(_Frozen):
    """A Vision Transformer image tower."""

    kind: Literal["vit"] = "vit"
    image_size: PositiveInt
    patch_size: PositiveInt
    width: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    mlp_width: PositiveInt
    norm_eps: float = 1e-5

    @property
    def tokens(self) -> int:
        """Number of positions: one for each patch, and the class token."""
        return (self.image_size // self.patch_size) ** 2 + 1


class ResNetConfig(_Frozen):
    """CLIP's modified ResNet: three-convolution stem, anti-aliased strides, attention pool."""

    kind: Literal["resnet"] = "resnet"
    image_size: PositiveInt
    width: PositiveInt
    layers: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]
    heads: PositiveInt


class SmallResNetConfig(_Frozen):
    """A ResNet for small pictures: two strided convolutions, plain blocks, mean pool.

    Stage k has `layers[k]` blocks of `widths[k]` channels; every stage but the first halves the
    side, which is `image_size / 4` after the stem.
    """

    kind: Literal["small_resnet"] = "small_resnet"
    image_size: PositiveInt
    stem_width: PositiveInt
    widths: tuple[PositiveInt, ...]
    layers: tuple[PositiveInt, ...]


class TextConfig(_Frozen):
    """The causal text transformer."""

    context_length: PositiveInt
    vocab_size: PositiveInt
    width: PositiveInt
    layers: PositiveInt
    heads: PositiveInt
    mlp_width: PositiveInt
    norm_eps: float = 1e-5


VisionConfig = Annotated[VitConfig | ResNetConfig | SmallResNetConfig, Field(discriminator="kind")]


class ClipConfig(_Frozen):
    """Both towers and the joint space they meet in (`embed_dim` = D)."""

    embed_dim: PositiveInt
    activation: Activation
    vision: VisionConfig
    text: TextConfig
