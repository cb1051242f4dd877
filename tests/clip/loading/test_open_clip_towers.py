"""Image towers that open_clip builds, SigLIP's that we build, and texts without a causal mask."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from piece_tokenizers import strings, unigram
from safetensors.torch import save_file
from test_open_clip_folders import PREPROCESS, TEXT, save
from tiny_checkpoints import TEXTS, padded_ids, shake, write_json

import dtpt
from dtpt.clip.loading import load_model
from dtpt.clip.loading.open_clip_configs import parse_open_clip
from dtpt.clip.loading.save import save_model
from dtpt.clip.model import image_tower
from dtpt.clip.prompts import PromptSet
from dtpt.errors import CheckpointError
from dtpt.methods import resolve_method
from dtpt.methods.algorithm_1 import algorithm_1
from dtpt.tuning import Tuner

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:timm"),
]
LIMIT = 1e-5
TIMM = {"image_size": 160, "timm_model_pretrained": False}
TOWERS = {
    "timm vit": {**TIMM, "timm_model_name": "test_vit", "timm_pool": "token", "timm_proj": None},
    "timm convnext": {
        **TIMM, "timm_model_name": "test_convnext", "timm_pool": "", "timm_proj": "linear",
    },
    "no norm": {
        "image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8,
        "no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True,
    },
}  # fmt: skip
CLIPA = {f"ViT-{size}-14-CLIPA{side}" for size in "LH" for side in ("", "-336")}
REFUSED = {
    *CLIPA, "ViT-bigG-14-CLIPA", "ViT-bigG-14-CLIPA-336",  # BERT's tokenizer
    "coca_ViT-B-32", "coca_ViT-L-14", "coca_base", "coca_roberta-ViT-B-32",
    "mt5-base-ViT-B-32", "mt5-xl-ViT-H-14", "roberta-ViT-B-32", "nllb-clip-base",
    "nllb-clip-base-siglip", "nllb-clip-large", "nllb-clip-large-siglip",
    "xlm-roberta-base-ViT-B-32", "xlm-roberta-large-ViT-H-14",  # text towers of transformers
    "ViT-SO400M-16-SigLIP-i18n-256",  # no projection of the text
}  # fmt: skip


def build(open_clip, vision, **text):
    torch.manual_seed(0)
    cfg = {"embed_dim": 32, "vision_cfg": vision, "text_cfg": {**TEXT, **text}}
    model = open_clip.CustomTextCLIP(**cfg).eval().requires_grad_(False)
    shake(model)
    return model, cfg


def pixels_of(side, count=2):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(7))


def check_same(theirs, ours):
    pixels = pixels_of(ours.preprocessing.size)
    with torch.inference_mode():
        image = F.normalize(theirs.encode_image(pixels), dim=-1)
        text = theirs.encode_text(padded_ids(ours, TEXTS), normalize=True)
    torch.testing.assert_close(ours.encode_image(pixels), image, rtol=0, atol=LIMIT)
    torch.testing.assert_close(ours.encode_text(TEXTS), text, rtol=0, atol=LIMIT)


@pytest.mark.parametrize("tower", TOWERS)
def test_any_image_tower_of_open_clip_is_kept(open_clip, tmp_path, tower):
    theirs, cfg = build(open_clip, TOWERS[tower])
    save(theirs, cfg, tmp_path)
    ours = load_model(f"local-dir:{tmp_path}")
    check_same(theirs, ours)
    memory = dtpt.from_open_clip(theirs, PREPROCESS)
    check_same(theirs, memory)
    assert memory.fingerprint == dtpt.from_open_clip(theirs, PREPROCESS).fingerprint
    pixels = pixels_of(ours.preprocessing.size)
    for model in (ours, memory):
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again.encode_image(pixels), model.encode_image(pixels))
    save_model(ours, tmp_path / "own")
    assert load_model(f"local-dir:{tmp_path / 'own'}").fingerprint == ours.fingerprint
    with pytest.raises(CheckpointError, match="module"):
        save_model(memory, tmp_path / "memory")


def test_fingerprint_follows_the_weights_and_the_computation(open_clip):
    theirs, _ = build(open_clip, TOWERS["timm vit"])
    first = dtpt.from_open_clip(theirs, PREPROCESS)
    for module in theirs.visual.modules():
        if isinstance(module, torch.nn.GELU):
            module.approximate = "tanh"
    assert dtpt.from_open_clip(theirs, PREPROCESS).fingerprint != first.fingerprint
    other = copy.deepcopy(theirs)
    with torch.no_grad():
        next(other.visual.parameters()).add_(0.1)
    prints = {dtpt.from_open_clip(m, PREPROCESS).fingerprint for m in (theirs, other)}
    assert len(prints) == 2


def test_missing_open_clip_names_the_extra(open_clip, tmp_path, monkeypatch):
    theirs, cfg = build(open_clip, TOWERS["timm vit"])
    save(theirs, cfg, tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "open_clip.model", None)
    with pytest.raises(CheckpointError, match=r"dtpt\[towers\]"):
        load_model(f"local-dir:{tmp_path}")


@pytest.mark.parametrize("name", ["hf-hub:org/repo", "local-dir:/etc", "../x", "no_such_tower"])
def test_only_registered_names_of_timm_are_built(open_clip, tmp_path, name):
    theirs, cfg = build(open_clip, TOWERS["timm vit"])
    changed = {**cfg, "vision_cfg": {**cfg["vision_cfg"], "timm_model_name": name}}
    save(theirs, changed, tmp_path)
    with pytest.raises(CheckpointError, match=r"timm|build"):
        load_model(f"local-dir:{tmp_path}")


# ---- text towers


def test_mobileclip_text_attends_to_padding_and_tunes_exactly(open_clip, tmp_path):
    theirs, cfg = build(open_clip, TOWERS["no norm"], no_causal_mask=True)
    save(theirs, cfg, tmp_path)
    ours = load_model(f"local-dir:{tmp_path}")
    assert not ours.require_text().is_causal
    check_same(theirs, ours)
    check_same(theirs, dtpt.from_open_clip(theirs, PREPROCESS))
    model, generator = ours.double(), torch.Generator().manual_seed(1)
    prompts = PromptSet.build(model, ["cat", "big dog"])
    views = F.normalize(torch.randn(16, 32, generator=generator, dtype=torch.float64), dim=-1)
    (outcome,) = Tuner(model, prompts).predict(views, [resolve_method("d-tpt")])
    plain = algorithm_1(model, prompts, views=views, method=outcome.method)
    torch.testing.assert_close(outcome.probabilities, plain, rtol=0, atol=1e-10)


def siglip(open_clip, folder):
    """A SigLIP 2 of open_clip: timm's smallest image tower at 64 pixels, a tiny text tower."""
    tokenizer = unigram()
    vision = {
        "image_size": 256, "timm_model_name": "vit_base_patch32_siglip_256",
        "timm_model_pretrained": False, "timm_pool": "map", "timm_proj": "none",
    }  # fmt: skip
    text = {
        "context_length": 64, "vocab_size": tokenizer.get_vocab_size(), "width": 64, "heads": 4,
        "layers": 2, "no_causal_mask": True, "proj_bias": True, "pool_type": "last",
        "norm_kwargs": {"eps": 1e-6}, "act_kwargs": {"approximate": "tanh"},
        "hf_tokenizer_name": "x/y", "tokenizer_kwargs": {"clean": "canonicalize"},
    }  # fmt: skip
    cfg = {"embed_dim": 768, "init_logit_bias": -10, "vision_cfg": vision, "text_cfg": text}
    torch.manual_seed(0)
    theirs = open_clip.CustomTextCLIP(**cfg).eval().requires_grad_(False)
    shake(theirs)
    save(theirs, cfg, folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "T5Tokenizer", "pad_token": "</s>", "eos_token": "</s>"}
    write_json(folder / "tokenizer_config.json", settings)
    return theirs, tokenizer


