"""Models that open_clip or transformers already hold in memory.

Neither library is imported: a state dict, a config and a few attributes are all that is read. As
nothing here can know every variant of those libraries, one picture and one text go through both
models, and a difference is an error.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import Activation, ClipConfig
from dtpt.clip.loading import configs
from dtpt.clip.loading.checkpoint import CLIP_VOCABULARY, Checkpoint, Description
from dtpt.clip.loading.folders import assumed_pixels, check_end
from dtpt.clip.loading.layouts import to_openai_names
from dtpt.clip.loading.load import assemble
from dtpt.clip.loading.shapes import infer_config
from dtpt.clip.loading.tensors import Weights, in_memory
from dtpt.clip.loading.torchscript import named_activation
from dtpt.clip.model import Clip
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError

OPEN_CLIP = "The open_clip model"
TRANSFORMERS = "The transformers model"
LARGEST_DIFFERENCE = 1e-4  # of unit features in float32, where a right pair differs by 1e-6
LARGEST_HALF_DIFFERENCE = 3e-2

Encode = Callable[[Tensor], Any]


def from_open_clip(model: Any, preprocess: Any = None, *, device: str = "auto") -> Clip:
    """Make a `Clip` of a model that open_clip built; its weights are copied.

    The fingerprint is the one of the same model saved as a folder.

    Args:
        model: an `open_clip.CLIP` or `CustomTextCLIP` with CLIP's own vocabulary.
        preprocess: the validation transform that open_clip returned with the model, its
            `preprocess_cfg`, or a `Preprocess`; None takes what the model carries, else CLIP's.
        device: as for `load_model`.

    Raises:
        CheckpointError: not a CLIP of OpenAI's kind, or its features cannot be reproduced.

    Example:
        >>> theirs = open_clip.create_model("ViT-B-16", pretrained="openai")  # doctest: +SKIP
        >>> model = from_open_clip(theirs)  # doctest: +SKIP
    """
    _check_module(model, has="visual", origin=OPEN_CLIP)
    weights = _weights(model, origin=OPEN_CLIP)
    config = _open_clip_config(model, weights)
    if config.text.vocab_size != CLIP_VOCABULARY:
        raise CheckpointError(
            f"{OPEN_CLIP} embeds {config.text.vocab_size} tokens, CLIP's vocabulary has "
            f"{CLIP_VOCABULARY}. Save it with its tokenizer.json and load the folder."
        )
    carried = getattr(model.visual, "preprocess_cfg", None)
    settings = preprocess if preprocess is not None else carried
    description = Description(
        OPEN_CLIP,
        config,
        Tokenizer.clip_default(context_length=config.text.context_length),
        _open_clip_pixels(settings, size=config.vision.image_size),
        notes=() if settings else assumed_pixels(f"{OPEN_CLIP} carries no preprocess_cfg"),
    )
    clip = assemble(Checkpoint(OPEN_CLIP, description, weights), device=device)
    with _evaluating(model):
        _check_same(clip, model, images=model.encode_image, texts=model.encode_text)
    return clip


def from_transformers(model: Any, processor: Any = None, *, device: str = "auto") -> Clip:
    """Make a `Clip` of a transformers `CLIPModel`; its weights are copied.

    The fingerprint is the one of the same model and processor saved by `save_pretrained`.

    Args:
        model: a `CLIPModel`.
        processor: its `CLIPProcessor` or `CLIPImageProcessor`; None takes CLIP's preprocessing and
            vocabulary.
        device: as for `load_model`.

    Raises:
        CheckpointError: not a CLIP of OpenAI's kind, or its features cannot be reproduced.

    Example:
        >>> model = from_transformers(CLIPModel.from_pretrained(name))  # doctest: +SKIP
    """
    _check_module(model, has="get_text_features", origin=TRANSFORMERS)
    document = model.config.to_dict()
    config = configs.from_transformers(document, origin=TRANSFORMERS)
    tokenizer = _transformers_tokenizer(processor, config)
    check_end(
        configs.transformers_end(document, origin=TRANSFORMERS), tokenizer, origin=TRANSFORMERS
    )
    description = Description(
        TRANSFORMERS,
        config,
        tokenizer,
        _transformers_pixels(processor, size=config.vision.image_size),
        notes=() if processor else assumed_pixels(f"{TRANSFORMERS} came without processor"),
    )
    weights = _weights(model, origin=TRANSFORMERS)
    clip = assemble(Checkpoint(TRANSFORMERS, description, weights), device=device)
    with _evaluating(model):
        _check_same(clip, model, images=model.get_image_features, texts=model.get_text_features)
    return clip


def _check_module(model: object, *, has: str, origin: str) -> None:
    if not isinstance(model, nn.Module) or not hasattr(model, has):
        raise CheckpointError(f"{origin} is none: it has no {has} ({type(model).__name__}).")


def _weights(model: nn.Module, *, origin: str) -> Weights:
    table = {name: in_memory(tensor.detach()) for name, tensor in model.state_dict().items()}
    return to_openai_names(table, origin=origin)


def _open_clip_config(model: Any, weights: Weights) -> ClipConfig:
    """Read shapes off the weights, heads and activation off the modules."""
    visual, text = model.visual, getattr(model, "text", model)
    try:
        pool = getattr(visual, "attnpool", None)
        vision_heads = pool.num_heads if pool else visual.transformer.resblocks[0].attn.num_heads
        heads = (int(vision_heads), int(text.transformer.resblocks[0].attn.num_heads))
    except (AttributeError, LookupError, TypeError) as error:
        raise CheckpointError(f"{OPEN_CLIP} is not a CLIP of OpenAI's kind: {error}") from error
    activation = _module_activation(model)
    return infer_config(weights, activation, heads=heads, origin=OPEN_CLIP)


def _module_activation(model: nn.Module) -> Activation:
    named = model.named_modules()
    kinds = {type(module).__name__ for name, module in named if name.endswith(".gelu")}
    found = named_activation(kinds)
    if found is None:
        raise CheckpointError(f"{OPEN_CLIP} has the activations {sorted(kinds)}, not one known.")
    return found


def _open_clip_pixels(settings: Any, *, size: int) -> Preprocess:
    if not settings:
        return Preprocess.openai(size)
    if isinstance(settings, Preprocess):
        return settings
    if isinstance(settings, Mapping):
        return Preprocess.from_open_clip(settings, size=size)
    return Preprocess.from_transforms(getattr(settings, "transforms", [settings]))


def _transformers_tokenizer(processor: Any, config: ClipConfig) -> Tokenizer:
    context = config.text.context_length
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is not None:
        data = tokenizer.backend_tokenizer.to_str().encode()
        return Tokenizer.from_json(data, context_length=context)
    if config.text.vocab_size != CLIP_VOCABULARY:
        raise CheckpointError(
            f"{TRANSFORMERS} embeds {config.text.vocab_size} tokens, CLIP's vocabulary has "
            f"{CLIP_VOCABULARY}. Pass its CLIPProcessor, which has the tokenizer."
        )
    return Tokenizer.clip_default(context_length=context)


def _transformers_pixels(processor: Any, *, size: int) -> Preprocess:
    if processor is None:
        return Preprocess.openai(size)
    return Preprocess.from_hf(getattr(processor, "image_processor", processor).to_dict())


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put somebody else's model into eval mode for a moment."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _check_same(clip: Clip, model: nn.Module, *, images: Encode, texts: Encode) -> None:
    """Compare the features of one picture of noise and of one text."""
    parameter = next(model.parameters())
    size, context = clip.preprocessing.size, clip.tokenizer.context_length
    pixels = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    text = "a photo of a cat."
    (tokens,) = clip.tokenize([text])
    ids = F.pad(torch.tensor([tokens]), (0, context - len(tokens)))  # (1, L)
    pairs = {
        "image": (clip.encode_image(pixels), images(pixels.to(parameter))),
        "text": (clip.encode_text([text]), texts(ids.to(parameter.device))),
    }
    whole = parameter.dtype == torch.float32
    limit = LARGEST_DIFFERENCE if whole else LARGEST_HALF_DIFFERENCE
    for kind, (ours, theirs) in pairs.items():
        foreign: Any = getattr(theirs, "pooler_output", theirs)
        unit = F.normalize(foreign.float().cpu(), dim=-1)
        difference = float((ours.float().cpu() - unit).abs().max())
        if not difference < limit:
            raise CheckpointError(
                f"The model in memory gives other {kind} features than ours (by {difference:.2g}): "
                "it is not a CLIP of OpenAI's kind."
            )
