"""Reading checkpoints: folders that transformers, open_clip or dtpt saved, and single files.

Whatever the format, the result is one `Checkpoint`, whose weights are described but not read. A
bare file of weights does not state which activation the model was trained with. It must come from a
config beside the file, from the file's metadata, from the archive's own class names, or from the
caller; it is never guessed.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from dtpt.clip.config import Activation, ClipConfig, ModelConfig, SiglipVitConfig
from dtpt.clip.loading import formats, torch_files
from dtpt.clip.loading.formats import StoredTensor, Weights, open_file, read_bytes, read_json
from dtpt.clip.loading.names import catalog
from dtpt.clip.loading.open_clip_configs import parse_open_clip
from dtpt.clip.pieces import MAX_FILE_BYTES as MAX_TOKENIZER_BYTES
from dtpt.clip.pieces import Cleaning, Framing, is_pieces, read_pieces
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError, explain, os_error, short_repr
from dtpt.files import printable

MAX_HEADER_BYTES = 16 << 20  # CLIP's largest header has about 0.2 MB
SAFETENSORS_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}


@dataclass(frozen=True)
class Checkpoint:
    """A whole model in one form, whatever format it came in; parts that do not fit are refused."""

    origin: str  # config, file or folder, for messages
    config: ModelConfig
    tokenizer: Tokenizer | None  # None without a text tower
    preprocessing: Preprocess
    weights: Weights  # under OpenAI's names
    states_activation: bool = True  # whether the config states it rather than taking the default
    notes: tuple[str, ...] = ()  # what was assumed because nothing states it
    visual: nn.Module | None = None  # an image tower with its weights, where it came as a module

    def __post_init__(self) -> None:
        tokens = 0 if self.tokenizer is None else self.tokenizer.vocab_size
        embedded = tokens if self.config.text is None else self.config.text.vocab_size
        if tokens > embedded:
            raise CheckpointError(
                f"{self.origin}: the tokenizer has {tokens} tokens, the model embeds {embedded}."
            )
        made = self.preprocessing.size
        taken = made if self.config.vision is None else self.config.vision.image_size
        if made != taken:
            raise CheckpointError(
                f"{self.origin}: preprocessing makes images of {made} px, the model takes {taken}."
            )

    def with_note(self, note: str) -> Self:
        return replace(self, notes=(*self.notes, note))

    def with_activation(self, activation: Activation | None) -> Self:
        """Use the caller's activation, if any, where the config does not state another."""
        stated = self.config.activation
        if activation is None or activation == stated:
            return self
        if self.states_activation:
            raise CheckpointError(
                f"{self.origin} declares the activation {stated!r}, not {activation!r}. Leave out "
                "`activation=`: it is for checkpoints that do not state it."
            )
        config = self.config.model_copy(update={"activation": activation})
        note = f"{self.origin} does not state its activation; using {activation} as given."
        return replace(self, config=config).with_note(note)

    def matched(self, expected: ClipConfig) -> Self:
        """Use the catalogue's config, from which only the activation may differ."""
        activation = self.config.activation
        if self.config != expected.model_copy(update={"activation": activation}):
            raise CheckpointError(f"{self.origin}: shapes unlike the catalogue's: {self.config}.")
        return replace(self, config=expected, states_activation=True)


# ---- folders


def read_folder(
    folder: Path, activation: Activation | None = None, *, expected: ClipConfig | None = None
) -> Checkpoint:
    """Open a folder, whichever of the known libraries saved it.

    `activation` counts where the config does not state it, and must agree where it does. With
    `expected`, the catalogue's config, shapes must agree, and its activation counts.
    """
    origin = printable(folder)
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise CheckpointError(f"{origin} cannot be read: {os_error(error)}.") from error
    kind, weights = formats.config_file(names), formats.weight_file(names)
    if kind is None:
        configs = ", ".join(formats.CONFIGS)
        raise CheckpointError(f"{origin} is not a known checkpoint: it has none of {configs}.")
    if weights is None:
        raise CheckpointError(f"{origin} has {kind} but no weights that belong to it.")
    checkpoint = _describe(folder / kind, kind)
    if expected is not None:
        checkpoint = checkpoint.matched(expected)
    checkpoint, path = checkpoint.with_activation(activation), folder / weights
    stored = read_shards(path) if weights.endswith(".index.json") else _read_weights(path)
    tensors = formats.to_openai_names(
        stored, origin=printable(path), vision=checkpoint.config.vision
    )
    return replace(checkpoint, origin=origin, weights=tensors)


