"""SentencePiece tokenizers: Unigram (SigLIP, XLM-V, mT5) and Gemma's BPE, run by `tokenizers`.

They come as a `tokenizer.json`. Only the parts that these models have are accepted, before the
library sees the file: no part may run for long or panic on a text. What a checkpoint does to a text
first (`clean`), its start, end and padding token are a `Framing`; padding is on the right.

A text that spells a special token is refused, so that a class name cannot break the layout of its
prompt. Characters that the vocabulary lacks become its unknown token, as in the models' training.
"""

import hashlib
import html
import json
import re
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import ftfy
import tokenizers
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dtpt.clip.tokenizer import (
    Tokenizer,
    check_merges,
    check_vocabulary,
    json_entry,
    parse_file,
    read_merge,
)
from dtpt.errors import CheckpointError, TokenizerError, explain, short_repr

MAX_FILE_BYTES = 96 << 20  # XLM-V's tokenizer.json has about 60 MB
MAX_VALUES = 5_000_000  # of JSON; XLM-V's has 2,700,000
MAX_REPLACEMENT = 16
WORD_START = "▁"
_PIECES = re.compile(rb'"type"\s*:\s*"Unigram"|"byte_fallback"\s*:\s*true')
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Cleaning = Literal["none", "whitespace", "lower", "canonicalize", "siglip"]
MAX_TOKENS = 10_000_000
TokenId = Annotated[int, Field(ge=0, lt=MAX_TOKENS)]

