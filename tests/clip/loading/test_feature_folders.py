"""`features:FOLDER`: text features of a class list, and an image tower in any naming or none."""

import json
import pickle

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tiny_checkpoints import shake, tiny_model, tiny_weights

from dtpt.clip.loading import load_model
from dtpt.clip.loading.features import FeatureModel
from dtpt.clip.preprocess import Preprocess
from dtpt.errors import CheckpointError, MethodError, ModelError, PromptError
from dtpt.methods import METHODS
from dtpt.prediction import Classifier

CLASSES = ["great cat", "dog", "fox"]
PARTS = {
    "format": 1,
    "classes": CLASSES,
    "prompt": "a photo of a {}.",
    "logit_scale": 50.0,
    "activation": "gelu",
}


def text_features(count=3, dimensions=32):
    return torch.randn(count, dimensions, generator=torch.Generator().manual_seed(1))


def write(folder, *, features=None, tower=None, tower_metadata=None, **changes):
    """Write a folder and return its name; a change to None removes the entry."""
    folder.mkdir(exist_ok=True)
    stated = {k: v for k, v in {**PARTS, **changes}.items() if v is not None}
    tensors = {"text_features": text_features() if features is None else features}
    save_file(tensors, folder / "text_features.safetensors", {"dtpt": json.dumps(stated)})
    if tower is not None:
        save_file(tower, folder / "image_tower.safetensors", tower_metadata)
    return f"features:{folder}"


def openai_tower(kind="vit"):
    names = tiny_weights(kind)
    return {n: t.contiguous() for n, t in names.items() if n.startswith("visual.")}


def bare_tower():
    return {name.removeprefix("visual."): t for name, t in openai_tower().items()}