def test_siglip_of_open_clip_loads_into_our_towers(open_clip, transformers, tmp_path):
    theirs, tokenizer = siglip(open_clip, tmp_path)
    ours = load_model(f"local-dir:{tmp_path}")
    assert ours.config.vision.kind == "siglip_vit"
    pixels = pixels_of(256)
    torch.testing.assert_close(ours.visual(pixels), theirs.visual(pixels), rtol=0, atol=1e-5)
    assert float(ours.logit_bias) == float(theirs.logit_bias)
    clean = open_clip.tokenizer._clean_canonicalize
    texts = strings(300)
    assert ours.tokenize(texts) == [tokenizer.encode(clean(text)).ids for text in texts]
    ids = torch.tensor([row + [1] * (64 - len(row)) for row in ours.tokenize(texts[:4])])
    expected = theirs.encode_text(ids, normalize=True)
    torch.testing.assert_close(ours.encode_text(texts[:4]), expected, rtol=0, atol=LIMIT)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="</s>")
    words = open_clip.tokenizer.HFTokenizer.__new__(open_clip.tokenizer.HFTokenizer)
    words.tokenizer, words.clean_fn = fast, clean
    memory = dtpt.from_open_clip(theirs, PREPROCESS, tokenizer=words)
    assert memory.tokenize(texts) == ours.tokenize(texts)
    with pytest.raises(CheckpointError, match="get_tokenizer"):
        dtpt.from_open_clip(theirs, PREPROCESS)
    weights = {k: v for k, v in theirs.state_dict().items() if "attn_pool.kv" not in k}
    save_file(weights, tmp_path / "open_clip_model.safetensors")
    with pytest.raises(CheckpointError, match=r"in_proj_weight is missing"):
        load_model(f"local-dir:{tmp_path}")


