"""Models that open_clip or transformers already hold in memory.

Neither library is imported: a state dict, a config and a few attributes are all that is read. As
nothing here can know every variant of those libraries, one image and one text go through both
models, and a difference is an error.
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import Activation, ClipConfig, GivenVisionConfig, VisionConfig
from dtpt.clip.loading.build import assemble
from dtpt.clip.loading.formats import (
    Weights,
    build_config,
    infer_config,
    infer_text,
    parse_transformers,
    to_openai_names,
)
from dtpt.clip.loading.read import (
    Checkpoint,
    assumed_pixels,
    assumed_preprocessing,
    check_end,
    clip_tokenizer,
    in_memory,
    open_clip_cleaning,
    read_tokenizer,
)
from dtpt.clip.loading.torch_files import named_activation
from dtpt.clip.model import Clip
from dtpt.clip.pieces import Cleaning
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError

OPEN_CLIP, TRANSFORMERS = "The open_clip model", "The transformers model"
MAX_DIFFERENCE = 1e-4  # of unit features in float32, where equal models differ by 1e-6
MAX_HALF_DIFFERENCE = 3e-2

Encode = Callable[[Tensor], Any]


def from_open_clip(
    model: Any, preprocess: Any = None, *, tokenizer: Any = None, device: str = "auto"
) -> Clip:
    """Make a `Clip` of an open_clip model, with copied weights.

    An image tower of OpenAI's kind becomes ours, and the fingerprint that of the model's folder.
    Any other (EVA-02, PE-Core, ViTamin, ConvNeXt, MobileCLIP, SigLIP) is copied as it is.

    Args:
        model: an `open_clip.CLIP` or `CustomTextCLIP` with open_clip's own text tower.
        preprocess: the validation transform that open_clip returned with the model, its
            `preprocess_cfg`, or a `Preprocess`; None takes what the model carries, else CLIP's.
        tokenizer: what `open_clip.get_tokenizer` returns, for models without CLIP's vocabulary.
        device: as for `load_model`.

    Raises:
        CheckpointError: another text tower, or features that cannot be reproduced.

    Example:
        >>> theirs = open_clip.create_model("ViT-B-16", pretrained="openai")  # doctest: +SKIP
        >>> model = from_open_clip(theirs)  # doctest: +SKIP
    """
    _check_module(model, has="visual", origin=OPEN_CLIP)
    config, weights, visual = _open_clip_towers(model)
    if preprocess is None:
        preprocess = getattr(model.visual, "preprocess_cfg", None)
    if not hasattr(tokenizer, "tokenizer"):  # none is given, or CLIP's own
        remedy = "Pass `tokenizer=open_clip.get_tokenizer(...)`."
        words = clip_tokenizer(config, origin=OPEN_CLIP, remedy=remedy)
    else:
        name = tokenizer.clean_fn.__name__.removeprefix("_clean_")
        clean, length = open_clip_cleaning(name, origin=OPEN_CLIP), config.text.context_length
        words = _transformers_tokenizer(tokenizer.tokenizer, length, clean=clean)
    size = config.vision.image_size
    checkpoint = Checkpoint(
        OPEN_CLIP,
        config,
        words,
        _open_clip_preprocessing(preprocess, size=size),
        weights,
        visual=visual,
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


def _transformers_tokenizer(
    tokenizer: Any, context_length: int, *, clean: Cleaning | None = None
) -> Tokenizer:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        kind = type(tokenizer).__name__
        raise CheckpointError(f"{TRANSFORMERS}: {kind} has no tokenizer.json. Use AutoTokenizer.")
    settings = {name: getattr(tokenizer, name, None) for name in ("pad_token", "padding_side")}
    settings = {name: value for name, value in settings.items() if value is not None}
    settings["tokenizer_class"] = type(tokenizer).__name__
    data = backend.to_str().encode()
    return read_tokenizer(data, settings, context_length=context_length, clean=clean)


def _check_module(model: object, *, has: str, origin: str) -> None:
    if not isinstance(model, nn.Module) or not hasattr(model, has):
        raise CheckpointError(f"{origin} has no {has}: {type(model).__name__} is not supported.")


def _weights(model: nn.Module, *, origin: str, vision: VisionConfig | None = None) -> Weights:
    table = {name: in_memory(tensor.detach()) for name, tensor in model.state_dict().items()}
    return to_openai_names(table, origin=origin, vision=vision)


def _open_clip_towers(model: Any) -> tuple[ClipConfig, Weights, nn.Module | None]:
    """Read shapes off the weights, the rest off the modules; return an image tower not ours."""
    visual, text = model.visual, getattr(model, "text", model)
    try:
        heads = int(text.transformer.resblocks[0].attn.num_heads)
        pooling = getattr(text, "pool_type", None) or getattr(text, "text_pool_type", "argmax")
        stated = {
            "is_causal": text.attn_mask is not None,
            "reads": "last" if pooling == "last" else "end",
            "norm_eps": float(text.ln_final.eps),
        }
    except (AttributeError, LookupError, TypeError) as error:
        raise CheckpointError(f"{OPEN_CLIP} has another text tower: {error}") from error
    if _is_openai_tower(visual):
        activation, weights = _activation(model), _weights(model, origin=OPEN_CLIP)
        pool = getattr(visual, "attnpool", None)
        image_heads = pool.num_heads if pool else visual.transformer.resblocks[0].attn.num_heads
        both = (int(image_heads), heads)
        config = infer_config(weights, activation, heads=both, origin=OPEN_CLIP)
        fields, module = config.model_dump(), None
    else:
        size = getattr(visual, "image_size", 224)
        given = GivenVisionConfig(image_size=size if isinstance(size, int) else int(size[0]))
        activation, weights = _activation(text), _weights(model, origin=OPEN_CLIP, vision=given)
        fields = infer_text(weights, activation, heads=heads, origin=OPEN_CLIP)
        fields["vision"], module = given, copy.deepcopy(visual).float().cpu().eval()
    fields["text"] |= stated | {"projection_bias": "text_projection_bias" in weights}
    return build_config(fields, origin=OPEN_CLIP), weights, module


def _is_openai_tower(visual: nn.Module) -> bool:
    names = visual.state_dict().keys()
    if "attnpool.positional_embedding" in names:
        return True
    others = any(".ls_" in name or name.startswith("attn_pool") for name in names)
    plain = {"conv1.weight", "class_embedding", "ln_pre.weight", "proj"} <= names and not others
    return plain and getattr(visual, "pool_type", "tok") == "tok"


def _activation(model: nn.Module) -> Activation:
    modules = [module for name, module in model.named_modules() if name.endswith(".gelu")]
    kinds = {type(module).__name__ for module in modules}
    if kinds == {"GELU"} and {getattr(module, "approximate", "") for module in modules} == {"tanh"}:
        return "gelu_tanh"
    activation = named_activation(kinds)
    if activation is None:
        raise CheckpointError(f"{OPEN_CLIP} has unknown or mixed activations: {sorted(kinds)}.")
    return activation


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
