"""CLIP's tokenizer: cleaning and splitting as OpenAI does, byte-level BPE by `tokenizers`.

Equal to OpenAI's and open_clip's on every text, with one exception made on purpose: no text can
spell a start or end token, so a class name cannot break the layout of its prompt.

Cleaning (ftfy, HTML entities, white space, lower case) and splitting (`regex`, whose Unicode tables
OpenAI's tokenizer uses) are done here, also for a checkpoint's `tokenizer.json`: the `tokenizers`
library's own differ on accents, on the final sigma and on letters that Unicode added lately.
"""

import gzip
import hashlib
import html
import io
import json
import unicodedata
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import ftfy
import regex
import tokenizers
from tokenizers import models, pre_tokenizers

from dtpt.errors import CheckpointError, TokenizerError, short_repr
from dtpt.files import parse_json

START, END = "<|startoftext|>", "<|endoftext|>"
WORD_END = "</w>"
UNKNOWN = "<|unknown|>"  # marks a character that an incomplete vocabulary lacks
CLIP_MERGES = 49_152 - 256 - 2  # of OpenAI's merges; their file holds five times as many

# OpenAI's pattern without its start and end token.
_WORDS = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", regex.IGNORECASE
)
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_START_NAMES, _END_NAMES = (START, "<start_of_text>"), (END, "<end_of_text>")
_MAX_FILE_BYTES = 16 << 20  # CLIP's tokenizer.json has 2 MB, its merges 3 MB
_MAX_MERGES = 500_000  # OpenAI's file has 262,145
_MAX_VALUES = 500_000  # of JSON; CLIP's file has 200,000
_MAX_ID = 10_000_000
SHOWN_GROUPS = 5  # of classes with the same prompt

Merge = tuple[str, str]


def clean(text: str) -> str:
    """Return the text as CLIP tokenises it: mojibake and entities repaired, lower case."""
    repaired = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(repaired.split()).lower()


def split_words(cleaned: str) -> list[str]:
    """Return the pieces of a cleaned text that the BPE codes one by one, without blanks."""
    words: list[str] = _WORDS.findall(cleaned)
    return words


