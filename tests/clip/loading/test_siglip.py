"""SigLIP and SigLIP 2: features, tokens and tuning equal transformers' and Algorithm 1."""

import json
import sys
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from piece_tokenizers import gemma, strings, unigram
from safetensors.torch import load_file, save_file
from tiny_checkpoints import shake, write_json
from tokenizers import normalizers
from tokenizers.processors import TemplateProcessing

import dtpt
from dtpt.clip.loading import load_model
from dtpt.clip.loading.save import save_model
from dtpt.clip.prompts import PromptSet
from dtpt.errors import CheckpointError, TokenizerError
from dtpt.methods import resolve_method
from dtpt.methods.algorithm_1 import algorithm_1
from dtpt.tuning import Tuner, TuningSettings

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
LIMIT = 1e-5
NAMES = ["cat", "red mat", "château", "striped chairs"]
PREPROCESSOR = {
    "do_normalize": True, "do_rescale": True, "do_resize": True, "rescale_factor": 1 / 255,
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2,
    "image_processor_type": "SiglipImageProcessor", "size": {"height": 32, "width": 32},
}  # fmt: skip


def tiny_siglip(vocab_size):
    transformers = pytest.importorskip("transformers")
    tower = {"hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 3}
    tower["num_attention_heads"] = 4
    config = transformers.SiglipConfig(
        text_config={**tower, "vocab_size": vocab_size, "max_position_embeddings": 64},
        vision_config={**tower, "image_size": 32, "patch_size": 8},
    )
    torch.manual_seed(0)
    model = transformers.SiglipModel(config).eval().requires_grad_(False)
    shake(model)
    model.logit_scale.fill_(4.0)
    model.logit_bias.fill_(-12.5)
    return model


def save_tokenizer(folder, tokenizer, kind, **settings):
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = ("<eos>", "<pad>") if kind.startswith("Gemma") else ("</s>", "</s>")
    settings = {"tokenizer_class": kind, "eos_token": ends[0], "pad_token": ends[1], **settings}
    write_json(folder / "tokenizer_config.json", {"padding_side": "right", **settings})


@pytest.fixture(scope="module", autouse=True)
def _transformers(torchvision):
    """Transformers imports torchvision where it is installed."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder, tokenizer = tmp_path_factory.mktemp("siglip"), unigram()
    theirs = tiny_siglip(tokenizer.get_vocab_size())
    theirs.save_pretrained(folder)
    save_tokenizer(folder, tokenizer, "SiglipTokenizer")
    write_json(folder / "preprocessor_config.json", PREPROCESSOR)
    return theirs, tokenizer, folder


def padded(tokenizer, texts, length=64):
    """Ids as transformers pads them."""
    pad = tokenizer.token_to_id("<pad>" if tokenizer.token_to_id("<eos>") else "</s>")
    rows = [tokenizer.encode(text).ids for text in texts]
    return torch.tensor([row + [pad] * (length - len(row)) for row in rows])


def test_features_equal_transformers(saved, pixels):
    theirs, tokenizer, folder = saved
    ours = load_model(f"local-dir:{folder}")
    texts = ["a photo of a cat", "x", "une photographie d un château", "17 striped chairs"]
    with torch.no_grad():
        image = theirs.get_image_features(pixels).pooler_output
        text = theirs.get_text_features(padded(tokenizer, texts)).pooler_output
    torch.testing.assert_close(ours.visual(pixels), image, rtol=0, atol=LIMIT)
    unit = F.normalize(text, dim=-1)
    torch.testing.assert_close(ours.encode_text(texts), unit, rtol=0, atol=LIMIT)
    assert float(ours.logit_bias) == -12.5
    assert ours.logit_scale == pytest.approx(float(theirs.logit_scale.exp()))
    assert ours.preprocessing.model_dump(include={"resize_mode", "interpolation", "mean"}) == {
        "resize_mode": "squash", "interpolation": "bilinear", "mean": (0.5, 0.5, 0.5),
    }  # fmt: skip
    assert ours.notes == ()


def test_model_in_memory_is_the_one_of_its_folder(saved, pixels):
    transformers = pytest.importorskip("transformers")
    theirs, tokenizer, folder = saved
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>"
    )
    image_processor = transformers.SiglipImageProcessor(**PREPROCESSOR)
    ours = dtpt.from_transformers(theirs, transformers.SiglipProcessor(image_processor, fast))
    from_folder = load_model(f"local-dir:{folder}")
    assert torch.equal(ours.encode_image(pixels), from_folder.encode_image(pixels))
    texts = ["a photo of a cat", "x"]
    assert torch.equal(ours.encode_text(texts), from_folder.encode_text(texts))
    assert ours.preprocessing == from_folder.preprocessing


def test_own_folder_holds_the_same_model(saved, tmp_path):
    ours = load_model(f"local-dir:{saved[2]}")
    save_model(ours, tmp_path)
    again = load_model(f"local-dir:{tmp_path}")
    assert again.tokenize(strings(20)) == ours.tokenize(strings(20))
    assert again.config == ours.config
    assert float(again.logit_bias) == -12.5


# ---- tokens


def test_tokens_equal_transformers_siglip_tokenizer(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", ModuleType("sentencepiece"))  # not called
    from transformers.models.siglip.tokenization_siglip import SiglipTokenizer

    cleaner = object.__new__(SiglipTokenizer)
    cleaner.__dict__["do_lower_case"] = True
    _, tokenizer, folder = saved
    ours = load_model(f"local-dir:{folder}")
    for text in strings(400):
        cleaned = SiglipTokenizer.canonicalize_text(cleaner, text)
        assert ours.tokenizer.clean(text) == cleaned
        assert [*ours.tokenizer.encode(text), 1] == tokenizer.encode(cleaned).ids


def gemma_folder(folder):
    tokenizer = gemma()
    theirs = tiny_siglip(tokenizer.get_vocab_size())
    theirs.save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", PREPROCESSOR)
    return theirs, tokenizer


def test_siglip_2_lowers_and_tokenises_as_transformers(tmp_path, pixels):
    transformers = pytest.importorskip("transformers")
    theirs, tokenizer = gemma_folder(tmp_path)
    bpe = json.loads(tokenizer.to_str())["model"]
    reference = transformers.Siglip2Tokenizer(
        bpe["vocab"],
        [tuple(pair) for pair in bpe["merges"]],
        add_eos_token=True,
        padding_side="right",
    )
    reference.save_pretrained(tmp_path)
    ours = load_model(f"local-dir:{tmp_path}")
    for text in strings(400):
        assert [*ours.tokenizer.encode(text), 1] == reference(text).input_ids
    texts = ["a photo of a cat.", "x", "Ein Bild der Straße"]
    ids = reference(texts, padding="max_length", max_length=64, return_tensors="pt").input_ids
    with torch.no_grad():
        text = F.normalize(theirs.get_text_features(ids).pooler_output, dim=-1)
    torch.testing.assert_close(ours.encode_text(texts), text, rtol=0, atol=LIMIT)
    memory = dtpt.from_transformers(
        theirs,
        transformers.SiglipProcessor(transformers.SiglipImageProcessor(**PREPROCESSOR), reference),
    )
    assert memory.tokenize(texts) == ours.tokenize(texts)


def test_older_gemma_file_is_lowered_and_framed_by_its_settings(tmp_path):
    _, tokenizer = gemma_folder(tmp_path)
    expected = [tokenizer.encode(text).ids for text in strings(100)]
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
    )
    settings = {"bos_token": {"content": "<bos>"}, "add_bos_token": False, "add_eos_token": True}
    save_tokenizer(tmp_path, tokenizer, "GemmaTokenizer", **settings)
    ours = load_model(f"local-dir:{tmp_path}")
    assert ours.tokenize(strings(100)) == expected
    assert (ours.tokenizer.start_id, ours.tokenizer.end_id, ours.tokenizer.pad_id) == (None, 1, 0)


@pytest.mark.parametrize("text", ["a <eos> cat", "<pad>", "x<bos>"])
def test_no_text_spells_a_special_token(tmp_path, text):
    _, tokenizer = gemma_folder(tmp_path)
    save_tokenizer(tmp_path, tokenizer, "GemmaTokenizer")
    ours = load_model(f"local-dir:{tmp_path}")
    assert ours.tokenizer.encode("<h1>") == [tokenizer.token_to_id("<h1>")]
    with pytest.raises(TokenizerError):
        ours.tokenizer.encode(text)


# ---- MetaCLIP 2: a causal text tower with XLM-V's kind of vocabulary


def test_metaclip_2_equals_transformers(tmp_path, pixels):
    transformers = pytest.importorskip("transformers")
    tokenizer = unigram(start=True)
    tower = {"hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 2}
    tower |= {"num_attention_heads": 4, "projection_dim": 32}
    words = {"vocab_size": tokenizer.get_vocab_size(), "eos_token_id": 2, "bos_token_id": 0}
    config = transformers.MetaClip2Config(
        text_config={**tower, **words, "max_position_embeddings": 40},
        vision_config={**tower, "image_size": 32, "patch_size": 8},
        projection_dim=32,
    )
    torch.manual_seed(0)
    theirs = transformers.MetaClip2Model(config).eval().requires_grad_(False)
    shake(theirs)
    theirs.save_pretrained(tmp_path)
    write_json(tmp_path / "preprocessor_config.json", PREPROCESSOR)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = {"tokenizer_class": "XLMRobertaTokenizer", "pad_token": "<pad>"}
    write_json(tmp_path / "tokenizer_config.json", settings)
    ours = load_model(f"local-dir:{tmp_path}")
    texts = [text for text in strings(200) if len(tokenizer.encode(text).ids) <= 40]
    assert ours.tokenize(texts) == [tokenizer.encode(text).ids for text in texts]
    ids = torch.tensor([row + [1] * (40 - len(row)) for row in ours.tokenize(texts[:6])])
    text = theirs.get_text_features(ids)
    image = theirs.get_image_features(pixels)
    text, image = (F.normalize(getattr(x, "pooler_output", x), dim=-1) for x in (text, image))
    torch.testing.assert_close(ours.encode_text(texts[:6]), text, rtol=0, atol=LIMIT)
    torch.testing.assert_close(ours.encode_image(pixels), image, rtol=0, atol=LIMIT)
    assert (ours.tokenizer.start_id, ours.tokenizer.end_id) == (0, 2)
    check_engine(ours.double(), 1)


# ---- prompts and tuning


@pytest.mark.parametrize("make", [unigram, gemma])
@pytest.mark.parametrize("template", ["a photo of a {}.", "a {}, a photo of the mat!", "{} café"])
def test_prompts_are_the_tokens_of_the_texts(tmp_path, make, template):
    tokenizer = make()
    tiny_siglip(tokenizer.get_vocab_size()).save_pretrained(tmp_path)
    write_json(tmp_path / "preprocessor_config.json", PREPROCESSOR)
    kind = "SiglipTokenizer" if make is unigram else "GemmaTokenizer"
    save_tokenizer(tmp_path, tokenizer, kind)
    ours = load_model(f"local-dir:{tmp_path}")
    prompts = PromptSet.build(ours, NAMES, template=template)
    pad = ours.tokenizer.pad_id
    layout = prompts.padded(64, pad_id=pad)
    for row, name in enumerate(NAMES):
        (ids,) = ours.tokenize([template.replace("{}", name)])
        assert layout.tokens[row].tolist() == ids + [pad] * (64 - len(ids))
    words = template.replace("{}", "").replace(".", "").replace(",", "").replace("!", "").split()
    spelled = [ours.tokenizer.spell(int(layout.tokens[0, i])) for i in layout.context[0]]
    assert "".join(spelled) == "".join(words)


@pytest.mark.parametrize("steps", [1, 2])
def test_engine_equals_algorithm_1(saved, monkeypatch, steps):
    monkeypatch.setattr("dtpt.tuning.encoder.CHUNK_TOKENS", 128)  # two classes in a chunk
    check_engine(load_model(f"local-dir:{saved[2]}").double(), steps)


def check_engine(model, steps):
    prompts = PromptSet.build(model, NAMES, template="a photo of a {}.")
    generator = torch.Generator().manual_seed(1)
    views = F.normalize(
        torch.randn(16, model.config.embed_dim, generator=generator, dtype=torch.float64), dim=-1
    )
    tuner = Tuner(model, prompts, settings=TuningSettings(steps=steps), budget_bytes=300_000)
    methods = [resolve_method(name) for name in ("zero-shot", "tpt", "c-tpt", "d-tpt")]
    for outcome in tuner.predict(views, methods):
        plain = algorithm_1(model, prompts, views=views, method=outcome.method, steps=steps)
        torch.testing.assert_close(outcome.probabilities, plain, rtol=0, atol=1e-10)
        if outcome.method.method.tunes:
            assert not torch.equal(outcome.context, prompts.context)


# ---- refused


@pytest.mark.parametrize(
    ("where", "changes", "message"),
    [
        ("config.json", {"model_type": "siglip2"}, "NaFlex"),
        ("config.json", {"model_type": "blip"}, "blip"),
        ("tokenizer_config.json", {"padding_side": "left"}, "left"),
        ("tokenizer_config.json", {"pad_token": "<none>"}, "padding"),
    ],
)
def test_what_is_not_known_is_refused(saved, tmp_path, where, changes, message):
    for path in saved[2].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_json(tmp_path / where, {**json.loads((tmp_path / where).read_text()), **changes})
    with pytest.raises(CheckpointError, match=message):
        load_model(f"local-dir:{tmp_path}")


def test_missing_bias_of_the_projection_is_named(saved, tmp_path):
    for path in saved[2].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    del weights["text_model.head.bias"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="text_projection_bias is missing"):
        load_model(f"local-dir:{tmp_path}")
