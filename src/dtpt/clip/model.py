"""CLIP: an image tower and a text tower that meet in one space of unit vectors."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import (
    ClipConfig,
    GivenVisionConfig,
    ModelConfig,
    OpenClipVisionConfig,
    Precision,
    SiglipVitConfig,
    SmallResNetConfig,
    VitConfig,
)
from dtpt.clip.device import cast_tower, to_float32
from dtpt.clip.foreign import build_open_clip_tower
from dtpt.clip.packed import packed_bytes
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.resnet import ModifiedResNet, SmallResNet
from dtpt.clip.text import TextTower
from dtpt.clip.tokenizer import Tokenizer
from dtpt.clip.transformer import SiglipVisionTransformer, VisionTransformer
from dtpt.errors import ModelError
from dtpt.images import ImageSource, open_image

if TYPE_CHECKING:
    from dtpt.clip.fixed_text import FixedText

TEXTS_PER_BATCH = 256
VIEWS_PER_BATCH = 16  # on a CPU, from view 16 on
_NO_TOWER = ("log_logit_scale", "logit_bias")
TOKENS_PER_BATCH = 1600  # so that the widest tensor of a transformer is used while in the cache


class Clip(nn.Module):
    """A CLIP model ready for inference: frozen weights, tokenizer and preprocessing together.

    The image encoder `visual` is opaque: it maps pixels (N, 3, S, S) to features (N, D), and no
    gradient ever enters it. The text tower `text` is None for a model that has fixed text features
    only (see `FeatureModel`). `state_dict()` has OpenAI's key names, in which the text tower has no
    prefix of its own.

    Example:
        >>> from dtpt.clip.loading import load_model
        >>> model = load_model("pocket", device="cpu")
        >>> model.encode_image(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256])

    Args:
        config: shapes and activation of the towers that are built here.
        tokenizer: None without a text tower.
        preprocessing: image to pixels.
        visual: any image encoder, for a config without one.
        text: a text tower for a config without one; see `dtpt.clip.text` for what it must offer.
        has_logit_bias: whether there is a parameter `logit_bias`, which a sigmoid loss adds to
            logits; a softmax over classes cancels it.
        fingerprint: sha256 over config, weights, tokenizer and preprocessing, set by the loader.
        notes: what the loader had to assume, in sentences for the user.
    """

    fixed_text: "FixedText | None" = None  # instead of a text tower

    def __init__(
        self,
        config: ModelConfig,
        *,
        tokenizer: Tokenizer | None,
        preprocessing: Preprocess,
        visual: Callable[[Tensor], Tensor] | None = None,
        text: TextTower | None = None,
        has_logit_bias: bool = False,
        fingerprint: str = "",
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.config = config
        self.preprocessing = preprocessing
        self.fingerprint = fingerprint
        self.notes = notes
        self.name = ""  # what `load_model` takes to load it again
        self._tokenizer = tokenizer
        self._half: Precision | None = None
        self.visual = image_tower(config) if visual is None else _as_module(visual)
        if text is None and config.text is not None:
            text = TextTower(config.text, config.embed_dim, activation=config.activation)
        self.text = text
        self.log_logit_scale = nn.Parameter(torch.empty(()))
        bias = nn.Parameter(torch.empty(())) if has_logit_bias else None
        self.logit_bias: nn.Parameter | None = bias
        self.register_state_dict_post_hook(_to_openai_names)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_from_openai_names)  # type: ignore[no-untyped-call]

    @property
    def image_fingerprint(self) -> str:
        """Return what identifies image features; a model of parts has one of its image tower."""
        return self.fingerprint

    @property
    def device(self) -> torch.device:
        """Return the device that holds the weights."""
        return self.log_logit_scale.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of features: float32, or float64 in exactness tests."""
        return self.log_logit_scale.dtype

    @property
    def precision(self) -> str:
        """Return the precision in which the towers compute: "float32", "bfloat16", "float16"."""
        return self._half or str(self.dtype).removeprefix("torch.")

    def in_precision(self, precision: Precision) -> Self:
        """Convert the towers' weights, once and for all; features stay float32."""
        self._half = None if precision == "float32" else precision
        for tower in (self.visual, self.text):
            if tower is not None:
                cast_tower(tower, precision)
        return self

    @property
    def logit_scale(self) -> float:
        """Return the factor that multiplies cosines (the paper's τ), about 100 for CLIP."""
        return float(self.log_logit_scale.detach().cpu().double().exp())  # MPS has no float64

    @property
    def packed_bytes(self) -> int:
        """Return what packed copies of both towers' weights take (see `dtpt.clip.packed`)."""
        return packed_bytes(self.visual, backward=False) + packed_bytes(self.text, backward=True)

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer; raise ModelError for a model without text tower."""
        if self._tokenizer is None:
            raise ModelError(f"The model {self.name!r} has no text tower and no tokenizer.")
        return self._tokenizer

    def require_text(self) -> TextTower:
        """Return the text tower; raise ModelError for a model without one."""
        if self.text is None:
            raise ModelError(
                f"The model {self.name!r} has no text tower: it cannot encode or tune prompts. "
                "Use its fixed text features and a method that does not tune."
            )
        return self.text

    @torch.no_grad()
    def encode_image(self, pixels: Tensor) -> Tensor:
        """Return image features: (N, 3, S, S) pixels -> (N, D) unit vectors."""
        return self._image_features(pixels, self.visual)

    @torch.no_grad()
    def encode_views(
        self, pixels: Tensor, *, progress: Callable[[int, int], object] | None = None
    ) -> Tensor:
        """Return the features of an image's views: (N, 3, S, S) pixels -> (N, D) unit vectors.

        On a CPU the views run in fixed batches (see `view_batches`), so that the features of the
        first 1, 8, 16, 32, ... views are the same numbers, bit for bit, however many views follow.
        Accelerators take all in one pass. After each batch, `progress` gets the views done and N.
        """
        count = len(pixels)
        on_cpu, size = self.device.type == "cpu", views_per_batch(self.visual)
        batches = view_batches(count, size=size) if on_cpu else [slice(0, count)]
        parts = [self.log_logit_scale.new_empty(0, self.config.embed_dim)]
        for batch, part in zip(
            batches, self.encode_batches(pixels[batch] for batch in batches), strict=True
        ):
            parts.append(part)
            if progress is not None:
                progress(batch.stop, count)
        return torch.cat(parts)

    @torch.no_grad()
    def encode_batches(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the features of each batch of views when it is asked for."""
        prepare = getattr(self.visual, "prepared", None)  # shares work between the batches
        tower = self.visual if prepare is None else prepare()
        for pixels in batches:
            yield self._image_features(pixels, tower)

    def _image_features(self, pixels: Tensor, tower: Callable[[Tensor], Tensor]) -> Tensor:
        beside = self.device.type == "cuda" and pixels.device.type == "cpu"
        if beside:  # copy while the device still computes what it was given before
            pixels = pixels.pin_memory()
        pixels = pixels.to(self.device, non_blocking=beside).to(getattr(torch, self.precision))
        features = tower(pixels)
        if features.shape != (len(pixels), self.config.embed_dim):
            raise ModelError(
                f"The image encoder returned features of shape {tuple(features.shape)} for "
                f"{len(pixels)} images; expected ({len(pixels)}, {self.config.embed_dim})."
            )
        return F.normalize(to_float32(features), dim=-1)

    @torch.no_grad()
    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Return text features of whole prompts: (C, D) unit vectors."""
        self.require_text()
        tokens = self.tokenize(texts)
        parts = [
            self._encode_tokens(tokens[start : start + TEXTS_PER_BATCH])
            for start in range(0, len(tokens), TEXTS_PER_BATCH)
        ]
        return torch.cat([self.log_logit_scale.new_empty(0, self.config.embed_dim), *parts])

    def _encode_tokens(self, tokens: list[list[int]]) -> Tensor:
        tower = self.require_text()
        end = torch.tensor([len(ids) - 1 for ids in tokens], device=self.device)
        length = max(len(ids) for ids in tokens) if tower.is_causal else tower.context_length
        padded = torch.full((len(tokens), length), self.tokenizer.pad_id)
        for row, ids in zip(padded, tokens, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        features = tower(tower.embed(padded.to(self.device)), end)
        return F.normalize(features, dim=-1)

    def preprocess(self, image: ImageSource) -> Tensor:
        """Return an image (path, bytes, PIL image or array) as (3, S, S) normalised pixels."""
        return torch.from_numpy(self.preprocessing.pixels(open_image(image)))

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return token ids with start and end token; a text beyond the context is an error."""
        return self.tokenizer(texts)