def _describe(path: Path, kind: str) -> Checkpoint:
    """Return all but the weights, from a config in the format of `kind` and files beside it."""
    document, origin, folder = read_json(path), printable(path), path.parent
    named = missing = None
    clean: Cleaning | None = None
    framing: Framing | None = None
    if kind == formats.OWN_CONFIG:
        parsed = formats.parse_dtpt(document, origin=origin)
        preprocessing = Preprocess.build(document.get("preprocess"))
        framing = _framing(document, origin=origin)
    elif kind == formats.OPEN_CLIP_CONFIG:
        whole = "model_cfg" in document  # else a bare config like those in open_clip's package
        model = formats.section(document, "model_cfg", origin=origin) if whole else document
        parsed = parse_open_clip(model, origin=origin)
        text = formats.section(model, "text_cfg", origin=origin)
        named = text.get("hf_tokenizer_name")
        kwargs = formats.section(text, "tokenizer_kwargs", origin=origin)
        clean = open_clip_cleaning(kwargs.get("clean", "whitespace"), origin=origin)
        pixels = formats.section(document, "preprocess_cfg", origin=origin)
        size = parsed.config.vision.image_size
        preprocessing = Preprocess.from_open_clip(pixels, size=size)  # of nothing, OpenAI's
        if document.get("preprocess_cfg") is None:
            missing = f"{origin} has no preprocess_cfg"
    else:
        parsed = formats.parse_transformers(document, origin=origin)
        settings = _image_processor(folder)
        if settings is None:
            missing = f"{printable(folder)} has no preprocessor_config.json"
            preprocessing = assumed_pixels(parsed.config)
        else:
            preprocessing = Preprocess.from_hf(settings)
    tokenizer = _find_tokenizer(folder, parsed.config, named=named, clean=clean, framing=framing)
    check_end(parsed.end, tokenizer, origin=origin)
    notes = (assumed_preprocessing(missing, parsed.config),) if missing else ()
    return Checkpoint(
        origin, parsed.config, tokenizer, preprocessing, {}, parsed.states_activation, notes
    )


def _image_processor(folder: Path) -> dict[str, Any] | None:
    """Return the image processor's settings, from the file of either generation, or None."""
    older, newer = folder / "preprocessor_config.json", folder / "processor_config.json"
    if _exists(older):
        return read_json(older)
    document = read_json(newer) if _exists(newer) else {}
    settings = formats.section(document, "image_processor", origin=printable(newer))
    return settings or None


def assumed_pixels(config: ClipConfig) -> Preprocess:
    """Return the preprocessing of a checkpoint that does not state it."""
    size = config.vision.image_size
    if isinstance(config.vision, SiglipVitConfig):
        return Preprocess(size=size, mean=(0.5,) * 3, std=(0.5,) * 3, resize_mode="squash")
    return Preprocess.openai(size)


def assumed_preprocessing(reason: str, config: ClipConfig) -> str:
    """Return the note on a checkpoint that does not state its preprocessing."""
    whose = "SigLIP" if isinstance(config.vision, SiglipVitConfig) else "OpenAI's CLIP"
    return f"{reason}: images are preprocessed as for {whose} (bicubic, its mean and std)."


def _framing(document: Mapping[str, Any], *, origin: str) -> Framing | None:
    """Return how a folder of ours frames texts, for tokenizers whose own file does not tell."""
    stated = formats.section(document, "tokenizer", origin=origin)
    try:
        return Framing.model_validate(stated) if stated else None
    except ValidationError as error:
        raise CheckpointError(f"{origin}: tokenizer: {explain(error)}.") from error


def open_clip_cleaning(stated: object, *, origin: str) -> Cleaning:
    """Return what open_clip does to a text for a tokenizer of transformers."""
    if stated not in ("whitespace", "lower", "canonicalize"):
        raise CheckpointError(f"{origin}: texts are cleaned by {short_repr(stated)}: unknown.")
    cleaning: Cleaning = stated
    return cleaning