class Tokenizer:
    """Turns texts into token ids for one vocabulary and context length.

    Example:
        >>> Tokenizer.clip_default()(["a photo of a cat."])
        [[49406, 320, 1125, 539, 320, 2368, 269, 49407]]
    """

    def __init__(
        self,
        vocab: dict[str, int],
        merges: list[Merge],
        *,
        start_id: int,
        end_id: int,
        context_length: int,
    ) -> None:
        if start_id == end_id or context_length < 3:
            raise CheckpointError(
                f"Invalid tokenizer: start {start_id}, end {end_id}, context {context_length}."
            )
        self.start_id: int | None = start_id  # None: of a vocabulary without start token
        self.end_id = end_id
        self.pad_id = 0  # fills whole sequences behind the end token
        self.context_length = context_length  # most tokens of a text, start and end included
        self.vocab_size = max(*vocab.values(), start_id, end_id) + 1  # rows of the embedding table
        ordered = sorted(vocab.items(), key=lambda item: item[1])
        content = [ordered, merges, [start_id, end_id, context_length]]
        text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()
        self._unknown_id, self._bpe = _pipeline(vocab, merges)

    @classmethod
    def from_json(cls, data: bytes, *, context_length: int) -> "Tokenizer":
        """Read a `tokenizer.json` of transformers' CLIP, or one of the same build."""
        tree = parse_file(data)
        model, split = json_entry(tree, "model", kind=dict), str(tree.get("pre_tokenizer"))
        if model.get("type", "BPE") != "BPE" or model.get("end_of_word_suffix") != WORD_END:
            raise CheckpointError(f"tokenizer.json is not a BPE with the word ending {WORD_END!r}.")
        if model.get("dropout") or model.get("byte_fallback") or "ByteLevel" not in split:
            raise CheckpointError("tokenizer.json is not a deterministic byte-level BPE.")
        table = json_entry(model, "vocab", kind=dict)
        merges = [read_merge(merge) for merge in json_entry(model, "merges", kind=list)]
        try:
            for token in tree.get("added_tokens") or []:
                if table.setdefault(token["content"], token["id"]) != token["id"]:
                    raise ValueError(f"{short_repr(token['content'])} has two ids")
            vocab = check_vocabulary(table)
            start, end = _special_ids(vocab, tree.get("post_processor"))
        except (TypeError, KeyError, ValueError, IndexError) as error:
            raise CheckpointError(
                f"tokenizer.json: bad special tokens ({short_repr(error)})."
            ) from error
        return cls(vocab, merges, start_id=start, end_id=end, context_length=context_length)

    @classmethod
    def from_merges(cls, vocab: bytes | None, merges: bytes, *, context_length: int) -> "Tokenizer":
        """Read `vocab.json` and `merges.txt` (gzipped or not), or OpenAI's merges file alone.

        Without `vocab`, tokens are numbered as OpenAI does, up to CLIP's count of merges.
        """
        pairs = _read_merges(merges)
        pairs = pairs[:CLIP_MERGES] if vocab is None else pairs
        table = _openai_vocabulary(pairs) if vocab is None else check_vocabulary(parse_file(vocab))
        start, end = _special_ids(table, None)
        return cls(table, pairs, start_id=start, end_id=end, context_length=context_length)

    @classmethod
    def clip_default(cls, *, context_length: int = 77) -> "Tokenizer":
        """Return the tokenizer of OpenAI's checkpoints, from the vocabulary shipped with dtpt."""
        return _default(context_length)

    @property
    def start(self) -> list[int]:
        """Return what every text begins with: the start token, if there is one."""
        return [] if self.start_id is None else [self.start_id]

    def clean(self, text: str) -> str:
        """Return the text as it is split into tokens."""
        return clean(text)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text without start and end token and without limit."""
        words = split_words(self.clean(text))
        coded = self._bpe.encode(words, is_pretokenized=True, add_special_tokens=False)
        ids: list[int] = coded.ids
        if self._unknown_id is not None and self._unknown_id in ids:
            raise TokenizerError(f"Text {text!r} has a character that the vocabulary lacks.")
        return ids

    def encode_rest(self, text: str) -> list[int]:
        """Return the ids of a text that is empty or begins with a blank, behind another text."""
        return self.encode(text)

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Return [start, ..., end] for each text; nothing is cut and nothing padded."""
        if isinstance(texts, str):
            raise TokenizerError(f"Expected a list of texts, got the single text {texts!r}.")
        result = [[*self.start, *self.encode(text), self.end_id] for text in texts]
        for text, ids in zip(texts, result, strict=True):
            if len(ids) > self.context_length:
                raise TokenizerError(
                    f"Text {text!r} has {len(ids)} tokens with start and end, the context holds "
                    f"{self.context_length}. Shorten it."
                )
        return result

    def to_json(self) -> bytes:
        """Return a `tokenizer.json` that `from_json` reads back."""
        tree = json.loads(self._bpe.to_str())
        model = tree["model"]
        if self._unknown_id is not None:
            model["unk_token"] = None
            del model["vocab"][UNKNOWN]
        names = {number: token for token, number in model["vocab"].items()}
        start, end = names[self.start_id], names[self.end_id]
        specials = {"cls": [start, self.start_id], "sep": [end, self.end_id]}
        options = {"trim_offsets": False, "add_prefix_space": False}
        tree["post_processor"] = {"type": "RobertaProcessing", **specials, **options}
        return json.dumps(tree, ensure_ascii=False).encode()

    def spell(self, token: int) -> str:
        """Return how a token is written; empty for an id that the vocabulary does not have."""
        written = (self._bpe.id_to_token(token) or "").removesuffix(WORD_END)
        others = (byte for byte in range(256) if byte not in _PRINTABLE)
        values = dict(zip(byte_symbols(), (*_PRINTABLE, *others), strict=True))
        if any(symbol not in values for symbol in written):
            return written
        return bytes(values[symbol] for symbol in written).decode("utf-8", "replace")


@lru_cache(maxsize=4)
def _default(context_length: int) -> Tokenizer:
    folder = resources.files("dtpt.clip") / "vocabulary"
    merges = (folder / "clip_merges.txt.gz").read_bytes()
    return Tokenizer.from_merges(None, merges, context_length=context_length)


def _pipeline(
    vocab: dict[str, int], merges: list[Merge]
) -> tuple[int | None, tokenizers.Tokenizer]:
    """Build the BPE; also return the id that marks an unknown character, if there can be one."""
    complete = all(c in vocab and c + WORD_END in vocab for c in byte_symbols())
    table = {token: number for token, number in vocab.items() if token}
    unknown = None if complete else max(table.values()) + 1
    if unknown is not None:
        table[UNKNOWN] = unknown
    check_merges(table, merges)
    try:
        model = models.BPE(
            vocab=table,
            merges=merges,
            unk_token=None if complete else UNKNOWN,
            end_of_word_suffix=WORD_END,
        )
    except Exception as error:  # the library raises nothing more specific
        raise CheckpointError(f"Vocabulary and merges do not match: {error}.") from error
    bpe = tokenizers.Tokenizer(model)
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return unknown, bpe


def check_merges(vocab: dict[str, int], merges: Iterable[Merge]) -> None:
    """Refuse merges without a token: for some of those the library ends the process."""
    for first, second in merges:
        if not {first, second, first + second} <= vocab.keys():
            pair = f"{short_repr(first)} and {short_repr(second)}"
            raise CheckpointError(f"The vocabulary has no token for the merge of {pair}.")


def byte_symbols() -> list[str]:
    """Return a printable character for each byte, in the order of OpenAI's vocabulary."""
    # Printable Latin-1 bytes first, as themselves; the others as the characters from U+0100 on.
    others = 256 - len(_PRINTABLE)
    return [chr(byte) for byte in _PRINTABLE] + [chr(0x100 + n) for n in range(others)]


