"""Names that the user gives to checkpoints: kept, checked, listed, forgotten."""

import hashlib
import json
import shutil

import pytest
from safetensors.torch import save_file
from tiny_checkpoints import tiny_config, tiny_model, tiny_weights

from dtpt.cli.main import call
from dtpt.clip import load_model
from dtpt.clip.loading.added import added_models, config_folder
from dtpt.clip.loading.adding import add_model
from dtpt.clip.loading.catalog import CatalogEntry, aliases, catalog
from dtpt.clip.loading.names import parse_name
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
    for module in ("load", "adding"):
        monkeypatch.setattr(f"dtpt.clip.loading.{module}.architecture", lambda _: tiny_config())


def test_added_folder_is_known_by_its_name(folder, capsys):
    call(["models", "add", "flowers/clip-v2", str(folder)])
    assert "flowers/clip-v2 is" in capsys.readouterr().out
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


def test_activation_given_once_is_remembered(file):
    with pytest.raises(CheckpointError, match="does not say its activation"):
        add_model("mine", file)
    assert added_models() == {}
    add_model("mine", file, activation="quick_gelu")
    assert load_model("mine").config.activation == "quick_gelu"


def test_other_weights_under_the_old_path_are_refused(folder):
    add_model("mine", folder)
    save_model(tiny_model("vit", "quick_gelu"), folder)
    with pytest.raises(CheckpointError, match="holds another model than when it was added"):
        load_model("mine")
    add_model("mine", folder)
    load_model("mine")


def test_removed_name_is_unknown_and_the_checkpoint_stays(folder, capsys):
    add_model("mine", folder)
    call(["models", "remove", "mine"])
    with pytest.raises(UnknownName):
        load_model("mine")
    with pytest.raises(UnknownName, match="was not added"):
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
    assert load_model("Tiny").notes == (
        f"{file} holds weights only: tokenizer, preprocessing and heads are OpenAI's.",
    )
    assert parse_name("Tiny").kind == "added"
    with pytest.raises(CheckpointError, match="nothing proves that the weights are the published"):
        add_model("tiny/openai", folder)
    assert added_models()["tiny/openai"].path == str(file)


@pytest.mark.usefixtures("tiny_in_catalogue")
def test_word_of_the_user_is_taken_and_shown_everywhere(folder, capsys):
    assert parse_name("tiny/openai").kind == "catalog"
    add_model("tiny/openai", folder, trust=True)
    assert load_model("tiny/openai").notes == (
        f"tiny/openai is read from {folder}: trusted by you, not verified.",
    )
    call(["models"])
    assert "trusted by you" in capsys.readouterr().out
    call(["models", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["tiny/openai"]["status"] == "trusted"
    assert rows["tiny/openai"]["path"] == str(folder)


@pytest.mark.usefixtures("tiny_in_catalogue")
def test_other_shapes_are_never_a_model_of_the_catalogue(tmp_path):
    save_model(tiny_model("resnet"), tmp_path / "resnet")
    with pytest.raises(CheckpointError, match="other shapes than the catalogue says"):
        add_model("tiny/openai", tmp_path / "resnet", trust=True)


def test_list_fits_eighty_columns_and_shows_what_is_gone(folder, capsys, monkeypatch):
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
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_model("mine")


DAMAGED = ["{", "[]", "{}", '{"format": 2, "models": {}}', '{"format": 1}']
DAMAGED += ['{"format": 1, "models": [1]}', '{"format": 1, "models": {"a": {"path": 3}}}']


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_file_of_names_is_told_and_kept(config, text, folder):
    config.parent.mkdir()
    config.write_text(text)
    for act in (lambda: load_model("mine"), lambda: add_model("mine", folder)):
        with pytest.raises(CheckpointError, match=r"models\.json"):
            act()
    assert config.read_text() == text
    load_model("pocket")


def test_folder_of_settings_follows_the_environment(monkeypatch, tmp_path):
    assert config_folder() == tmp_path / "config"
    monkeypatch.delenv("DTPT_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/xdg")
    assert str(config_folder()) == "/xdg/dtpt"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(config_folder()) == "/home/somebody/.config/dtpt"


def test_path_that_is_not_utf_8_is_refused_in_words(tmp_path):
    with pytest.raises(CheckpointError, match=r"not UTF-8"):
        add_model("mine", tmp_path / "caf\udce9")


def test_weights_are_counted(folder):
    added = add_model("mine", folder)
    assert added.parameters == sum(p.numel() for p in tiny_model().parameters())
