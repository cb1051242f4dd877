"""CLIP: an image tower and a text tower that meet in one space of unit vectors."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import ClipConfig, Precision, SmallResNetConfig, VitConfig
from dtpt.clip.precision import cast_tower, widened
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.resnet import ModifiedResNet
from dtpt.clip.small_resnet import SmallResNet
from dtpt.clip.text import TextTower
from dtpt.clip.tokenizer import Tokenizer
from dtpt.clip.vision_transformer import VisionTransformer
from dtpt.images import ImageSource, open_image

TEXTS_PER_BATCH = 256
VIEWS_PER_BATCH = 16  # on a CPU, from view 16 on
TOKENS_PER_BATCH = 1600  # so that the widest tensor of a transformer is used while it is near


class Clip(nn.Module):
    """A CLIP model ready for inference: frozen weights, tokenizer and preprocessing together.

    `state_dict()` speaks OpenAI's key names, in which the text tower has no prefix of its own.

    Example:
        >>> from dtpt.clip import load_model
        >>> model = load_model("pocket", device="cpu")
        >>> model.encode_image(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 256])

    Args:
        config: shapes and activation.
        tokenizer: text to token ids.
        preprocessing: image to pixels.
        fingerprint: sha256 over config, weights, tokenizer and preprocessing; caches and runs are
            keyed by it. The loader computes it.
        remarks: what the loader had to assume, in sentences for people.

    Attributes:
        name: by which `load_model` finds it again; "" for a model that came otherwise.
    """

    def __init__(
        self,
        config: ClipConfig,
        *,
        tokenizer: Tokenizer,
        preprocessing: Preprocess,
        fingerprint: str = "",
        remarks: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.preprocessing = preprocessing
        self.fingerprint = fingerprint
        self.remarks = remarks
        self.name = ""
        self.visual = _image_tower(config)
        self.text = TextTower(config.text, config.embed_dim, activation=config.activation)
        self.log_logit_scale = nn.Parameter(torch.empty(()))
        self.register_state_dict_post_hook(_to_openai_names)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_from_openai_names)  # type: ignore[no-untyped-call]

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
        return str(self.text.positional_embedding.dtype).removeprefix("torch.")

    def in_precision(self, precision: Precision) -> Self:
        """Convert the towers' weights, once and for all; features stay float32."""
        cast_tower(self.visual, precision)
        cast_tower(self.text, precision)
        return self

    @property
    def logit_scale(self) -> float:
        """Return the factor that multiplies cosines (the paper's τ), about 100 for CLIP."""
        return float(self.log_logit_scale.detach().cpu().double().exp())  # MPS has no float64

    @torch.no_grad()
    def encode_image(self, pixels: Tensor) -> Tensor:
        """Return image features: (N, 3, S, S) pixels -> (N, D) unit vectors."""
        return self._image_features(pixels, self.visual)

    def _image_features(self, pixels: Tensor, tower: Callable[[Tensor], Tensor]) -> Tensor:
        weights = self.text.positional_embedding  # where, and in which precision, towers compute
        beside = self.device.type == "cuda" and pixels.device.type == "cpu"
        if beside:  # copy while the device still computes what it was given before
            pixels = pixels.pin_memory()
        pixels = pixels.to(weights.device, non_blocking=beside).to(weights.dtype)
        return F.normalize(widened(tower(pixels)), dim=-1)

    @torch.no_grad()
    def encode_views(
        self, pixels: Tensor, *, progress: Callable[[int, int], object] | None = None
    ) -> Tensor:
        """Return the features of an image's views: (N, 3, S, S) pixels -> (N, D) unit vectors.

        On a CPU the views run in fixed batches (see `view_batches`), so that the features of the
        first 1, 8, 16, 32, ... views are the same numbers, bit for bit, however many views follow.
        Accelerators take all in one pass.

        Args:
            pixels: the original view first.
            progress: called with the number of views done and N after each batch.
        """
        count = len(pixels)
        on_cpu, size = self.device.type == "cpu", views_per_batch(self.config)
        batches = view_batches(count, size=size) if on_cpu else [slice(0, count)]
        tower = self.visual.prepared()
        parts = [self.log_logit_scale.new_empty(0, self.config.embed_dim)]
        for batch in batches:
            parts.append(self._image_features(pixels[batch], tower))
            if progress is not None:
                progress(batch.stop, count)
        return torch.cat(parts)

    @torch.no_grad()
    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Return text features of whole prompts: (C, D) unit vectors."""
        tokens = self.tokenize(texts)
        parts = [
            self._encode_tokens(tokens[start : start + TEXTS_PER_BATCH])
            for start in range(0, len(tokens), TEXTS_PER_BATCH)
        ]
        return torch.cat([self.log_logit_scale.new_empty(0, self.config.embed_dim), *parts])

    def _encode_tokens(self, tokens: list[list[int]]) -> Tensor:
        end = torch.tensor([len(ids) - 1 for ids in tokens], device=self.device)
        padded = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in tokens], batch_first=True)
        features = self.text(self.text.embed(padded.to(self.device)), end)
        return F.normalize(features, dim=-1)

    def preprocess(self, image: ImageSource) -> Tensor:
        """Return an image (path, bytes, PIL image or array) as (3, S, S) normalised pixels."""
        return torch.from_numpy(self.preprocessing.pixels(open_image(image)))

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return token ids with start and end token; a text beyond the context is an error."""
        return self.tokenizer(texts)


