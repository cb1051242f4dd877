"""Single files and our own folders: where config, activation and tokenizer come from."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tiny_checkpoints import TEXTS, tiny_model, tiny_weights, write_json

from dtpt.cli.main import run
from dtpt.clip.config import SmallResNetConfig
from dtpt.clip.loading import build, load_model
from dtpt.clip.loading.formats import infer_config, to_openai_names
from dtpt.clip.loading.names import architecture, catalog
from dtpt.clip.loading.read import Checkpoint, in_memory
from dtpt.clip.loading.save import save_model
from dtpt.clip.model import Clip, initialise
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError


def empty_model(config):
    """A model without memory, as a checkpoint's weights are compared with."""
    pixels = Preprocess.openai(config.vision.image_size)
    return build.empty_model(Checkpoint("test", config, Tokenizer.clip_default(), pixels, {}))


@pytest.mark.parametrize("name", list(catalog()))
def test_architecture_has_the_catalogues_number_of_parameters(name):
    model = empty_model(architecture(catalog()[name].architecture))
    assert sum(p.numel() for p in model.parameters()) == catalog()[name].parameters


@pytest.mark.parametrize("name", list(catalog()))
def test_architecture_is_recovered_from_shapes_alone(name):
    config = architecture(catalog()[name].architecture)
    weights = {key: in_memory(t) for key, t in build.model_weights(empty_model(config)).items()}
    canonical = to_openai_names(weights, origin="test")
    assert infer_config(canonical, config.activation, origin="test") == config


@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
def test_safetensors_takes_the_activation_from_metadata_or_caller(tmp_path, activation):
    stated, bare = tmp_path / "stated.safetensors", tmp_path / "bare.safetensors"
    save_file(tiny_weights(), stated, metadata={"activation": activation})
    save_file(tiny_weights(), bare)
    first = load_model(f"local-file:{stated}")
    second = load_model(f"local-file:{bare}", activation=activation)
    assert first.config.activation == second.config.activation == activation
    assert first.fingerprint == second.fingerprint


def test_contradicting_activation_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(tiny_weights(), path, metadata={"activation": "gelu"})
    with pytest.raises(CheckpointError, match="'gelu'"):
        load_model(f"local-file:{path}", activation="quick_gelu")


def test_pickled_state_dict_of_training_loads(tmp_path):
    plain, training = tmp_path / "plain.pt", tmp_path / "training.pt"
    weights = tiny_weights()
    torch.save(weights, plain)
    prefixed = {f"module.{name}": value for name, value in weights.items()}
    torch.save({"state_dict": prefixed, "epoch": 3}, training)
    models = [load_model(f"local-file:{path}", activation="gelu") for path in (plain, training)]
    assert models[0].fingerprint == models[1].fingerprint


def test_old_torch_format_loads_too(tmp_path):
    path, new = tmp_path / "old.bin", tmp_path / "new.bin"
    torch.save(tiny_weights(), path, _use_new_zipfile_serialization=False)
    torch.save(tiny_weights(), new)
    old = load_model(f"local-file:{path}", activation="gelu")
    assert old.fingerprint == load_model(f"local-file:{new}", activation="gelu").fingerprint


def test_config_beside_the_file_decides(tmp_path):
    path = tmp_path / "model_a.safetensors"
    save_file(tiny_weights(), path)
    model = {
        "embed_dim": 32,
        "quick_gelu": True,
        "vision_cfg": {
            "image_size": 32, "layers": 2, "width": 64, "patch_size": 8, "head_width": 16,
        },
        "text_cfg": {"width": 64, "heads": 2, "layers": 2},
    }  # fmt: skip
    pixels = {"mean": [0, 0, 0], "std": [1, 1, 1]}
    write_json(path.with_suffix(".json"), {"model_cfg": model, "preprocess_cfg": pixels})
    loaded = load_model(f"local-file:{path}")
    assert (loaded.config.vision.heads, loaded.config.text.heads) == (4, 2)
    assert loaded.config.activation == "quick_gelu"
    assert loaded.preprocessing.mean == (0, 0, 0)
    with pytest.raises(CheckpointError, match="activation"):
        load_model(f"local-file:{path}", activation="gelu")