def _openai_vocabulary(merges: list[Merge]) -> dict[str, int]:
    alphabet = byte_symbols()
    tokens = [*alphabet, *(c + WORD_END for c in alphabet)]
    tokens += [first + second for first, second in merges]
    return {token: number for number, token in enumerate([*tokens, START, END])}


def _read_merges(data: bytes) -> list[Merge]:
    try:
        if data[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES or data.count(b"\n") > _MAX_MERGES:
            raise ValueError(f"more than {_MAX_FILE_BYTES:,} bytes or {_MAX_MERGES:,} lines")
        lines = data.decode("utf-8").split("\n")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CheckpointError(f"The merges file is damaged ({error}).") from error
    if "#version" in lines[0]:
        lines = lines[1:]
    return [read_merge(line) for line in lines if line.strip()]


def parse_file(
    data: bytes, *, most_bytes: int = _MAX_FILE_BYTES, most_values: int = _MAX_VALUES
) -> dict[str, Any]:
    """Return the JSON object of a tokenizer's file, in bounded memory."""
    if len(data) > most_bytes:
        raise CheckpointError(f"The tokenizer file has more than {most_bytes} bytes.")
    try:
        tree = parse_json(data, most_values=most_values)
    except ValueError as error:
        raise CheckpointError(f"The tokenizer file is not JSON ({error}).") from error
    if not isinstance(tree, dict):
        raise CheckpointError("The tokenizer file is not a JSON object.")
    return tree


def json_entry(tree: Mapping[str, Any], name: str, *, kind: type) -> Any:
    value = tree.get(name)
    if not isinstance(value, kind):
        raise CheckpointError(f"tokenizer.json has no valid entry {name!r}.")
    return value


def check_vocabulary(tree: dict[str, Any]) -> dict[str, int]:
    ids = list(tree.values())
    for token, number in tree.items():
        if not isinstance(token, str) or type(number) is not int or not 0 <= number < _MAX_ID:
            pair = f"{short_repr(token)} has the id {short_repr(number)}"
            raise CheckpointError(f"Token {pair}, not a whole number from 0 to {_MAX_ID - 1:,}.")
    if not ids or len(set(ids)) != len(ids):
        raise CheckpointError("The vocabulary is empty, or two of its tokens have the same id.")
    return dict(tree)


def read_merge(merge: Any) -> Merge:
    parts = merge.split() if isinstance(merge, str) else merge
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(p, str) for p in parts):
        raise CheckpointError(f"The merge {short_repr(merge)} is not a pair of tokens.")
    return parts[0], parts[1]


def _special_ids(vocab: dict[str, int], processor: Any) -> tuple[int, int]:
    """Return the ids of start and end: what the post-processor adds, or else the usual names."""
    names = _processor_names(processor) if isinstance(processor, dict) else []
    starts = [n for n in (*names[:1], *_START_NAMES) if n in vocab]
    ends = [n for n in (*names[1:], *_END_NAMES) if n in vocab]
    if not starts or not ends:
        raise CheckpointError(f"The vocabulary has no start and end token such as {START}, {END}.")
    return vocab[starts[0]], vocab[ends[0]]


def _processor_names(processor: dict[str, Any]) -> list[str]:
    """Return [start, end] as spelled in a tokenizer.json's post-processor, or nothing."""
    if "cls" in processor and "sep" in processor:
        return [str(processor["cls"][0]), str(processor["sep"][0])]
    steps = processor.get("single") or []
    special = [step["SpecialToken"]["id"] for step in steps if "SpecialToken" in step]
    return [str(name) for name in special] if len(special) == 2 else []


def same_prompts(
    names: Sequence[str], tokens: Iterable[Sequence[int]]
) -> tuple[tuple[str, ...], ...]:
    """Group the class names, as given, whose prompts are the same tokens ("cat", "Cat").

    Example:
        >>> encode = Tokenizer.clip_default().encode
        >>> names = ("cat", "dog", "Cat")
        >>> same_prompts(names, map(encode, names))
        (('cat', 'Cat'),)
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, prompt in zip(names, tokens, strict=True):
        groups.setdefault(tuple(prompt), []).append(name)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def same_prompt_notes(groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return what users should know about classes that no model can tell apart, if there are any.

    Example:
        >>> same_prompt_notes([("cat", "Cat")])
        ("Classes with the same prompt share their probability: 'cat' and 'Cat'.",)
    """
    if not groups:
        return ()
    shown = "; ".join(_listing(group) for group in groups[:SHOWN_GROUPS])
    more = f"; and {len(groups) - SHOWN_GROUPS} more groups" if len(groups) > SHOWN_GROUPS else ""
    return (f"Classes with the same prompt share their probability: {shown}{more}.",)


def _listing(group: Sequence[str]) -> str:
    looks = {unicodedata.normalize("NFC", name) for name in group}
    show = repr if len(looks) == len(group) else ascii  # é composed and decomposed look the same
    names = [show(name) for name in group]
    return " and ".join([", ".join(names[:-1]), names[-1]])
