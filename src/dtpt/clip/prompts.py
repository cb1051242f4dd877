"""The token layout of all class prompts, and the context that is tuned.

A template such as "a photo of a {}." gives, for each class,

    [start] a photo of a | name . [end]
     └──── prefix ─────┘   └─ suffix ─┘

(some vocabularies have no start token, and some clean punctuation away).

The prefix is the same for all classes. The words of the template are the tuned context: those in
front of the name are in the prefix, those behind it at the same distance from the end of every
suffix. Punctuation is not tuned, and what touches the name ("{}.") belongs to the name, because
tokenizers may merge the two. Class names: `_` becomes a blank, nothing else.

A causal text tower runs the prefix once and each group of suffixes as a batch. Any other tower
takes the whole sequences of `PromptSet.padded`.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from dtpt.clip.loading.read import open_weights
from dtpt.clip.model import Clip
from dtpt.clip.tokenizer import Tokenizer, same_prompts
from dtpt.errors import CheckpointError, OptionError, PromptError, short_repr
from dtpt.files import printable

DEFAULT_TEMPLATE = "a photo of a {}."
BATCH_TOKENS = 64  # what one more batch costs, in tokens (see batch_by_length)


@dataclass(frozen=True)
class SuffixGroup:
    """Classes whose suffixes have about the same number of tokens and run as one batch."""

    classes: Tensor  # (G,) indices into the class list
    tokens: Tensor  # (G, S) token ids, padded behind the end token where lengths differ
    end: Tensor  # (G,) index of each end token in its row


@dataclass(frozen=True)
class PaddedPrompts:
    """Whole token sequences in class order, for a text tower that attends to every position."""

    tokens: Tensor  # (C, L) token ids, padded behind the end token
    end: Tensor  # (C,) index of each end token
    context: Tensor  # (C, n) index of each row of the context


@dataclass(frozen=True)
class PromptSet:
    """All class prompts of one class list and template."""

    names: tuple[str, ...]  # as prompted, in label order
    template: str  # with one {} for the name
    prefix: Tensor  # (P,) token ids of the shared first positions, start token included
    groups: tuple[SuffixGroup, ...]  # suffixes batched by length; they cover every class once
    tuned_prefix: tuple[int, ...]  # positions in the prefix that the context replaces
    tuned_suffix: tuple[int, ...]  # positions in every suffix, from its end token (negative)
    context: Tensor  # (n, W) initial context; its rows follow tuned_prefix, then tuned_suffix
    duplicates: tuple[tuple[str, ...], ...]  # names of one prompt ("cat", "Cat") share a feature

    @classmethod
    def build(
        cls,
        model: Clip,
        classes: Iterable[str],
        *,
        template: str = DEFAULT_TEMPLATE,
        context: Tensor | None = None,
    ) -> "PromptSet":
        """Lay out the prompts of a class list.

        Args:
            model: gives the tokenizer and the token embeddings of the template's words.
            classes: class names in label order.
            template: text with one {} where the name goes.
            context: (n, W) initial vectors instead of the template's n words (CoOp, random).

        Raises:
            ModelError: the model has no text tower.
            PromptError: an empty or invalid class list, template or context, or a prompt that is
                longer than the model's context.
        """
        require_clip(model).require_text()
        classes = class_list(classes)
        names = prompted_names(classes)
        layout = _read_template(template, model.tokenizer)
        suffixes = [_suffix(name, layout, tokenizer=model.tokenizer) for name in names]
        batches = batch_by_length([len(suffix) for suffix in suffixes])
        words = [layout.prefix[i] for i in layout.tuned_prefix]
        words += [layout.rest[i] for i in layout.tuned_rest]
        return cls(
            names=names,
            template=template,
            prefix=torch.tensor(layout.prefix, dtype=torch.long, device=model.device),
            groups=tuple(_group(members, suffixes, device=model.device) for members in batches),
            tuned_prefix=layout.tuned_prefix,
            tuned_suffix=tuple(i - len(layout.rest) for i in layout.tuned_rest),
            context=_initial_context(model, words, given=context),
            duplicates=same_prompts(classes, suffixes),
        )

    @property
    def tokens(self) -> int:
        """Count the token positions that one forward pass of a causal tower computes."""
        return len(self.prefix) + sum(group.tokens.numel() for group in self.groups)

    def padded(self, length: int, *, pad_id: int = 0) -> PaddedPrompts:
        """Return the prompts as sequences of `length` tokens, one for each class."""
        count, start, device = len(self.names), len(self.prefix), self.prefix.device
        tokens = torch.full((count, length), pad_id, device=device)  # (C, L)
        end = torch.zeros(count, dtype=torch.long, device=device)
        tokens[:, :start] = self.prefix
        for group in self.groups:
            index = torch.arange(group.tokens.shape[1], device=device)  # (S,)
            is_prompt = index <= group.end[:, None]  # (G, S)
            tokens[group.classes, start : start + len(index)] = torch.where(
                is_prompt, group.tokens, pad_id
            )
            end[group.classes] = start + group.end
        in_prefix = torch.tensor(self.tuned_prefix, dtype=torch.long, device=device)
        in_suffix = torch.tensor(self.tuned_suffix, dtype=torch.long, device=device)
        context = torch.cat([in_prefix.expand(count, -1), end[:, None] + in_suffix], dim=1)
        return PaddedPrompts(tokens, end, context)


def load_context(path: str | Path) -> Tensor:
    """Read an initial context (n, W) from a file without running code that it may contain.

    Takes a safetensors file, or a PyTorch pickle of tensors, with a tensor named `ctx`, at the top
    or under `state_dict` as CoOp saves it.
    """
    try:
        tensors, _, _ = open_weights(Path(path))
    except CheckpointError as error:
        raise PromptError(f"No context can be read: {str(error).rstrip('.')}.") from None
    for name, tensor in tensors.items():
        if name.split(".")[-1] == "ctx" and len(tensor.shape) == 2:
            return tensor.read().float()
    raise PromptError(f"{printable(path)} has no two-dimensional tensor named 'ctx'.")


def context_digest(context: Tensor) -> str:
    """Return the sha256 of a context's shape and float32 numbers."""
    numbers = context.detach().to("cpu", torch.float32).contiguous().numpy()
    return hashlib.sha256(f"{numbers.shape}:".encode() + numbers.tobytes()).hexdigest()