@pytest.mark.parametrize("tower", ["vit", "resnet"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_own_folder_round_trips(tmp_path, pixels, tower, dtype):
    model = tiny_model(tower, "quick_gelu").to(dtype).float()
    save_model(model, tmp_path, tokenizer_json=None, dtype=dtype)
    loaded = load_model(f"local-dir:{tmp_path}")
    assert loaded.config == model.config
    assert torch.equal(loaded.encode_image(pixels), model.encode_image(pixels))
    assert torch.equal(loaded.encode_text(TEXTS), model.encode_text(TEXTS))
    assert not loaded.training
    save_model(loaded, tmp_path / "again", tokenizer_json=None)
    assert load_model(f"local-dir:{tmp_path / 'again'}").fingerprint == loaded.fingerprint
    assert not any(p.requires_grad for p in loaded.parameters())


def test_own_folder_keeps_the_small_tower_and_its_memory_order(tmp_path, pixels):
    vision = SmallResNetConfig(image_size=32, stem_width=8, widths=(16, 32), layers=(1, 1))
    base = tiny_model()
    config = base.config.model_copy(update={"vision": vision})
    model = Clip(config, tokenizer=base.tokenizer, preprocessing=base.preprocessing)
    initialise(model, torch.Generator().manual_seed(0))
    model.eval().requires_grad_(False)
    save_model(model, tmp_path, tokenizer_json=None)
    loaded = load_model(f"local-dir:{tmp_path}")
    assert loaded.visual.conv2.weight.stride() == model.visual.conv2.weight.stride()
    assert torch.equal(loaded.encode_image(pixels), model.encode_image(pixels))


def test_fingerprint_covers_weights_config_and_preprocessing(tmp_path):
    model = tiny_model()
    save_model(model, tmp_path, tokenizer_json=None)
    first = load_model(f"local-dir:{tmp_path}").fingerprint
    assert first == load_model(f"local-dir:{tmp_path}").fingerprint
    changes = {first}
    document = json.loads((tmp_path / "dtpt_config.json").read_text())
    for section, field, value in [
        ("preprocess", "interpolation", "bilinear"),
        ("model", "activation", "quick_gelu"),
    ]:
        changed = {**document, section: {**document[section], field: value}}
        write_json(tmp_path / "dtpt_config.json", changed)
        changes.add(load_model(f"local-dir:{tmp_path}").fingerprint)
    write_json(tmp_path / "dtpt_config.json", document)
    with torch.no_grad():
        model.text.ln_final.bias[0] += 1e-6
    save_model(model, tmp_path, tokenizer_json=None)
    changes.add(load_model(f"local-dir:{tmp_path}").fingerprint)
    assert len(changes) == 4


def test_model_beyond_the_size_limit_needs_a_higher_one(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    save_file(tiny_weights(), path, metadata={"activation": "gelu"})
    gib = sum(4 * t.numel() for t in tiny_weights().values()) / 2**30
    monkeypatch.setattr(build, "_read_all", None)  # refused before anything is read
    with pytest.raises(CheckpointError, match=r"0\.0 GiB .*max_model_size=1"):
        load_model(f"local-file:{path}", max_model_size=0.99 * gib)
    monkeypatch.undo()
    assert load_model(f"local-file:{path}", max_model_size=gib).fingerprint


def test_command_line_names_flags_where_python_names_arguments(tmp_path, capsys, monkeypatch):
    path = tmp_path / "bare.safetensors"
    save_file(tiny_weights(), path)
    words = ["dtpt", "models", "add", "mine", str(path)]
    for more, remedy in [
        ([], "--activation quick_gelu"),
        (["--activation", "gelu", "--max-model-size", "0.01"], "--max-model-size 1"),
    ]:
        monkeypatch.setattr("sys.argv", [*words, *more])
        with pytest.raises(SystemExit):
            run()
        assert remedy in capsys.readouterr().err


def test_embedded_model_loads_by_its_name():
    model = load_model("pocket")
    assert model.encode_text(["a cat"]).shape == (1, model.config.embed_dim)


def test_loaded_weights_do_not_depend_on_the_file(tmp_path, pixels):
    path = tmp_path / "model.safetensors"
    save_file(tiny_weights(), path, metadata={"activation": "gelu"})
    model = load_model(f"local-file:{path}")
    before = model.encode_image(pixels)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(model.encode_image(pixels), before)


def test_vocabulary_that_is_not_clips_needs_a_folder(tmp_path):
    weights = tiny_weights()
    weights["token_embedding.weight"] = weights["token_embedding.weight"][:1000].clone()
    path = tmp_path / "model.safetensors"
    save_file(weights, path, metadata={"activation": "gelu"})
    with pytest.raises(CheckpointError, match="1000"):
        load_model(f"local-file:{path}")


def test_tokenizer_with_more_tokens_than_embeddings_is_refused(tmp_path):
    model = tiny_model()
    text = model.config.text.model_copy(update={"vocab_size": 400})
    small = Clip(
        model.config.model_copy(update={"text": text}),
        tokenizer=model.tokenizer,
        preprocessing=model.preprocessing,
    )
    initialise(small, torch.Generator().manual_seed(0))
    letters = {chr(33 + i): i for i in range(90)} | {
        chr(33 + i) + "</w>": 90 + i for i in range(90)
    }
    letters |= {"<|startoftext|>": 498, "<|endoftext|>": 499}
    tokenizer = {
        "model": {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": letters, "merges": []},
        "pre_tokenizer": {"type": "ByteLevel"},
    }
    save_model(small, tmp_path, tokenizer_json=json.dumps(tokenizer).encode())
    with pytest.raises(CheckpointError, match="400"):
        load_model(f"local-dir:{tmp_path}")