def check_end(end: object, tokenizer: Tokenizer, *, origin: str) -> None:
    """Check that the checkpoint reads the text feature at the token that ends texts."""
    expected = tokenizer.vocab_size - 1 if end == formats.LARGEST_ID else end
    if expected is not None and expected != tokenizer.end_id:
        raise CheckpointError(
            f"{origin}: the text feature is read at token {expected!r}, but the tokenizer ends "
            f"texts with {tokenizer.end_id}."
        )


def _find_tokenizer(
    folder: Path,
    config: ClipConfig,
    *,
    named: str | None,
    clean: Cleaning | None,
    framing: Framing | None,
) -> Tokenizer:
    """Return the folder's own tokenizer, or CLIP's if the vocabulary is that and none is named."""
    context = config.text.context_length
    tokenizer, merges, vocab = (folder / n for n in ("tokenizer.json", "merges.txt", "vocab.json"))
    if _exists(tokenizer):
        data, beside = read_bytes(tokenizer, MAX_TOKENIZER_BYTES), folder / "tokenizer_config.json"
        settings = read_json(beside) if _exists(beside) else {}
        return read_tokenizer(data, settings, context_length=context, clean=clean, framing=framing)
    if _exists(merges):
        words = read_bytes(vocab) if _exists(vocab) else None
        return Tokenizer.from_merges(words, read_bytes(merges), context_length=context)
    if named is None and config.text.vocab_size == formats.CLIP_VOCABULARY:
        return Tokenizer.clip_default(context_length=context)
    wanted = f" (the config names {named!r})" if named else ""
    raise CheckpointError(f"{folder} has no tokenizer.json{wanted}. Save the tokenizer there.")


def read_tokenizer(
    data: bytes,
    settings: Mapping[str, Any],
    *,
    context_length: int,
    clean: Cleaning | None = None,
    framing: Framing | None = None,
) -> Tokenizer:
    """Read a `tokenizer.json` of either kind; arguments as for `read_pieces`."""
    if not is_pieces(data):
        return Tokenizer.from_json(data, context_length=context_length)
    return read_pieces(data, settings, context_length=context_length, clean=clean, framing=framing)


def _exists(path: Path) -> bool:
    return os.path.lexists(path)  # a broken link exists: reading it is an error, not a guess


# ---- single files


def read_file(path: Path, activation: Activation | None = None) -> Checkpoint:
    """Open a single file of weights.

    With a config beside it (`<name>.json`, or the folder's own when the file is named as the
    libraries name it) everything comes from there. Otherwise shapes decide the architecture,
    tokenizer and preprocessing are CLIP's, and the activation must be stated by file or caller.
    """
    origin = printable(path)
    stored, stated, is_script = open_weights(path)
    beside = _config_beside(path)
    if beside is not None:
        checkpoint = _describe(*beside).with_activation(activation)
        tensors = formats.to_openai_names(stored, origin=origin, vision=checkpoint.config.vision)
        return replace(checkpoint, origin=origin, weights=tensors)
    tensors = formats.to_openai_names(stored, origin=origin)
    used = stated or activation or ("quick_gelu" if _is_published(path) else None)
    if used is None:
        raise CheckpointError(
            f"{origin} does not state its activation, and weights do not show it. Pass "
            "`activation='quick_gelu'` (OpenAI's models; --activation quick_gelu) or "
            "`activation='gelu'` (most others; --activation gelu), "
            "store it as the safetensors metadata 'activation', or put a config beside it as "
            f"{path.with_suffix('.json').name}."
        )
    config = formats.infer_config(tensors, used, origin=origin)
    remedy = "Put its config and tokenizer.json into a folder: local-dir:PATH."
    tokenizer = clip_tokenizer(config, origin=origin, remedy=remedy)
    preprocessing = Preprocess.openai(config.vision.image_size)
    checkpoint = Checkpoint(origin, config, tokenizer, preprocessing, tensors)
    checkpoint = checkpoint.with_activation(activation)
    note = f"{origin} holds weights only: tokenizer, preprocessing and heads are OpenAI's."
    return checkpoint if is_script else checkpoint.with_note(note)


def clip_tokenizer(config: ClipConfig, *, origin: str, remedy: str) -> Tokenizer:
    """Return CLIP's own tokenizer, for a checkpoint that has none."""
    if config.text.vocab_size != formats.CLIP_VOCABULARY:
        raise CheckpointError(
            f"{origin} embeds {config.text.vocab_size} tokens, CLIP's vocabulary has "
            f"{formats.CLIP_VOCABULARY}. {remedy}"
        )
    return Tokenizer.clip_default(context_length=config.text.context_length)