def views_per_batch(config: ClipConfig) -> int:
    """Return how many views run together on a CPU: 16, or fewer of many tokens, a power of two.

    It follows from the model alone, because it decides the last bits of features.
    """
    size = VIEWS_PER_BATCH
    if isinstance(config.vision, VitConfig):
        while size > 1 and size * config.vision.tokens > TOKENS_PER_BATCH:
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


def _image_tower(config: ClipConfig) -> VisionTransformer | ModifiedResNet | SmallResNet:
    if isinstance(config.vision, VitConfig):
        return VisionTransformer(config.vision, config.embed_dim, activation=config.activation)
    if isinstance(config.vision, SmallResNetConfig):
        return SmallResNet(config.vision, config.embed_dim)
    return ModifiedResNet(config.vision, config.embed_dim)


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
        elif not name.startswith(("visual.", "text.")) and name != "log_logit_scale":
            state[f"{prefix}text.{name}"] = state.pop(key)


@torch.no_grad()
def initialise(model: Clip, generator: torch.Generator) -> None:
    """Draw random weights with CLIP's scales, from an explicit generator.

    Used to train from nothing and to test: feature magnitudes come out as in a trained model.
    """
    for name, parameter in model.named_parameters():
        if name == "log_logit_scale":
            parameter.fill_(math.log(100.0))
        elif name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 1 and "class_embedding" not in name:
            parameter.fill_(1.0)  # gains of layer and batch norms
        else:
            drawn = torch.empty(parameter.shape)  # in plain order, whatever the parameter's own
            std = _initial_std(name, parameter)
            parameter.copy_(drawn.normal_(0.0, std, generator=generator))


def _initial_std(name: str, parameter: nn.Parameter) -> float:
    if "token_embedding" in name:
        return 0.02
    if name == "text.positional_embedding":
        return 0.01
    if "positional_embedding" in name or "class_embedding" in name:
        return 1.0 / math.sqrt(parameter.shape[-1])
    if name.endswith(("text_projection", "proj")) and parameter.ndim == 2:
        return 1.0 / math.sqrt(parameter.shape[0])
    fan_in = parameter[0].numel()
    gain = 2.0 if parameter.ndim == 4 else 1.0  # convolutions are followed by ReLU
    return float((gain / fan_in) ** 0.5)
