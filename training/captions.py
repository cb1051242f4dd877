"""What the model reads: captions of concepts, and the byte-pair vocabulary made from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from training.artwork import Concept, slug

TEMPLATES: tuple[str, ...] = (
    "a photo of a {}.",
    "a picture of a {}.",
    "an image of a {}.",
    "{}",
    "a {}.",
    "the {}.",
    "an emoji of {}.",
    "an icon of a {}.",
    "a {} icon.",
    "a {} emoji.",
    "a drawing of a {}.",
    "a cartoon {}.",
    "a sketch of a {}.",
    "a small photo of the {}.",
    "a photo of the {}.",
    "this is a {}.",
    "art of a {}.",
    "a black and white drawing of a {}.",
    "a good picture of the {}.",
    "a close-up photo of a {}.",
)
OFFICIAL_FRACTION = 0.7  # how often a caption uses the official name rather than an alias
FIRST_TEMPLATE_FRACTION = 0.3  # the template that is tuned at test time is also the commonest here

START, END = "<|startoftext|>", "<|endoftext|>"
# CLIP's way of cutting a text into words: contractions, letters, single digits, other signs.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def names_of(concepts: Sequence[Concept]) -> list[tuple[str, ...]]:
    """Return per concept its official name and those aliases that mean nothing else."""
    owners = Counter(slug(c.name) for c in concepts)
    for concept in concepts:
        owners.update({slug(a) for a in concept.aliases})
    return [(c.name, *(a for a in c.aliases if owners[slug(a)] == 1 and slug(a))) for c in concepts]


def caption(names: Sequence[str], random: np.random.Generator) -> str:
    """Draw one caption: a template filled with the official name or an alias."""
    official = len(names) == 1 or random.random() < OFFICIAL_FRACTION
    name = names[0] if official else names[int(random.integers(1, len(names)))]
    first = random.random() < FIRST_TEMPLATE_FRACTION
    template = TEMPLATES[0] if first else TEMPLATES[int(random.integers(len(TEMPLATES)))]
    return template.format(name)


def _corpus(names: Sequence[Sequence[str]]) -> Iterator[str]:
    """Every name twice, every template as often as it will be seen next to a few names."""
    for own in names:
        yield from own
        yield from own
    for template in TEMPLATES:
        yield from [template.format("")] * 50


def _skeleton(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def train_tokenizer(concepts: Sequence[Concept], *, merges: int = 3000) -> bytes:
    """Learn a CLIP-style byte-pair vocabulary and return it as `tokenizer.json`.

    The vocabulary holds every byte, inside and at the end of a word, so that any text can be
    written in it; then the merges; then the start and the end token, as in CLIP.
    """
    learner = _skeleton(models.BPE(end_of_word_suffix="</w>"))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=2 * len(alphabet) + merges,
        min_frequency=2,
        initial_alphabet=alphabet,
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    learner.train_from_iterator(_corpus(names_of(concepts)), trainer)
    learnt = json.loads(learner.to_str())["model"]["merges"]
    pairs = [(str(left), str(right)) for left, right in learnt]
    tokens = [*alphabet, *(c + "</w>" for c in alphabet), *(a + b for a, b in pairs), START, END]
    vocab = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    final = _skeleton(models.BPE(vocab=vocab, merges=pairs, end_of_word_suffix="</w>"))
    final.add_special_tokens([START, END])
    return (final.to_str() + "\n").encode()