def placeholder_template(rows: int) -> str:
    """Return a template with `rows` words, for a context that is not made of words: "x x {}."."""
    return " ".join(["x"] * rows) + " {}."


@dataclass(frozen=True)
class _Layout:
    """A tokenised template."""

    template: str
    prefix: list[int]  # start token and the words in front
    rest: list[int]  # words behind the name that do not touch it
    tuned_prefix: tuple[int, ...]
    tuned_rest: tuple[int, ...]


def require_clip(model: object) -> Clip:
    if not isinstance(model, Clip):
        raise OptionError(f"The model must come from load_model, not {short_repr(model)}.")
    return model


def class_list(classes: Iterable[str]) -> tuple[str, ...]:
    """Return checked class names as the caller wrote them."""
    if isinstance(classes, str | bytes) or not isinstance(classes, Iterable):
        raise PromptError(f"Classes must be a list of names, got {short_repr(classes)}.")
    names = tuple(classes)
    if not names:
        raise PromptError("The class list is empty. Give class names.")
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise PromptError(f"Class {index} must be text, got {short_repr(name)}.")
        if not name.replace("_", " ").strip():
            raise PromptError(f"Class {index} has an empty name ({name!r}).")
    return names


def prompted_names(classes: Iterable[str]) -> tuple[str, ...]:
    """Return class names as prompts have them."""
    return tuple(name.replace("_", " ") for name in classes)


