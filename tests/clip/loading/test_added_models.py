"""Names that the user gives to checkpoints: stored, checked, listed, removed."""

import hashlib
import json
import shutil

import pytest
from safetensors.torch import save_file
from tiny_checkpoints import tiny_config, tiny_model, tiny_weights

from dtpt.cli.main import call
from dtpt.clip.loading import load_model
from dtpt.clip.loading.names import (
    CatalogEntry,
    add_model,
    added_models,
    aliases,
    catalog,
    config_folder,
    parse_name,
)
from dtpt.clip.loading.save import save_model
from dtpt.errors import CheckpointError, UnknownName


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("DTPT_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config" / "models.json"


@pytest.fixture
def folder(tmp_path):
    save_model(tiny_model(), tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.fixture
def file(tmp_path):
    save_file(tiny_weights(), tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


@pytest.fixture
def tiny_in_catalogue(file, monkeypatch):
    """A catalogue that knows the tiny model, with the digest of `file` as the published one."""
    published = hashlib.sha256(file.read_bytes()).hexdigest()
    entry = CatalogEntry(
        architecture="tiny", repo="org/tiny", weights="w.safetensors", parameters=1,
        aliases=("Tiny",), torchscript_sha256=published,
    )  # fmt: skip
    monkeypatch.setitem(catalog(), "tiny/openai", entry)
    monkeypatch.setitem(aliases(), "Tiny", "tiny/openai")
    monkeypatch.setattr("dtpt.clip.loading.names.architecture", lambda _: tiny_config())


def test_added_folder_loads_by_its_name(folder, capsys):
    call(["models", "add", "flowers/clip-v2", str(folder)])
    assert "flowers/clip-v2" in capsys.readouterr().out
    model = load_model("flowers/clip-v2")
    assert model.fingerprint == load_model(f"local-dir:{folder}").fingerprint
    assert model.notes == ()
    assert parse_name("flowers/clip-v2").kind == "added"
    assert str(parse_name("flowers/clip-v2")) == "flowers/clip-v2"
    with pytest.raises(UnknownName, match="flowers/clip-v2"):
        parse_name("flower/clip-v2")


def test_relative_path_still_means_the_same_from_elsewhere(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    add_model("mine", "tiny")
    monkeypatch.chdir("/")
    load_model("mine")


def test_activation_is_stored_with_the_name(file):
    with pytest.raises(CheckpointError, match="activation"):
        add_model("mine", file)
    assert added_models() == {}
    add_model("mine", file, activation="quick_gelu")
    assert load_model("mine").config.activation == "quick_gelu"


def test_other_weights_under_the_old_path_are_refused(folder):
    add_model("mine", folder)
    save_model(tiny_model("vit", "quick_gelu"), folder)
    with pytest.raises(CheckpointError, match="models add mine"):
        load_model("mine")
    add_model("mine", folder)
    load_model("mine")


def test_removed_name_is_unknown_and_the_checkpoint_stays(folder, capsys):
    add_model("mine", folder)
    call(["models", "remove", "mine"])
    with pytest.raises(UnknownName):
        load_model("mine")
    with pytest.raises(UnknownName, match="mine"):
        call(["models", "remove", "mine"])
    load_model(f"local-dir:{folder}")


@pytest.mark.parametrize(
    "name", ["pocket", "", "a b", "a/b/c", "local-dir:x", "../x", "x.safetensors", "-x", "é", "a/"]
)
def test_name_that_means_something_else_is_refused(name, folder):
    with pytest.raises(CheckpointError):
        add_model(name, folder)
    assert added_models() == {}


@pytest.mark.usefixtures("tiny_in_catalogue")
def test_name_of_the_catalogue_is_for_the_published_file(file, folder, capsys):
    call(["models", "add", "Tiny", str(file)])  # an alias means the name
    assert added_models()["tiny/openai"].status == "verified"
    (note,) = load_model("Tiny").notes
    assert str(file) in note
    assert parse_name("Tiny").kind == "added"
    with pytest.raises(CheckpointError, match="trust=True"):
        add_model("tiny/openai", folder)
    assert added_models()["tiny/openai"].path == str(file)


@pytest.mark.usefixtures("tiny_in_catalogue")
def test_trusted_weights_are_accepted_and_marked(folder, capsys):
    assert parse_name("tiny/openai").kind == "catalog"
    add_model("tiny/openai", folder, trust=True)
    (note,) = load_model("tiny/openai").notes
    assert f"{folder}: trusted" in note
    call(["models"])
    assert "trusted" in capsys.readouterr().out
    call(["models", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["tiny/openai"]["status"] == "trusted"
    assert rows["tiny/openai"]["path"] == str(folder)


@pytest.mark.usefixtures("tiny_in_catalogue")
def test_other_shapes_are_never_a_model_of_the_catalogue(tmp_path):
    save_model(tiny_model("resnet"), tmp_path / "resnet")
    with pytest.raises(CheckpointError, match="catalogue"):
        add_model("tiny/openai", tmp_path / "resnet", trust=True)


def test_list_fits_eighty_columns_and_marks_missing_models(folder, capsys, monkeypatch):
    add_model("mine", folder)
    add_model("a-very-long-name-of-a-model/with-an-ending", folder)
    monkeypatch.setenv("COLUMNS", "80")
    call(["models"])
    lines = capsys.readouterr().out.splitlines()
    paths = [line for line in lines if line.strip() == str(folder)]
    assert len(paths) == 2
    assert all(len(line) <= 80 for line in lines if line not in paths)
    assert "a-very-long-name-of-a-model/with-an-ending:" in lines
    shutil.rmtree(folder)
    call(["models", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["mine"]["cached"] is False
    with pytest.raises(CheckpointError, match="tiny"):
        load_model("mine")


DAMAGED = ["{", "[]", "{}", '{"format": 2, "models": {}}', '{"format": 1}']
DAMAGED += ['{"format": 1, "models": [1]}', '{"format": 1, "models": {"a": {"path": 3}}}']


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_file_of_names_is_an_error_and_unchanged(config, text, folder):
    config.parent.mkdir()
    config.write_text(text)
    with pytest.raises(CheckpointError, match=r"models\.json"):
        load_model("mine")
    with pytest.raises(CheckpointError, match=r"models\.json"):
        add_model("mine", folder)
    assert config.read_text() == text
    load_model("pocket")


def test_folder_of_settings_follows_the_environment(monkeypatch, tmp_path):
    assert config_folder() == tmp_path / "config"
    monkeypatch.delenv("DTPT_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    assert str(config_folder()) == "/xdg/dtpt"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/user")
    assert str(config_folder()) == "/home/user/.config/dtpt"


def test_path_that_is_not_utf_8_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="UTF-8"):
        add_model("mine", tmp_path / "caf\udce9")


def test_weights_are_counted(folder):
    added = add_model("mine", folder)
    assert added.parameters == sum(p.numel() for p in tiny_model().parameters())