# Parts of a `tokenizer.json` and the fields that they may have; a part's children are checked too.
_NORMALIZERS = {
    "Sequence": {"normalizers"},
    "Precompiled": {"precompiled_charsmap"},
    "Replace": {"pattern", "content"},
    "Prepend": {"prepend"},
    "Strip": {"strip_left", "strip_right"},
    "Lowercase": set(),
    "NFC": set(),
    "NFD": set(),
    "NFKC": set(),
    "NFKD": set(),
    "Nmt": set(),
}
_PRE_TOKENIZERS = {
    "Sequence": {"pretokenizers"},
    "Metaspace": {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"},
    "WhitespaceSplit": set(),
    "Split": {"pattern", "behavior", "invert"},
}
# One character or class, perhaps repeated: such a pattern takes linear time on every text.
_LINEAR_PATTERN = re.compile(r"(\\?[^\\\[\](){}|^$]|\\[sdw]|\[(\\.|[^\\\[\]])+\])(\+|\*|\{2,\})?")


class Framing(BaseModel):
    """What surrounds the tokens of a text, and what is done to a text first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start_id: TokenId | None = None
    end_id: TokenId
    pad_id: TokenId
    clean: Cleaning = "none"


def _whitespace(text: str) -> str:
    return " ".join(html.unescape(html.unescape(ftfy.fix_text(text))).split())


def _without_punctuation(text: str) -> str:
    return " ".join(text.translate(_PUNCTUATION).lower().split())


_CLEANERS: Mapping[Cleaning, Callable[[str], str]] = {
    "none": lambda text: text,
    "whitespace": _whitespace,
    "lower": lambda text: _whitespace(text).lower(),
    "canonicalize": lambda text: _without_punctuation(_whitespace(text).replace("_", " ")),
    "siglip": _without_punctuation,  # as transformers' SiglipTokenizer
}


class PieceTokenizer(Tokenizer):
    """A SentencePiece vocabulary with its own normaliser.

    Args:
        tree: a `tokenizer.json`, parsed.
        framing: special tokens and cleaning.
        context_length: most tokens of a text, start and end included.
    """

    def __init__(self, tree: Mapping[str, Any], framing: Framing, *, context_length: int) -> None:
        if context_length < 3:
            raise CheckpointError(f"Invalid tokenizer: context {context_length}.")
        parts = _checked(tree)
        self.framing, self.context_length = framing, context_length
        self.start_id, self.end_id = framing.start_id, framing.end_id
        self.pad_id = framing.pad_id
        added = parts["added_tokens"]
        unknown = parts["model"].get("unk_id")
        self._special = {t["id"] for t in added if t["special"]} | {self.end_id, self.pad_id}
        self._special -= {unknown, _unknown_of(parts["model"])}
        usual = [token["id"] for token in added if not token["special"]]
        vocab = parts["model"]["vocab"]
        largest = max(vocab.values()) if isinstance(vocab, dict) else len(vocab) - 1
        self.vocab_size = max(largest, *self.start, self.end_id, self.pad_id, *usual) + 1
        content = [parts, framing.model_dump(), context_length]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()
        try:
            with _panics():
                self._pieces = tokenizers.Tokenizer.from_str(json.dumps(parts))
        except Exception as error:  # the library raises nothing more specific
            raise CheckpointError(f"tokenizer.json cannot be used: {short_repr(error)}.") from error

    def clean(self, text: str) -> str:
        return _CLEANERS[self.framing.clean](text)

    def encode(self, text: str) -> list[int]:
        cleaned = self.clean(text)
        try:
            with _panics():
                ids: list[int] = self._pieces.encode(cleaned, add_special_tokens=False).ids
        except Exception as error:
            raise TokenizerError(f"Text {text!r} cannot be tokenised: {error}.") from error
        special = sorted(self._special & set(ids))
        if special:
            spelled = self._pieces.id_to_token(special[0])
            raise TokenizerError(f"Text {text!r} spells the special token {spelled!r}.")
        return ids

    def encode_rest(self, text: str) -> list[int]:
        return self.encode("x" + text)[len(self.encode("x")) :]  # alone it would lose its blank

    def to_json(self) -> bytes:
        return str(self._pieces.to_str()).encode()

    def spell(self, token: int) -> str:
        return (self._pieces.id_to_token(token) or "").replace(WORD_START, "")


def read_pieces(
    data: bytes,
    settings: Mapping[str, Any],
    *,
    context_length: int,
    clean: Cleaning | None = None,
    framing: Framing | None = None,
) -> PieceTokenizer:
    """Read a `tokenizer.json` and the settings of the `tokenizer_config.json` beside it.

    Args:
        data: the file.
        settings: empty if there is no such file.
        context_length: of the model.
        clean: as another config states it; None: as the settings' class of tokenizer does it.
        framing: instead of what the files state.
    """
    tree = parse_file(data, most_bytes=MAX_FILE_BYTES, most_values=MAX_VALUES)
    if settings.get("padding_side", "right") != "right":
        raise CheckpointError(f"padding_side {settings['padding_side']!r} is not 'right'.")
    kind = str(settings.get("tokenizer_class", "")).removesuffix("Fast")
    if kind == "GemmaTokenizer" and settings.get("do_lower_case", True) and clean is None:
        tree = {**tree, "normalizer": _lower_first(tree.get("normalizer"))}  # SigLIP 2's
    if framing is None:
        if clean is None:
            clean = "siglip" if kind == "SiglipTokenizer" else "none"
        framing = _read_framing(tree, settings, clean=clean)
    return PieceTokenizer(tree, framing, context_length=context_length)


def is_pieces(data: bytes) -> bool:
    """Return whether a `tokenizer.json` is for this module rather than CLIP's byte-level BPE."""
    return _PIECES.search(data) is not None


def _lower_first(normalizer: Any) -> dict[str, Any]:
    lower = {"type": "Lowercase"}
    steps = normalizer.get("normalizers") if isinstance(normalizer, dict) else None
    if isinstance(steps, list) and lower in steps:
        return dict(normalizer)
    return {"type": "Sequence", "normalizers": [lower, *([normalizer] if normalizer else [])]}


# ---- special tokens


def _read_framing(
    tree: Mapping[str, Any], settings: Mapping[str, Any], *, clean: Cleaning
) -> Framing:
    try:
        ids = _ids_by_name(tree)
        first, last = _ends(tree.get("post_processor"), ids)
        if tree["model"].get("type") != "Unigram":  # of Gemma's, whose file may add others
            if settings.get("add_bos_token") is not None:
                first = ids[_name(settings["bos_token"])] if settings["add_bos_token"] else None
            if settings.get("add_eos_token") is not None:
                last = ids[_name(settings["eos_token"])] if settings["add_eos_token"] else None
        padding = tree.get("padding") or {}
        if padding.get("direction", "Right") != "Right":
            raise ValueError("padding is not on the right")
        pad = settings.get("pad_token")
        pad_id = ids[_name(pad)] if pad is not None else padding["pad_id"]
        if last is None:
            raise ValueError("no token ends a text")
        return Framing(start_id=first, end_id=last, pad_id=pad_id, clean=clean)
    except ValidationError as error:
        raise CheckpointError(f"tokenizer.json: bad special tokens ({explain(error)}).") from error
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(
            f"tokenizer.json or tokenizer_config.json: no valid end and padding token "
            f"({short_repr(error)})."
        ) from error


def _ids_by_name(tree: Mapping[str, Any]) -> dict[str, int]:
    vocab: dict[str, int] | list[Any] = tree["model"]["vocab"]
    if isinstance(vocab, list):
        vocab = {piece[0]: number for number, piece in enumerate(vocab)}
    return vocab | {token["content"]: token["id"] for token in tree.get("added_tokens") or []}


def _name(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _ends(processor: Any, ids: Mapping[str, int]) -> tuple[int | None, int | None]:
    """Return the start and the end token that a post-processor adds to a single text."""
    if not processor:
        return None, None
    if "cls" in processor and "sep" in processor:
        return processor["cls"][1], processor["sep"][1]
    marks = [
        ids[step["SpecialToken"]["id"]] if "SpecialToken" in step else None
        for step in processor["single"]
    ]
    text = marks.index(None)
    before, after = marks[:text], marks[text + 1 :]
    if len(before) > 1 or len(after) > 1 or None in after:
        raise ValueError("more than one token in front of or behind a text")
    return (before or [None])[0], (after or [None])[0]


# ---- what is accepted


def _checked(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a `tokenizer.json` that decide tokens; refuse all that is not known."""
    model = dict(json_entry(tree, "model", kind=dict))
    if model.get("dropout"):
        raise CheckpointError("tokenizer.json is not deterministic: it has dropout.")
    if model.get("type") == "Unigram":
        _check_unigram(model)
    else:
        model["type"] = "BPE"
        check_vocabulary(json_entry(model, "vocab", kind=dict))
        merges = json_entry(model, "merges", kind=list)
        check_merges(model["vocab"], map(read_merge, merges))
    normalizer, pre_tokenizer = tree.get("normalizer"), tree.get("pre_tokenizer")
    _check_part(normalizer, _NORMALIZERS)
    _check_part(pre_tokenizer, _PRE_TOKENIZERS)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _checked_added(tree.get("added_tokens") or [], model),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }


def _check_unigram(model: Mapping[str, Any]) -> None:
    pieces = json_entry(model, "vocab", kind=list)
    for piece in pieces:
        pair = isinstance(piece, list) and len(piece) == 2 and isinstance(piece[0], str)
        if not pair or type(piece[1]) not in (int, float) or not abs(piece[1]) < 1e9:
            raise CheckpointError(f"{short_repr(piece)} is not a piece of text and its score.")
    unknown = model.get("unk_id")
    if unknown is not None and (type(unknown) is not int or not 0 <= unknown < len(pieces)):
        raise CheckpointError(f"tokenizer.json: unk_id {short_repr(unknown)} is not in its vocab.")
    if not pieces:
        raise CheckpointError("tokenizer.json has an empty vocabulary.")


def _unknown_of(model: Mapping[str, Any]) -> int | None:
    """Return the id of a BPE's unknown token."""
    vocab, name = model["vocab"], model.get("unk_token")
    return vocab.get(name) if isinstance(vocab, dict) else None


def _checked_added(tokens: Any, model: Mapping[str, Any]) -> list[dict[str, Any]]:
    vocab = model["vocab"]
    if not isinstance(tokens, list) or len(tokens) > 100_000:
        raise CheckpointError("tokenizer.json: added_tokens is not a list of a vocabulary's size.")
    checked = []
    for token in tokens:
        if not isinstance(token, dict):
            raise CheckpointError(f"tokenizer.json: bad added token {short_repr(token)}.")
        content, number = token.get("content"), token.get("id")
        is_id = isinstance(number, int) and 0 <= number < MAX_TOKENS
        if not isinstance(content, str) or not content or not is_id:
            raise CheckpointError(f"tokenizer.json: bad added token {short_repr(token)}.")
        stated = vocab.get(content) if isinstance(vocab, dict) else _piece_at(vocab, number)
        if stated not in (None, number, content):
            raise CheckpointError(f"tokenizer.json: {short_repr(content)} has two ids.")
        flags = {name: bool(token.get(name)) for name in _FLAGS}
        checked.append({"id": number, "content": content, **flags})
    return checked


_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def _piece_at(pieces: list[Any], number: Any) -> str | None:
    return str(pieces[number][0]) if number < len(pieces) else None


def _check_part(part: Any, known: Mapping[str, set[str]]) -> None:
    if part is None:
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str) or kind not in known:
        raise CheckpointError(f"tokenizer.json has an unsupported step {short_repr(kind or part)}.")
    unknown = part.keys() - known[kind] - {"type"}
    if unknown:
        raise CheckpointError(f"tokenizer.json: {kind} has the unknown setting {min(unknown)!r}.")
    for children in (part.get("normalizers"), part.get("pretokenizers")):
        if not isinstance(children, list | None):
            raise CheckpointError(f"tokenizer.json: {kind} has no list of steps.")
        for child in children or ():
            _check_part(child, known)
    for field in ("content", "prepend", "replacement"):
        if len(str(part.get(field, ""))) > MAX_REPLACEMENT:
            raise CheckpointError(f"tokenizer.json: {kind} inserts {short_repr(part[field])}.")
    _check_pattern(part.get("pattern"))


def _check_pattern(pattern: Any) -> None:
    if pattern is None:
        return
    wanted = pattern if isinstance(pattern, dict) else {}
    literal, regular = wanted.get("String"), wanted.get("Regex")
    if isinstance(literal, str) and literal:
        return
    if not isinstance(regular, str) or not _LINEAR_PATTERN.fullmatch(regular):
        raise CheckpointError(f"tokenizer.json has the unsupported pattern {short_repr(pattern)}.")


@contextmanager
def _panics() -> Iterator[None]:
    """Turn a panic of the library, which is not an `Exception`, into one."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the tokenizers library failed: {error}") from None
