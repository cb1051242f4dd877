"""Models that open_clip or transformers already hold in memory.

Neither library is imported: a state dict, a config and a few attributes are all that is read. As
nothing here can know every variant of those libraries, one image and one text go through both
models, and a difference is an error.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import ClipConfig
from dtpt.clip.loading.build import assemble
from dtpt.clip.loading.formats import Weights, infer_config, parse_transformers, to_openai_names
from dtpt.clip.loading.read import (
    Checkpoint,
    assumed_pixels,
    assumed_preprocessing,
    check_end,
    clip_tokenizer,
    in_memory,
    read_tokenizer,
)
from dtpt.clip.loading.torch_files import named_activation
from dtpt.clip.model import Clip
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError

OPEN_CLIP, TRANSFORMERS = "The open_clip model", "The transformers model"
MAX_DIFFERENCE = 1e-4  # of unit features in float32, where equal models differ by 1e-6
MAX_HALF_DIFFERENCE = 3e-2

Encode = Callable[[Tensor], Any]


def from_open_clip(model: Any, preprocess: Any = None, *, device: str = "auto") -> Clip:
    """Make a `Clip` of an open_clip model, with copied weights and a folder's fingerprint.

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
    if preprocess is None:
        preprocess = getattr(model.visual, "preprocess_cfg", None)
    remedy = "Save it with its tokenizer.json and load the folder."
    checkpoint = Checkpoint(
        OPEN_CLIP,
        config,
        clip_tokenizer(config, origin=OPEN_CLIP, remedy=remedy),
        _open_clip_preprocessing(preprocess, size=config.vision.image_size),
        weights,
    )
    if not preprocess:
        note = assumed_preprocessing(f"{OPEN_CLIP} has no preprocess_cfg", config)
        checkpoint = checkpoint.with_note(note)
    clip = assemble(checkpoint, device=device, max_model_size=math.inf)
    _check_same(clip, model, images=model.encode_image, texts=model.encode_text)
    return clip


def from_transformers(model: Any, processor: Any = None, *, device: str = "auto") -> Clip:
    """Make a `Clip` of a transformers model, with copied weights and a folder's fingerprint.

    Args:
        model: a `CLIPModel`, `MetaClip2Model` or `SiglipModel`.
        processor: its processor or image processor; None takes CLIP's preprocessing and vocabulary.
        device: as for `load_model`.

    Raises:
        CheckpointError: not a CLIP of OpenAI's kind, or its features cannot be reproduced.

    Example:
        >>> model = from_transformers(CLIPModel.from_pretrained(name))  # doctest: +SKIP
    """
    _check_module(model, has="get_text_features", origin=TRANSFORMERS)
    parsed = parse_transformers(model.config.to_dict(), origin=TRANSFORMERS)
    config, weights = parsed.config, _weights(model, origin=TRANSFORMERS)
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None:
        remedy = "Pass its CLIPProcessor, which has the tokenizer."
        tokenizer = clip_tokenizer(config, origin=TRANSFORMERS, remedy=remedy)
    else:
        tokenizer = _transformers_tokenizer(tokenizer, config.text.context_length)
    check_end(parsed.end, tokenizer, origin=TRANSFORMERS)
    if processor is None:
        preprocessing = assumed_pixels(config)
        missing = f"{TRANSFORMERS} has no processor"
        notes: tuple[str, ...] = (assumed_preprocessing(missing, config),)
    else:
        settings = getattr(processor, "image_processor", processor).to_dict()
        preprocessing, notes = Preprocess.from_hf(settings), ()
    checkpoint = Checkpoint(TRANSFORMERS, config, tokenizer, preprocessing, weights, notes=notes)
    clip = assemble(checkpoint, device=device, max_model_size=math.inf)
    _check_same(clip, model, images=model.get_image_features, texts=model.get_text_features)
    return clip


def _transformers_tokenizer(tokenizer: Any, context_length: int) -> Tokenizer:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        kind = type(tokenizer).__name__
        raise CheckpointError(f"{TRANSFORMERS}: {kind} has no tokenizer.json. Use AutoTokenizer.")
    settings = {name: getattr(tokenizer, name, None) for name in ("pad_token", "padding_side")}
    settings = {name: value for name, value in settings.items() if value is not None}
    settings["tokenizer_class"] = type(tokenizer).__name__
    return read_tokenizer(backend.to_str().encode(), settings, context_length=context_length)


def _check_module(model: object, *, has: str, origin: str) -> None:
    if not isinstance(model, nn.Module) or not hasattr(model, has):
        raise CheckpointError(f"{origin} has no {has}: {type(model).__name__} is not supported.")


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
    named = model.named_modules()
    kinds = {type(module).__name__ for name, module in named if name.endswith(".gelu")}
    activation = named_activation(kinds)
    if activation is None:
        raise CheckpointError(f"{OPEN_CLIP} has unknown or mixed activations: {sorted(kinds)}.")
    return infer_config(weights, activation, heads=heads, origin=OPEN_CLIP)


def _open_clip_preprocessing(settings: Any, *, size: int) -> Preprocess:
    if not settings:
        return Preprocess.openai(size)
    if isinstance(settings, Preprocess):
        return settings
    if isinstance(settings, Mapping):
        return Preprocess.from_open_clip(settings, size=size)
    return Preprocess.from_transforms(getattr(settings, "transforms", [settings]))


def _check_same(clip: Clip, model: nn.Module, *, images: Encode, texts: Encode) -> None:
    """Compare the features of one image of noise and of one text."""
    parameter = next(model.parameters())
    size, context = clip.preprocessing.size, clip.tokenizer.context_length
    pixels = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    text = "a photo of a cat."
    (tokens,) = clip.tokenize([text])
    rest = context - len(tokens)
    ids = F.pad(torch.tensor([tokens]), (0, rest), value=clip.tokenizer.pad_id)  # (1, L)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            theirs = {
                "image": images(pixels.to(parameter)),
                "text": texts(ids.to(parameter.device)),
            }
    finally:
        for module, mode in modes:
            module.training = mode
    whole = parameter.dtype == torch.float32
    limit = MAX_DIFFERENCE if whole else MAX_HALF_DIFFERENCE
    ours = {"image": clip.encode_image(pixels), "text": clip.encode_text([text])}
    for kind, output in theirs.items():
        features: Any = getattr(output, "pooler_output", output)
        unit = F.normalize(features.float().cpu(), dim=-1)
        difference = float((ours[kind].float().cpu() - unit).abs().max())
        if not difference < limit:
            raise CheckpointError(
                f"The {kind} features of the model in memory differ from ours by {difference:.2g}: "
                "it is not a CLIP of OpenAI's kind."
            )