def views_per_batch(visual: nn.Module) -> int:
    """Return how many views run together on a CPU: 16, or fewer of many tokens, a power of two."""
    # It follows from the image encoder alone, because it decides the last bits of features.
    size, tokens = VIEWS_PER_BATCH, getattr(visual, "tokens", 1)
    while size > 1 and size * tokens > TOKENS_PER_BATCH:
        size //= 2
    return size


def view_batches(count: int, *, size: int = VIEWS_PER_BATCH) -> list[slice]:
    """Cut views into the batches that run together on a CPU: 1, 7, 8, then `size` each.

    Example:
        >>> [(batch.start, batch.stop) for batch in view_batches(40)]
        [(0, 1), (1, 8), (8, 16), (16, 32), (32, 40)]
    """
    inner = {0, 1, 8, *range(size, count, size)}
    borders = [*sorted(border for border in inner if border < count), count]
    return [slice(start, stop) for start, stop in pairwise(borders)]


class _Function(nn.Module):
    """An image encoder that is a plain function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.forward = function


def _as_module(visual: Callable[[Tensor], Tensor]) -> nn.Module:
    return visual if isinstance(visual, nn.Module) else _Function(visual)


def image_tower(config: ModelConfig) -> nn.Module:
    """Return the image tower that a config describes, with weights still to be set."""
    vision, dim = config.vision, config.embed_dim
    if vision is None or isinstance(vision, GivenVisionConfig):
        raise ModelError("A model whose config has no image tower needs one: pass `visual`.")
    if isinstance(vision, VitConfig):
        return VisionTransformer(vision, dim, activation=config.activation)
    if isinstance(vision, SiglipVitConfig):
        return SiglipVisionTransformer(vision)
    if isinstance(vision, OpenClipVisionConfig):
        return build_open_clip_tower(vision, dim, quick_gelu=config.activation == "quick_gelu")
    if isinstance(vision, SmallResNetConfig):
        return SmallResNet(vision, dim)
    return ModifiedResNet(vision, dim)


def _to_openai_names(
    _module: nn.Module, state: dict[str, Any], prefix: str, _metadata: dict[str, Any]
) -> None:
    for key in [key for key in state if key.startswith(f"{prefix}text.")]:
        state[prefix + key.removeprefix(f"{prefix}text.")] = state.pop(key)
    state[f"{prefix}logit_scale"] = state.pop(f"{prefix}log_logit_scale")


def _from_openai_names(_module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    for key in [key for key in state if key.startswith(prefix)]:
        name = key.removeprefix(prefix)
        if name == "logit_scale":
            state[f"{prefix}log_logit_scale"] = state.pop(key)
        elif not name.startswith(("visual.", "text.")) and name not in _NO_TOWER:
            state[f"{prefix}text.{name}"] = state.pop(key)


def random_clip(config: ClipConfig, *, seed: int = 0) -> Clip:
    """Return a frozen model of any shape with random weights, for estimates and benchmarks."""
    model = Clip(
        config,
        tokenizer=Tokenizer.clip_default(),
        preprocessing=Preprocess.openai(config.vision.image_size),
        fingerprint=f"random weights, seed {seed}",
    )
    initialise(model, torch.Generator().manual_seed(seed))
    return model.eval().requires_grad_(False)


@torch.no_grad()
def initialise(model: Clip, generator: torch.Generator) -> None:
    """Draw random weights with CLIP's scales: feature magnitudes are those of a trained model."""
    for name, parameter in model.named_parameters():
        if name == "log_logit_scale":
            parameter.fill_(math.log(100.0))
        elif name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 1 and not name.endswith(("class_embedding", "probe")):
            parameter.fill_(1.0)  # gains of layer and batch norms
        else:
            drawn = torch.empty(parameter.shape)  # row-major, whatever the parameter's order
            std = _initial_std(name, parameter)
            parameter.copy_(drawn.normal_(0.0, std, generator=generator))


def _initial_std(name: str, parameter: nn.Parameter) -> float:
    if "token_embedding" in name:
        return 0.02
    if name == "text.positional_embedding":
        return 0.01
    if name.endswith(("positional_embedding", "class_embedding", "probe")):
        return 1.0 / math.sqrt(parameter.shape[-1])
    if name.endswith(("text_projection", "proj")) and parameter.ndim == 2:
        return 1.0 / math.sqrt(parameter.shape[0])
    fan_in = parameter[0].numel()
    gain = 2.0 if parameter.ndim == 4 else 1.0  # convolutions are followed by ReLU
    return float((gain / fan_in) ** 0.5)