def transformers_tower():
    """The same weights under transformers' names, by hand."""
    source, made = openai_tower(), {}
    parts = {
        "visual.class_embedding": "vision_model.embeddings.class_embedding",
        "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
        "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    }
    for name, target in parts.items():
        made[target] = source[name]
    for kind in ("weight", "bias"):
        made[f"vision_model.pre_layrnorm.{kind}"] = source[f"visual.ln_pre.{kind}"]
        made[f"vision_model.post_layernorm.{kind}"] = source[f"visual.ln_post.{kind}"]
        for layer in range(2):
            ours = f"visual.transformer.resblocks.{layer}"
            theirs = f"vision_model.encoder.layers.{layer}"
            thirds = source[f"{ours}.attn.in_proj_{kind}"].chunk(3)
            for letter, third in zip("qkv", thirds, strict=True):
                made[f"{theirs}.self_attn.{letter}_proj.{kind}"] = third.clone()
            for a, b in [
                ("attn.out_proj", "self_attn.out_proj"),
                ("ln_1", "layer_norm1"),
                ("ln_2", "layer_norm2"),
                ("mlp.c_fc", "mlp.fc1"),
                ("mlp.c_proj", "mlp.fc2"),
            ]:
                made[f"{theirs}.{b}.{kind}"] = source[f"{ours}.{a}.{kind}"]
    made["visual_projection.weight"] = source["visual.proj"].T.contiguous()
    return made


TOWERS = {"openai": openai_tower, "transformers": transformers_tower, "bare": bare_tower}


@pytest.mark.parametrize("naming", TOWERS)
def test_a_tower_of_any_naming_gives_the_same_features(tmp_path, pixels, naming):
    model = load_model(write(tmp_path / "m", tower=TOWERS[naming]()), device="cpu")
    expected = tiny_model().encode_image(pixels)
    torch.testing.assert_close(model.encode_image(pixels), expected, rtol=0, atol=1e-6)
    assert model.text is None
    assert model.logit_scale == pytest.approx(50)
    assert model.name == f"features:{tmp_path / 'm'}"


def test_a_resnet_is_known_by_its_shapes(tmp_path, pixels):
    model = load_model(write(tmp_path / "m", tower=openai_tower("resnet")), device="cpu")
    torch.testing.assert_close(
        model.encode_image(pixels), tiny_model("resnet").encode_image(pixels)
    )


def test_features_are_normalised_but_unit_vectors_stay_as_they_are(tmp_path):
    model = load_model(write(tmp_path / "m"), device="cpu")
    assert torch.equal(model.fixed_text.features, F.normalize(text_features(), dim=-1))
    again = load_model(write(tmp_path / "n", features=model.fixed_text.features))
    assert torch.equal(again.fixed_text.features, model.fixed_text.features)
    half = load_model(write(tmp_path / "h", features=text_features().half()))
    assert half.fixed_text.features.dtype == torch.float32


def test_classes_are_found_by_name(tmp_path):
    text = load_model(write(tmp_path / "m"), device="cpu").fixed_text
    assert torch.equal(text.of(("fox", "great_cat")), text.features[[2, 0]])
    assert torch.equal(text.of(CLASSES), text.features)
    for wrong in (("fox", "wolf"), ("fox", "fox"), ("Fox",), (*CLASSES, "dog")):
        with pytest.raises(PromptError):
            text.of(wrong)


def test_a_name_that_occurs_twice_keeps_its_order(tmp_path):
    names = ["missile", "dog", "missile"]
    text = load_model(write(tmp_path / "m", classes=names), device="cpu").fixed_text
    assert torch.equal(text.of(("dog", "missile", "missile")), text.features[[1, 0, 2]])
    with pytest.raises(PromptError):
        text.of(("missile", "dog"))


def test_fingerprints_cover_both_files_and_images_only_the_tower(tmp_path):
    tower = openai_tower()
    base = load_model(write(tmp_path / "a", tower=tower))
    same = load_model(write(tmp_path / "b", tower=transformers_tower(), source="elsewhere"))
    assert (same.fingerprint, same.image_fingerprint) == (base.fingerprint, base.image_fingerprint)
    others = [
        {"features": text_features().roll(1, 0)},
        {"classes": ["a", "b", "c"]},
        {"logit_scale": 60.0},
        {"logit_bias": -12.0},
        {"prompt": "{}"},
    ]
    for number, change in enumerate(others):
        other = load_model(write(tmp_path / str(number), tower=tower, **change))
        assert other.fingerprint != base.fingerprint
        assert other.image_fingerprint == base.image_fingerprint
    preprocess = Preprocess(size=32, mean=(0.5, 0.5, 0.5)).model_dump(mode="json")
    changed = {**tower, "visual.proj": tower["visual.proj"] + 0.1}
    for number, change in enumerate(
        [{"preprocess": preprocess}, {"activation": "quick_gelu"}, {"tower": changed}]
    ):
        other = load_model(write(tmp_path / f"t{number}", **{"tower": tower, **change}))
        assert other.image_fingerprint != base.image_fingerprint
        assert other.fingerprint != base.fingerprint


def test_models_with_a_text_tower_have_one_fingerprint():
    model = load_model("pocket", device="cpu")
    assert model.image_fingerprint == model.fingerprint
    assert model.fixed_text is None


def test_without_an_image_tower_images_are_refused_and_features_are_not(tmp_path):
    model = load_model(write(tmp_path / "m", activation=None), device="cpu")
    with pytest.raises(ModelError):
        model.encode_views(torch.zeros(2, 3, 224, 224))
    views = F.normalize(text_features(4), dim=-1)
    made = Classifier(model, CLASSES, method="mean-views", views=4)
    assert made.tune(views).probabilities.shape == (3,)


def test_methods_that_tune_the_prompt_are_refused(tmp_path):
    model = load_model(write(tmp_path / "m"), device="cpu")
    for name, method in METHODS.items():
        if method.parameter == "context":
            with pytest.raises(MethodError) as caught:
                Classifier(model, CLASSES, method=name)
            assert "d-tps" in str(caught.value)
            assert "\n" not in str(caught.value)
        else:
            Classifier(model, CLASSES, method=name)


def test_another_template_or_a_context_is_refused(tmp_path):
    model = load_model(write(tmp_path / "m", prompt="{}"), device="cpu")
    assert Classifier(model, CLASSES, method="tps").predictor.template == "{}"
    for change in ({"template": "a sketch of a {}."}, {"context": torch.zeros(4, 64)}):
        with pytest.raises(PromptError):
            Classifier(model, CLASSES, method="tps", **change)


def test_a_model_in_memory_is_saved_and_read(tmp_path, pixels):
    whole = tiny_model()
    shake(whole)
    made = FeatureModel(CLASSES, text_features(), prompt="x {}", logit_scale=50, image=whole)
    made.save(tmp_path / "m")
    read = load_model(f"features:{tmp_path / 'm'}", device="cpu")
    assert torch.equal(read.encode_image(pixels), made.encode_image(pixels))
    assert torch.equal(read.fixed_text.features, made.fixed_text.features)
    assert read.fixed_text.prompt == "x {}"
    copied = pickle.loads(pickle.dumps(read))
    assert copied.fingerprint == read.fingerprint
    assert torch.equal(copied.encode_image(pixels), read.encode_image(pixels))


def test_a_classifier_is_saved_without_the_weights(tmp_path):
    model = load_model(write(tmp_path / "m", tower=openai_tower()), device="cpu")
    made = Classifier(model, ["fox", "dog"], method="d-tps", views=2)
    made.save(tmp_path / "saved")
    views = F.normalize(text_features(2), dim=-1)
    expected, read = made.tune(views), Classifier.load(tmp_path / "saved", device="cpu").tune(views)
    assert expected.probabilities.tolist() == read.probabilities.tolist()
    with pytest.raises(CheckpointError):
        made.save(tmp_path / "whole", weights=True)


def with_nan():
    features = text_features()
    features[1, 4] = float("nan")
    return features


def with_zero_row():
    features = text_features()
    features[2] = 0
    return features


HOSTILE = {
    "nan": {"features": with_nan()},
    "a zero row": {"features": with_zero_row()},
    "too few rows": {"features": text_features(2)},
    "one dimension": {"features": text_features()[0]},
    "integers": {"features": torch.ones(3, 32, dtype=torch.int64)},
    "no classes": {"classes": []},
    "classes that are numbers": {"classes": [1, 2, 3]},
    "another format": {"format": 2},
    "an unknown entry": {"run": "rm"},
    "no prompt": {"prompt": None},
    "no scale": {"logit_scale": None},
    "a logarithm of the scale below 0": {"logit_scale": -4.6},
    "an endless scale": {"logit_scale": 1e300},
    "other dimensions": {"features": text_features(3, 16), "tower": openai_tower()},
    "no activation": {"activation": None, "tower": openai_tower()},
    "two activations": {"tower": openai_tower(), "tower_metadata": {"activation": "quick_gelu"}},
    "another activation": {"activation": "relu"},
    "no projection": {
        "tower": {n: t for n, t in openai_tower().items() if n != "visual.proj"},
    },
    "a text tower": {"tower": tiny_weights()},
    "no tower": {"tower": {"weight": torch.ones(3)}},
    "an impossible tower": {"tower": openai_tower(), "vision": {"kind": "vit", "width": 1}},
    "other shapes": {
        "tower": {**openai_tower(), "visual.ln_post.bias": torch.zeros(65)},
    },
    "damaged weights": {
        "tower": {**openai_tower(), "visual.ln_post.bias": torch.full((64,), float("inf"))},
    },
    "preprocessing of another size": {
        "tower": openai_tower(), "preprocess": {"size": 64},
    },
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_folders_that_cannot_be_right_are_refused(tmp_path, case):
    with pytest.raises(CheckpointError) as caught:
        load_model(write(tmp_path / "m", **HOSTILE[case]), device="cpu")
    assert "\n" not in str(caught.value)


def test_text_files_without_our_metadata_are_refused(tmp_path):
    path = tmp_path / "text_features.safetensors"
    for metadata in (None, {"dtpt": "{"}, {"dtpt": "[" * 10**5}, {"dtpt": "NaN"}, {"dtpt": "[]"}):
        save_file({"text_features": text_features()}, path, metadata)
        with pytest.raises(CheckpointError):
            load_model(f"features:{tmp_path}")
    for content in (b"", b"\x80\x04.", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            load_model(f"features:{tmp_path}")
    path.unlink()
    with pytest.raises(CheckpointError):
        load_model(f"features:{tmp_path}")


def test_features_and_towers_beyond_the_limit_are_refused(tmp_path):
    for name in (write(tmp_path / "a"), write(tmp_path / "b", tower=openai_tower())):
        with pytest.raises(CheckpointError):
            load_model(name, max_model_size=1e-9)
        load_model(name, max_model_size=0.01)
