"""A checkpoint in one form, whatever format it came in."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dtpt.clip.config import Activation, ClipConfig
from dtpt.clip.loading.documents import read_bytes
from dtpt.clip.loading.tensors import StoredTensor
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError

CLIP_VOCABULARY = 49408  # tokens of the vocabulary that every released CLIP shares


@dataclass(frozen=True)
class Checkpoint:
    """Everything a model is made of; weights are described, not read.

    Attributes:
        origin: file or folder, for messages.
        config: shapes and activation.
        weights: under OpenAI's names.
        tokenizer: text to token ids.
        preprocessing: image to pixels.
    """

    origin: str
    config: ClipConfig
    weights: Mapping[str, StoredTensor]
    tokenizer: Tokenizer
    preprocessing: Preprocess


def find_tokenizer(folder: Path, config: ClipConfig, *, named: str | None = None) -> Tokenizer:
    """The folder's own tokenizer, or CLIP's when the folder has none and the vocabulary is CLIP's.

    Args:
        folder: where `tokenizer.json`, or `merges.txt` with `vocab.json`, may lie.
        config: context length and vocabulary size to fit.
        named: a tokenizer that the config names; then CLIP's own is no substitute.

    Raises:
        CheckpointError: there is none, or it has more tokens than the model has embeddings.
    """
    context = config.text.context_length
    merges, vocab = folder / "merges.txt", folder / "vocab.json"
    if (folder / "tokenizer.json").is_file():
        data = read_bytes(folder / "tokenizer.json")
        tokenizer = Tokenizer.from_json(data, context_length=context)
    elif merges.is_file():
        words = read_bytes(vocab) if vocab.is_file() else None
        tokenizer = Tokenizer.from_merges(words, read_bytes(merges), context_length=context)
    elif named is None and config.text.vocab_size == CLIP_VOCABULARY:
        tokenizer = Tokenizer.clip_default(context_length=context)
    else:
        wanted = f" (the config names {named!r})" if named else ""
        raise CheckpointError(f"{folder} has no tokenizer.json{wanted}. Save the tokenizer there.")
    check_tokenizer(tokenizer, config, origin=str(folder))
    return tokenizer


def check_tokenizer(tokenizer: Tokenizer, config: ClipConfig, *, origin: str) -> None:
    """Every token must have an embedding."""
    if tokenizer.vocab_size > config.text.vocab_size:
        raise CheckpointError(
            f"{origin}: the tokenizer has {tokenizer.vocab_size} tokens, the model embeds "
            f"{config.text.vocab_size}."
        )


def check_image_size(preprocessing: Preprocess, config: ClipConfig, *, origin: str) -> None:
    """The pictures must come out in the size that the image tower takes."""
    if preprocessing.size != config.vision.image_size:
        raise CheckpointError(
            f"{origin}: preprocessing makes pictures of {preprocessing.size} pixels, the model "
            f"takes {config.vision.image_size}."
        )


def check_activation(asked: Activation | None, config: ClipConfig, *, origin: str) -> None:
    """An activation that the caller asks for must be the one the checkpoint declares."""
    if asked is not None and asked != config.activation:
        raise CheckpointError(
            f"{origin} declares the activation {config.activation!r}, not {asked!r}. Leave out "
            "`activation`: it is only for files that do not say."
        )