def _read_template(template: str, tokenizer: Tokenizer) -> _Layout:
    if not isinstance(template, str) or template.count("{}") != 1:
        raise PromptError(
            f"A template needs exactly one {{}} for the class name, got {short_repr(template)}."
        )
    before, after = template.split("{}")
    front = re.match(r"(.*\s)?", before, flags=re.DOTALL)  # up to the last blank
    back = re.search(r"(\s.*)?$", after, flags=re.DOTALL)  # from the first blank on
    front_text = front.group(0) if front else ""
    back_text = back.group(0) if back else ""
    prefix = tokenizer.encode(front_text.rstrip())
    rest, first = tokenizer.encode_rest(back_text), len(tokenizer.start)
    words = _word_positions(front_text, prefix, tokenizer=tokenizer)
    tuned_prefix = tuple(first + i for i in words)
    tuned_rest = tuple(_word_positions(back_text, rest, tokenizer=tokenizer))
    if not tuned_prefix and not tuned_rest:
        raise PromptError(f"The template {template!r} has no word to tune besides the class name.")
    return _Layout(template, [*tokenizer.start, *prefix], rest, tuned_prefix, tuned_rest)


def _word_positions(text: str, tokens: list[int], *, tokenizer: Tokenizer) -> list[int]:
    """Return the indices of tokens that are (parts of) words; all if pieces merge."""
    is_word: list[bool] = []
    pieces = re.findall(r"\w+|[^\w\s]+", tokenizer.clean(text))
    for piece in pieces:
        is_word += [any(c.isalnum() for c in piece)] * len(tokenizer.encode(piece))
    if len(is_word) != len(tokens):
        return list(range(len(tokens)))
    return [i for i, word in enumerate(is_word) if word]


def _suffix(name: str, layout: _Layout, *, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens behind the prefix of one class's prompt, end token included."""
    prompt = layout.template.replace("{}", name)
    tokens = tokenizer.encode(prompt)
    room = tokenizer.context_length - len(tokenizer.start) - 1
    if len(tokens) > room:
        length = f"The prompt of class {name!r} has {len(tokens)} tokens, the model takes {room}"
        raise PromptError(f"{length}. Shorten the name or the template.")
    head, rest = layout.prefix[len(tokenizer.start) :], layout.rest
    fits = tokens[: len(head)] == head and tokens[len(tokens) - len(rest) :] == rest
    if not fits or len(tokens) <= len(head) + len(rest):
        merged = f"The name of class {name!r} merges with the words of the template in {prompt!r}"
        raise PromptError(f"{merged}. Use another name or template.")
    return [*tokens[len(head) :], tokenizer.end_id]


def batch_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Split sequences into batches of similar length at the least estimated cost.

    A batch costs its padded tokens plus `BATCH_TOKENS`, the number of tokens whose arithmetic takes
    as long as reading the tower's weights once: few classes share one batch in spite of padding,
    many classes of one length get their own. Exact dynamic programme over the distinct lengths.
    Returns lists of indices, within a batch in order of length, then index.
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    distinct = sorted(set(lengths))
    upto = [sum(n <= length for n in lengths) for length in distinct]  # sequences up to a length
    best: list[tuple[int, list[int]]] = [(0, [])]  # cost and cuts for the first k distinct lengths
    for last, length in enumerate(distinct):
        options = []
        for first in range(last + 1):
            begin = upto[first - 1] if first else 0
            cost = best[first][0] + BATCH_TOKENS + (upto[last] - begin) * length
            options.append((cost, [*best[first][1], begin]))
        best.append(min(options))
    cuts = [*best[-1][1], len(order)]
    return [order[begin:end] for begin, end in pairwise(cuts)]


def _group(members: list[int], suffixes: list[list[int]], *, device: torch.device) -> SuffixGroup:
    rows = [torch.tensor(suffixes[i]) for i in members]
    return SuffixGroup(
        classes=torch.tensor(members, device=device),
        tokens=nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device),
        end=torch.tensor([len(row) - 1 for row in rows], device=device),
    )


def _initial_context(model: Clip, words: list[int], *, given: Tensor | None) -> Tensor:
    tower = model.require_text()
    expected = (len(words), tower.width)
    if given is None:
        ids = torch.tensor(words, device=model.device)
        return tower.embed(ids).detach().clone()
    if not isinstance(given, Tensor) or tuple(given.shape) != expected:
        actual = tuple(given.shape) if isinstance(given, Tensor) else short_repr(given)
        raise PromptError(f"The context must be a tensor of shape {expected}, got {actual}.")
    if not bool(torch.isfinite(given).all()):
        raise PromptError("The context contains values that are not finite.")
    return given.detach().clone().to(model.device, model.dtype)
