"""A checkpoint in one form, whatever format it came in."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from dtpt.clip.config import Activation, ClipConfig
from dtpt.clip.loading.documents import read_bytes
from dtpt.clip.loading.tensors import StoredTensor
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError

CLIP_VOCABULARY = 49408  # tokens of the vocabulary that every released CLIP shares


@dataclass(frozen=True)
class Description:
    """Everything a model is made of but its weights; parts that do not fit together are refused.

    Attributes:
        origin: the config, for messages.
        config: shapes and activation.
        tokenizer: text to token ids.
        preprocessing: image to pixels.
        states_activation: whether the config says which activation it is, rather than leaving it to
            the default of its format.
        notes: what was assumed because nothing says it, in sentences for people.
    """

    origin: str
    config: ClipConfig
    tokenizer: Tokenizer
    preprocessing: Preprocess
    states_activation: bool = True
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        tokens, embedded = self.tokenizer.vocab_size, self.config.text.vocab_size
        if tokens > embedded:
            raise CheckpointError(
                f"{self.origin}: the tokenizer has {tokens} tokens, the model embeds {embedded}."
            )
        made, taken = self.preprocessing.size, self.config.vision.image_size
        if made != taken:
            raise CheckpointError(
                f"{self.origin}: preprocessing makes pictures of {made} pixels, the model takes "
                f"{taken}."
            )

    def with_activation(self, asked: Activation | None) -> Self:
        """Return the description with the activation that the caller asks for, if any.

        Raises:
            CheckpointError: the config states another one.
        """
        if asked is None or asked == self.config.activation:
            return self
        if self.states_activation:
            raise CheckpointError(
                f"{self.origin} declares the activation {self.config.activation!r}, not {asked!r}. "
                "Leave out `activation`: it is only for checkpoints that do not say."
            )
        config = self.config.model_copy(update={"activation": asked})
        note = f"{self.origin} does not state its activation; {asked} was asked for."
        return replace(self, config=config, notes=(*self.notes, note))


@dataclass(frozen=True)
class Checkpoint:
    """A whole model; its weights are described, not read.

    Attributes:
        origin: file or folder, for messages.
        description: all but the weights.
        weights: under OpenAI's names.
    """

    origin: str
    description: Description
    weights: Mapping[str, StoredTensor]


def is_there(path: Path) -> bool:
    """Tell whether a path exists; a broken link does, so that reading it is an error, not a guess.

    Example:
        >>> is_there(Path("/")), is_there(Path("/no such file"))
        (True, False)
    """
    return os.path.lexists(path)


def find_tokenizer(folder: Path, config: ClipConfig, *, named: str | None = None) -> Tokenizer:
    """Return the folder's own tokenizer, or CLIP's if there is none and the vocabulary is CLIP's.

    Args:
        folder: where `tokenizer.json`, or `merges.txt` with `vocab.json`, may lie.
        config: context length and vocabulary size.
        named: a tokenizer that the config names; then CLIP's own is no substitute.

    Raises:
        CheckpointError: there is none, or it is damaged.
    """
    context = config.text.context_length
    merges, vocab = folder / "merges.txt", folder / "vocab.json"
    if is_there(folder / "tokenizer.json"):
        data = read_bytes(folder / "tokenizer.json")
        return Tokenizer.from_json(data, context_length=context)
    if is_there(merges):
        words = read_bytes(vocab) if is_there(vocab) else None
        return Tokenizer.from_merges(words, read_bytes(merges), context_length=context)
    if named is None and config.text.vocab_size == CLIP_VOCABULARY:
        return Tokenizer.clip_default(context_length=context)
    wanted = f" (the config names {named!r})" if named else ""
    raise CheckpointError(f"{folder} has no tokenizer.json{wanted}. Save the tokenizer there.")
