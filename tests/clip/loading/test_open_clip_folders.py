"""Folders that open_clip saved: both towers, all of its file names, give open_clip's features."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tiny_checkpoints import TEXTS, padded_ids, shake, write_json

from dtpt.clip.loading import load_model
from dtpt.clip.loading.open_clip_configs import parse_open_clip
from dtpt.clip.preprocess import Preprocess
from dtpt.errors import CheckpointError

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:timm"),
]
LIMIT = 1e-5
PREPROCESS = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], "interpolation": "bicubic"}
VISION = {
    "vit": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8},
    "resnet": {"image_size": 32, "layers": [1, 2, 1, 1], "width": 16, "patch_size": None},
}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 4, "layers": 2}


def model_cfg(tower, quick_gelu=False):
    cfg = {"embed_dim": 32, "vision_cfg": VISION[tower], "text_cfg": TEXT}
    return {**cfg, "quick_gelu": True} if quick_gelu else cfg


def build(open_clip, cfg, custom_text=False):
    torch.manual_seed(0)
    kind = open_clip.CustomTextCLIP if custom_text else open_clip.CLIP
    model = kind(**cfg).eval()
    shake(model)
    return model


def save(model, cfg, folder, name="open_clip_model.safetensors"):
    folder.mkdir(exist_ok=True)
    write_json(folder / "open_clip_config.json", {"model_cfg": cfg, "preprocess_cfg": PREPROCESS})
    weights = {key: value.contiguous() for key, value in model.state_dict().items()}
    if name.endswith(".safetensors"):
        save_file(weights, folder / name)
    else:
        torch.save(weights, folder / name)


def differences(theirs, ours, pixels):
    with torch.inference_mode():
        image = theirs.encode_image(pixels)
        text = theirs.encode_text(padded_ids(ours, TEXTS), normalize=True)
        unit = torch.nn.functional.normalize(image, dim=-1)
        return {
            "image, raw": (ours.visual(pixels) - image).abs().max().item(),
            "image": (ours.encode_image(pixels) - unit).abs().max().item(),
            "text": (ours.encode_text(TEXTS) - text).abs().max().item(),
        }


@pytest.mark.parametrize("tower", ["vit", "resnet"])
@pytest.mark.parametrize("quick_gelu", [True, False])
@pytest.mark.parametrize("custom_text", [True, False])
def test_features_equal_open_clip(open_clip, tmp_path, pixels, tower, quick_gelu, custom_text):
    cfg = model_cfg(tower, quick_gelu)
    theirs = build(open_clip, cfg, custom_text)
    save(theirs, cfg, tmp_path)
    ours = load_model(f"local-dir:{tmp_path}")
    assert ours.config.activation == ("quick_gelu" if quick_gelu else "gelu")
    assert max(differences(theirs, ours, pixels).values()) < LIMIT
    assert ours.preprocessing.mean == (0.5, 0.4, 0.3)


@pytest.mark.parametrize("tower", ["vit", "resnet"])
def test_all_file_names_hold_the_same_model(open_clip, tmp_path, tower):
    cfg = model_cfg(tower)
    theirs = build(open_clip, cfg)
    names = ["open_clip_model.safetensors", "model.safetensors", "open_clip_pytorch_model.bin"]
    for name in names:
        save(theirs, cfg, tmp_path / name, name)
    assert len({load_model(f"local-dir:{tmp_path / name}").fingerprint for name in names}) == 1


def test_folder_of_open_clips_own_saver_loads(open_clip, tmp_path):
    from open_clip.push_to_hf_hub import save_config_for_hf

    cfg = model_cfg("vit")
    theirs = build(open_clip, cfg)
    open_clip.factory.set_model_preprocess_cfg(theirs, {"size": 32, **PREPROCESS})
    save_file(theirs.state_dict(), tmp_path / "open_clip_model.safetensors")
    save_config_for_hf(theirs, tmp_path / "open_clip_config.json", cfg)
    assert load_model(f"local-dir:{tmp_path}").preprocessing.std == (0.2, 0.3, 0.4)


def test_bare_model_config_loads_with_notes(open_clip, tmp_path, pixels):
    cfg = model_cfg("vit")
    theirs = build(open_clip, cfg)
    save(theirs, cfg, tmp_path)
    write_json(tmp_path / "open_clip_config.json", cfg)
    ours = load_model(f"local-dir:{tmp_path}")
    assert max(differences(theirs, ours, pixels).values()) < LIMIT
    assert ours.preprocessing == Preprocess.openai(32)
    assert "preprocess_cfg" in ours.notes[0]
    quick = load_model(f"local-dir:{tmp_path}", activation="quick_gelu")
    assert quick.config.activation == "quick_gelu"
    assert "quick_gelu" in quick.notes[1]


def test_bare_model_config_beside_a_file_decides(open_clip, tmp_path, pixels):
    cfg = model_cfg("resnet", quick_gelu=True)
    theirs = build(open_clip, cfg)
    torch.save(theirs.state_dict(), tmp_path / "epoch_3.pt")
    write_json(tmp_path / "epoch_3.json", cfg)
    ours = load_model(f"local-file:{tmp_path / 'epoch_3.pt'}")
    assert ours.config.activation == "quick_gelu"
    assert max(differences(theirs, ours, pixels).values()) < LIMIT


def test_activation_changes_the_fingerprint(open_clip, tmp_path):
    theirs = build(open_clip, model_cfg("vit"))
    save(theirs, model_cfg("vit"), tmp_path / "gelu")
    save(theirs, model_cfg("vit", quick_gelu=True), tmp_path / "quick")
    prints = {load_model(f"local-dir:{tmp_path / name}").fingerprint for name in ("gelu", "quick")}
    assert len(prints) == 2


@pytest.mark.parametrize(
    ("section", "setting", "message"),
    [
        ("vision_cfg", {"timm_model_name": "vit_tiny"}, "vit_tiny"),
        ("vision_cfg", {"invented": 1}, "invented"),
        ("vision_cfg", {"layers": 10**9}, "layers"),
        ("vision_cfg", {"head_width": 0}, "zero"),
        ("text_cfg", {"hf_model_name": "roberta"}, "hf_model_name"),
        ("text_cfg", {"pool_type": "last"}, "causal"),
        ("text_cfg", {"pool_type": "first"}, "first"),
        ("text_cfg", {"hf_tokenizer_name": "org/other"}, r"no tokenizer\.json"),
        ("text_cfg", {"heads": 5}, "heads"),
        ("text_cfg", {"vocab_size": 1000}, r"no tokenizer\.json"),
    ],
)
def test_config_that_is_no_clip_is_refused_by_name(open_clip, tmp_path, section, setting, message):
    cfg = model_cfg("vit")
    save(build(open_clip, cfg), cfg, tmp_path)
    changed = {**cfg, section: {**cfg[section], **setting}}
    path = tmp_path / "open_clip_config.json"
    write_json(path, {**json.loads(path.read_text()), "model_cfg": changed})
    with pytest.raises(CheckpointError, match=message):
        load_model(f"local-dir:{tmp_path}")


def test_config_of_an_audio_model_is_refused_by_what_it_lacks():
    cfg = {"embed_dim": 32, "audio_cfg": {"model_type": "HTSAT"}, "text_cfg": TEXT}
    with pytest.raises(CheckpointError, match=r"no vision_cfg \(it has audio_cfg, text_cfg\)"):
        parse_open_clip(cfg, origin="config")
    with pytest.raises(CheckpointError, match="no text_cfg"):
        parse_open_clip({"embed_dim": 32, "vision_cfg": VISION["vit"]}, origin="config")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["RN50", "ViT-B-16-quickgelu"])
def test_full_size_equals_open_clip(open_clip, tmp_path, record_property, name):
    cfg = open_clip.get_model_config(name)
    theirs = build(open_clip, cfg)
    save(theirs, cfg, tmp_path)
    ours = load_model(f"local-dir:{tmp_path}")
    pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(7))
    found = differences(theirs, ours, pixels)
    record_property("largest differences", found)
    assert max(found.values()) < LIMIT