def _config_beside(path: Path) -> tuple[Path, str] | None:
    """Return the config that belongs to the file, and whose format it has."""
    beside, kind = path.with_suffix(".json"), None
    if _exists(beside):
        document = read_json(beside)
        if document.keys() & {"model_cfg", "vision_cfg"}:
            kind = formats.OPEN_CLIP_CONFIG
        elif "model_type" in document:
            kind = formats.TRANSFORMERS_CONFIG
        elif "format" in document:
            kind = formats.OWN_CONFIG
        else:
            raise CheckpointError(f"{beside} is not a config of open_clip, transformers or dtpt.")
        return beside, kind
    if path.name in formats.WEIGHT_NAMES:
        kind = formats.config_file({neighbour.name for neighbour in path.parent.iterdir()})
    return (path.parent / kind, kind) if kind else None


def _is_published(path: Path) -> bool:
    """Return whether the file is one that OpenAI published, bit for bit."""
    published = {entry.torchscript_sha256 for entry in catalog().values()}
    return torch_files.is_archive(path) and file_digest(path) in published


def file_digest(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


# ---- tensors


def open_weights(path: Path) -> tuple[Weights, str | None, bool]:
    """Open a file of weights, whose format is decided by its first bytes, not by its suffix.

    Returns:
        The weights, the activation if the file states one, and whether it is a TorchScript archive.
    """
    with open_file(path) as file:
        head = file.read(16)
    if head[8:9] == b"{":
        weights, metadata = read_safetensors(path)
        return weights, metadata.get("activation"), False
    if head[:4] != b"PK\x03\x04" and head[:1] != b"\x80":
        lfs = " It is a Git LFS pointer: run `git lfs pull`." if head[:8] == b"version " else ""
        raise CheckpointError(
            f"{printable(path)} is neither safetensors nor written by torch.{lfs}"
        )
    content = torch_files.read_torch_file(path)
    return content.weights, content.activation, content.is_script


def _read_weights(path: Path) -> Weights:
    if path.suffix == ".safetensors":
        return read_safetensors(path)[0]
    return torch_files.read_torch_file(path).weights


def read_safetensors(path: Path) -> tuple[Weights, Mapping[str, str]]:
    """Open a safetensors file: its tensors and its text metadata."""
    with open_file(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{path} has a header of {length} bytes; {MAX_HEADER_BYTES} allowed.")
    try:
        file: Any = safe_open(path, framework="pt", device="cpu")
        tensors = {name: _safetensor(file, name, path=path) for name in list(file.keys())}
        return tensors, dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not an intact safetensors file: {error}") from error


def _safetensor(file: Any, name: str, *, path: Path) -> StoredTensor:
    part = file.get_slice(name)
    stored = str(part.get_dtype())

    def read() -> Tensor:
        try:
            tensor: Tensor = file.get_tensor(name)
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(f"{path}: tensor {name} cannot be read: {error}") from error
        return tensor

    return StoredTensor(tuple(part.get_shape()), SAFETENSORS_DTYPES.get(stored, stored), read)


def in_memory(tensor: Tensor) -> StoredTensor:
    """Describe a tensor that is already there (or mapped)."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return StoredTensor(tuple(tensor.shape), dtype, lambda: tensor)


def read_shards(index: Path) -> Weights:
    """Open the files that a `*.index.json` distributes the weights over."""
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(v, str) for v in files.values()):
        raise CheckpointError(f"{index} has no weight_map of tensor names to file names.")
    shards: dict[str, Weights] = {}
    for name in sorted(set(files.values())):
        if Path(name).name != name or "\\" in name or name in ("", ".", ".."):
            raise CheckpointError(f"{index} points outside its folder: {name!r}.")
        if not os.path.exists(index.parent / name):  # False also for names that no file has
            raise CheckpointError(f"{index} names the shard {name}, which is missing.")
        shards[name] = _read_weights(index.parent / name)
    absent = [tensor for tensor, shard in files.items() if tensor not in shards[shard]]
    if absent:
        raise CheckpointError(f"{index} lists {absent[0]} in {files[absent[0]]}, which lacks it.")
    return {tensor: shards[shard][tensor] for tensor, shard in files.items()}
