"""Folders that transformers saved: every variant gives transformers' own features."""

import json

import pytest
import torch
from tiny_checkpoints import PREPROCESSOR, TEXTS, padded_ids, shake, write_json

from dtpt.clip.loading import load_model
from dtpt.clip.preprocess import Preprocess
from dtpt.errors import CheckpointError

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
LIMIT = 1e-5


def tiny_clip(transformers, act="quick_gelu"):
    tower = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "hidden_act": act}
    config = transformers.CLIPConfig(
        text_config={**tower, "num_attention_heads": 4, "projection_dim": 32},
        vision_config={
            **tower, "num_attention_heads": 2, "image_size": 32, "patch_size": 8,
            "projection_dim": 32,
        },
        projection_dim=32,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.CLIPModel(config).eval()
    shake(model)
    return model


def save(model, folder, **options):
    model.save_pretrained(folder, **options)
    write_json(folder / "preprocessor_config.json", PREPROCESSOR)


def differences(theirs, ours, pixels):
    """Largest differences of image and text features, before and after normalisation."""
    with torch.inference_mode():
        image = theirs.get_image_features(pixels)
        text = theirs.get_text_features(padded_ids(ours, TEXTS))
        image, text = (getattr(x, "pooler_output", x) for x in (image, text))
        raw = (ours.visual(pixels) - image).abs().max().item()
        unit = torch.nn.functional.normalize
        return {
            "image, raw": raw,
            "image": (ours.encode_image(pixels) - unit(image)).abs().max().item(),
            "text": (ours.encode_text(TEXTS) - unit(text)).abs().max().item(),
        }


@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
def test_features_equal_transformers(transformers, tmp_path, pixels, act):
    theirs = tiny_clip(transformers, act)
    save(theirs, tmp_path)
    ours = load_model(f"local-dir:{tmp_path}")
    assert ours.config.activation == act
    assert max(differences(theirs, ours, pixels).values()) < LIMIT
    assert ours.logit_scale == pytest.approx(theirs.logit_scale.exp().item(), rel=1e-6)
    assert ours.preprocessing.mean == (0.5, 0.4, 0.3)


def test_sharded_and_pickled_weights_are_the_same_model(transformers, tmp_path, pixels):
    theirs = tiny_clip(transformers)
    whole, shards, pickled = tmp_path / "whole", tmp_path / "shards", tmp_path / "pickled"
    save(theirs, whole)
    save(theirs, shards, max_shard_size="1MB")
    save(theirs, pickled)
    (pickled / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), pickled / "pytorch_model.bin")
    assert len(list(shards.glob("model-*.safetensors"))) > 1
    prints = {load_model(f"local-dir:{folder}").fingerprint for folder in (whole, shards, pickled)}
    assert len(prints) == 1


def test_half_precision_is_converted_exactly(transformers, tmp_path, pixels):
    theirs = tiny_clip(transformers).half()
    save(theirs, tmp_path)
    ours = load_model(f"local-dir:{tmp_path}")
    assert ours.dtype == torch.float32
    assert max(differences(theirs.float(), ours, pixels).values()) < LIMIT


def test_processor_config_of_the_new_generation_is_read(transformers, tmp_path):
    save(tiny_clip(transformers), tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    write_json(tmp_path / "processor_config.json", {"image_processor": PREPROCESSOR})
    assert load_model(f"local-dir:{tmp_path}").preprocessing.std == (0.2, 0.3, 0.4)


def test_missing_preprocessing_is_clips_own_with_a_note(transformers, tmp_path):
    save(tiny_clip(transformers), tmp_path)
    assert load_model(f"local-dir:{tmp_path}").notes == ()
    (tmp_path / "preprocessor_config.json").unlink()
    model = load_model(f"local-dir:{tmp_path}")
    assert model.preprocessing == Preprocess.openai(32)
    assert len(model.notes) == 1
    assert "preprocessor_config.json" in model.notes[0]


def test_activation_of_the_caller_counts_only_where_the_config_is_silent(transformers, tmp_path):
    save(tiny_clip(transformers), tmp_path)
    with pytest.raises(CheckpointError, match="'quick_gelu'"):
        load_model(f"local-dir:{tmp_path}", activation="gelu")
    config = json.loads((tmp_path / "config.json").read_text())
    for tower in ("text_config", "vision_config"):
        del config[tower]["hidden_act"]
    write_json(tmp_path / "config.json", config)
    assert load_model(f"local-dir:{tmp_path}").config.activation == "quick_gelu"
    asked = load_model(f"local-dir:{tmp_path}", activation="gelu")
    assert asked.config.activation == "gelu"
    assert "gelu" in asked.notes[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "blip"}, "blip"),
        ({"projection_dim": 48}, r"\(64, 48\)"),
        ({"projection_dim": "many"}, "embed_dim"),
        ({"text_config": [1]}, "text_config"),
    ],
)
def test_config_that_does_not_fit_is_refused(transformers, tmp_path, change, message):
    save(tiny_clip(transformers), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", {**config, **change})
    with pytest.raises(CheckpointError, match=message):
        load_model(f"local-dir:{tmp_path}")


def test_other_end_token_than_the_tokenizers_is_refused(transformers, tmp_path):
    save(tiny_clip(transformers), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"]["eos_token_id"] = 5
    write_json(tmp_path / "config.json", config)
    with pytest.raises(CheckpointError, match="token 5"):
        load_model(f"local-dir:{tmp_path}")
    config["text_config"]["eos_token_id"] = 2  # old configs: the largest id, which is CLIP's end
    write_json(tmp_path / "config.json", config)
    load_model(f"local-dir:{tmp_path}")


def test_towers_with_different_activations_are_refused(transformers, tmp_path):
    save(tiny_clip(transformers), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "gelu"
    write_json(tmp_path / "config.json", config)
    with pytest.raises(CheckpointError, match="hidden_act"):
        load_model(f"local-dir:{tmp_path}")


@pytest.mark.slow
def test_vit_b_16_of_fewer_layers_equals_transformers(transformers, tmp_path, record_property):
    layers = {"num_hidden_layers": 3}
    config = transformers.CLIPConfig(vision_config={"patch_size": 16, **layers}, text_config=layers)
    torch.manual_seed(0)
    theirs = transformers.CLIPModel(config).eval()
    shake(theirs)
    save(theirs, tmp_path)
    write_json(
        tmp_path / "preprocessor_config.json",
        {**PREPROCESSOR, "crop_size": 224, "size": {"shortest_edge": 224}},
    )
    ours = load_model(f"local-dir:{tmp_path}")
    pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(7))
    found = differences(theirs, ours, pixels)
    record_property("largest differences", found)
    assert max(found.values()) < LIMIT
