"""Tiny SentencePiece-like tokenizers, trained here: c4's and XLM-V's Unigram, Gemma's BPE."""

import random

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

SENTENCES = [
    "a photo of a cat on a red mat, and of the dogs behind it",
    "Das Bild einer großen Straße in Zürich bei Nacht",
    "une photographie d'un château près de l'église",
    "фотография кошки на крыше дома",
    "一张小猫的照片", "犬の写真と猫の写真", "صورة قطة على الطاولة", "고양이 사진 한 장",
    "a blurry picture of 17 striped chairs! C'est ça? naïve café ﬁlm Ⅳ ½",
]  # fmt: skip
ALPHABET = "".join(sorted(set("".join(SENTENCES)))) + "abcXYZ0189_-.,'()&;:/!?<>#😀éß\u00a0\u3000\t"


def strings(count, seed=0):
    """Random multilingual texts: words of the sentences, noise, blanks and punctuation."""
    chosen, words = random.Random(seed), " ".join(SENTENCES).split()
    texts = list(SENTENCES)
    while len(texts) < count:
        parts = [
            chosen.choice(words)
            if chosen.random() < 0.7
            else "".join(chosen.choices(ALPHABET, k=chosen.randint(1, 6)))
            for _ in range(chosen.randint(1, 7))
        ]
        texts.append(chosen.choice([" ", "  ", " - "]).join(parts))
    return texts


def unigram(*, start=False, vocab_size=400):
    """As T5's (and SigLIP's) converted by transformers; with `start`, as XLM-R's."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"] if start else ["<pad>", "</s>", "<unk>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=specials, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(strings(300, seed=1), trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>") if name in specials]
    single = "<s> $A </s>" if start else "$A </s>"
    tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=ends)
    return tokenizer


def gemma(vocab_size=600):
    """Vocabulary and merges as Gemma's: byte fallback, blanks written as ▁."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(" ", "▁")]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *bytes_],
        show_progress=False,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # no merge of two words
    tokenizer.train_from_iterator(strings(300, seed=1), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_tokens([AddedToken("<h1>", normalized=False)])
    tokenizer.post_processor = TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", tokenizer.token_to_id("<eos>"))]
    )
    return tokenizer
