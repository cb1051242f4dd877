"""What each spelling of a model's name means."""

import pytest

from dtpt.cli import inventory
from dtpt.clip.loading.names import architecture, catalog, hub_models, parse_name
from dtpt.errors import CheckpointError, DtptError, UnknownName

GOOD = [
    ("pocket", "embedded", "pocket", None),
    ("ViT-B-16/openai", "catalog", "ViT-B-16/openai", None),
    ("ViT-B-32/openai", "catalog", "ViT-B-32/openai", None),
    ("ViT-L-14/openai", "catalog", "ViT-L-14/openai", None),
    ("ViT-L-14-336/openai", "catalog", "ViT-L-14-336/openai", None),
    ("RN50/openai", "catalog", "RN50/openai", None),
    ("RN101/openai", "catalog", "RN101/openai", None),
    ("RN50x64/openai", "catalog", "RN50x64/openai", None),
    ("ViT-B/16", "catalog", "ViT-B-16/openai", None),
    ("ViT-B/32", "catalog", "ViT-B-32/openai", None),
    ("ViT-L/14", "catalog", "ViT-L-14/openai", None),
    ("ViT-L/14@336px", "catalog", "ViT-L-14-336/openai", None),
    ("RN50", "catalog", "RN50/openai", None),
    ("RN50x4", "catalog", "RN50x4/openai", None),
    ("RN50x16", "catalog", "RN50x16/openai", None),
    ("hf-hub:openai/clip-vit-base-patch16", "hub", "openai/clip-vit-base-patch16", None),
    ("hf-hub:timm/resnet50_clip.openai", "hub", "timm/resnet50_clip.openai", None),
    ("hf-hub:org/repo@main", "hub", "org/repo", "main"),
    ("hf-hub:org/repo@refs/pr/1", "hub", "org/repo", "refs/pr/1"),
    ("hf-hub:org/repo@0123456789abcdef", "hub", "org/repo", "0123456789abcdef"),
    ("local-dir:/models/clip", "folder", "/models/clip", None),
    ("local-dir:models/clip", "folder", "models/clip", None),
    ("local-dir:.", "folder", ".", None),
    ("local-dir:~/my models/clip", "folder", "~/my models/clip", None),
    (r"local-dir:C:\models\clip", "folder", r"C:\models\clip", None),
    (r"local-dir:\\server\share\clip", "folder", r"\\server\share\clip", None),
    ("local-file:/models/ViT-B-16.pt", "file", "/models/ViT-B-16.pt", None),
    ("local-file:D:/models/clip.safetensors", "file", "D:/models/clip.safetensors", None),
    ("local-file:a:b.safetensors", "file", "a:b.safetensors", None),
    ("local-file:ViT-B/16", "file", "ViT-B/16", None),
]

BARE_PATHS = [
    "/models/clip",
    "./clip",
    "../clip",
    "~/clip",
    ".",
    "clip.safetensors",
    "models/ViT-B-16.pt",
    "pytorch_model.bin",
    "models/clip/weights",
    "clip/",
    r"C:\models\clip",
    "C:/models/clip",
    "C:",
    r"models\clip",
    r"\\server\share\clip",
]

MALFORMED = [
    "hf-hub:",
    "hf-hub:clip",
    "hf-hub:org/repo/file",
    "hf-hub:../../etc/passwd",
    "hf-hub:org/..",
    "hf-hub:org/repo@",
    "hf-hub:org/repo@../x",
    "hf-hub:org/repo@main@main",
    "local-dir:",
    "local-file:  ",
    "local-file:a\0b",
    "https://example.org/clip.pt",
    "file:///models/clip.pt",
    "s3:bucket/clip",
    "local_dir:/models/clip",
]

UNKNOWN = [
    ("ViT-B-16", "ViT-B-16/openai"),
    ("vit-b-16/openai", "ViT-B-16/openai"),
    ("ViT-B-17/openai", "ViT-B-16/openai"),
    ("RN51", "RN50"),
    ("Pocket", "pocket"),
]


@pytest.mark.parametrize(("name", "kind", "value", "revision"), GOOD)
def test_name_means_the_right_source_and_survives_a_round_trip(name, kind, value, revision):
    parsed = parse_name(name)
    assert (parsed.kind, parsed.value, parsed.revision) == (kind, value, revision)
    assert parse_name(str(parsed)) == parsed


@pytest.mark.parametrize("name", BARE_PATHS)
def test_bare_path_is_refused_and_the_schemes_are_named(name):
    with pytest.raises(CheckpointError, match="local-dir:PATH"):
        parse_name(name)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_name_is_refused_with_the_name_in_the_message(name):
    with pytest.raises(CheckpointError) as caught:
        parse_name(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(("name", "nearest"), UNKNOWN)
def test_unknown_name_lists_the_nearest(name, nearest):
    with pytest.raises(UnknownName) as caught:
        parse_name(name)
    assert nearest in str(caught.value)


@pytest.mark.parametrize("name", ["", " ", "x" * 10_000, "\n", "💥"])
def test_nonsense_gives_a_typed_error(name):
    with pytest.raises(DtptError):
        parse_name(name)


@pytest.mark.parametrize("name", list(catalog()))
def test_catalogue_entry_has_an_architecture_with_openais_activation(name):
    entry = catalog()[name]
    assert architecture(entry.architecture).activation == "quick_gelu"
    assert entry.weights.endswith(".safetensors")
    assert len(entry.torchscript_sha256) == 64


def test_names_of_open_clip_mean_repositories_of_the_hub():
    parsed = parse_name("ViT-B-16-SigLIP2/webli")
    assert (parsed.kind, parsed.value) == ("hub", "timm/ViT-B-16-SigLIP2")
    assert str(parsed) == "hf-hub:timm/ViT-B-16-SigLIP2"
    assert not hub_models().keys() & catalog().keys()


@pytest.mark.parametrize(("installed", "loads"), [(None, False), (object(), True)])
def test_listing_tells_which_extra_a_model_needs(monkeypatch, installed, loads):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: installed)
    rows = {row["name"]: row for row in inventory._model_rows()}
    assert (rows["PE-Core-B-16/meta"]["needs"], rows["pocket"]["needs"]) == ("towers", "")
    assert rows["PE-Core-B-16/meta"]["loads"] == loads
    assert all(row["loads"] for row in rows.values() if not row["needs"])
    assert {row["methods"] for row in rows.values()} == {"all"}