# ---- every configuration


def parsed_configs(open_clip):
    for path in sorted(Path(open_clip.__file__).with_name("model_configs").glob("*.json")):
        try:
            yield path.stem, parse_open_clip(json.loads(path.read_text()), origin=path.stem).config
        except CheckpointError:
            yield path.stem, None


def test_every_configuration_is_loadable_or_refused_for_a_reason(open_clip):
    configs = dict(parsed_configs(open_clip))
    assert {name for name, config in configs.items() if config is None} == REFUSED
    assert len(configs) - len(REFUSED) >= 100
    with torch.device("meta"):
        for config in configs.values():
            if config is not None and config.vision.kind != "open_clip":
                image_tower(config)


SAMPLE = {"EVA02-B-16", "PE-Core-T-16-384", "ViTamin-S", "convnext_tiny", "MobileCLIP2-S0"}
SAMPLE |= {"MobileCLIP-B", "ViT-M-16-alt", "swin_base_patch4_window7_224"}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_open_clip_builds_the_other_image_towers(open_clip, every):
    for name, config in parsed_configs(open_clip):
        if config is not None and config.vision.kind == "open_clip" and (every or name in SAMPLE):
            with torch.device("meta"):
                image_tower(config)


SIGLIPS = {"ViT-B-16-SigLIP", "ViT-B-32-SigLIP2-256", "ViT-SO400M-14-SigLIP-384"}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_siglip_towers_have_timms_shapes_and_activations(open_clip, every):
    timm, seen = pytest.importorskip("timm"), {}
    for path in Path(open_clip.__file__).with_name("model_configs").glob("*SigLIP*.json"):
        cfg = json.loads(path.read_text())
        if path.stem in REFUSED or not (every or path.stem in SIGLIPS):
            continue
        seen[cfg["vision_cfg"]["timm_model_name"]] = parse_open_clip(cfg, origin=path.stem).config
    for name, config in seen.items():
        with torch.device("meta"):
            theirs = timm.create_model(name, num_classes=0)
            ours = image_tower(config)
        tanh = getattr(theirs.blocks[0].mlp.act, "approximate", "none") == "tanh"
        tanh |= type(theirs.blocks[0].mlp.act).__name__ == "GELUTanh"
        assert config.vision.activation == ("gelu_tanh" if tanh else "gelu"), name
        assert config.vision.heads == theirs.blocks[0].attn.num_heads
        count = sum(weight.numel() for weight in theirs.parameters())
        assert count == sum(weight.numel() for weight in ours.parameters()), name
