"""Uploads to a local server that speaks the hub's protocol, and what comes back from there.

huggingface_hub reads its environment at import, so every upload runs in a process of its own.
"""

import json

import pytest
from hub_server import running_hub
from test_hub_downloads import load, run
from tiny_checkpoints import tiny_model

from dtpt.clip.loading import load_model
from dtpt.clip.loading.hub import model_card
from dtpt.clip.loading.save import save_model

PUSH = """
import json, sys, warnings
warnings.simplefilter("error")
import dtpt
source = sys.argv[1]
if source.startswith("local-dir:"):
    source = dtpt.load_model(source)
try:
    print(json.dumps({"address": dtpt.push_to_hub(source, sys.argv[2], license="mit")}))
except dtpt.DtptError as error:
    print(json.dumps({"error": str(error)}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(tiny_model(), folder)
    return folder


def push(source, home, hub, repo="org/tiny", token="hf_write"):
    # Xet, the hub's newer way for large files, needs a server of its own: here the older one.
    environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1"}
    done = run(["-c", PUSH, str(source), repo], home, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("from_memory", [False, True])
def test_pushed_model_loads_back_with_its_fingerprint(tmp_path, folder, from_memory):
    original = load_model(f"local-dir:{folder}")
    with running_hub({}) as hub:
        source = f"local-dir:{folder}" if from_memory else folder
        assert push(source, tmp_path, hub) == {"address": f"{hub.url}/org/tiny"}
        files = hub.repositories["org/tiny"]
        assert hub.commits == ["Upload with dtpt"]
        assert set(files) == {"dtpt_config.json", "model.safetensors", "README.md"}
        back = load("hf-hub:org/tiny", tmp_path, HF_ENDPOINT=hub.url)
    assert back["fingerprint"] == original.fingerprint
    card = files["README.md"].decode()
    assert card == model_card(original, "org/tiny", license="mit")


def test_card_says_what_it_is_and_how_to_load_it(folder):
    model = load_model(f"local-dir:{folder}")
    card = model_card(model, "org/tiny", license="mit")
    assert card.startswith("---\nlibrary_name: dtpt\n")
    assert "license: mit\n" in card
    assert model.fingerprint in card
    assert 'dtpt.load_model("hf-hub:org/tiny")' in card
    assert "license:" not in model_card(model, "org/tiny")


def test_cards_of_people_are_kept(tmp_path, folder):
    with running_hub({"org/tiny": {"README.md": b"mine"}}) as hub:
        push(folder, tmp_path, hub)
        assert hub.repositories["org/tiny"]["README.md"] == b"mine"
        (tmp_path / "own").mkdir()
        for path in folder.iterdir():
            (tmp_path / "own" / path.name).write_bytes(path.read_bytes())
        (tmp_path / "own" / "README.md").write_text("# Ours\n")
        (tmp_path / "own" / "secret.txt").write_text("not part of the model")
        push(tmp_path / "own", tmp_path, hub)
        assert hub.repositories["org/tiny"]["README.md"] == b"# Ours\n"
        assert "secret.txt" not in hub.repositories["org/tiny"]


def test_nothing_broken_is_published(tmp_path, folder):
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "dtpt_config.json").write_bytes((folder / "dtpt_config.json").read_bytes())
    (damaged / "model.safetensors").write_bytes(b"\0" * 100)
    with running_hub({}) as hub:
        assert "damaged/model.safetensors" in push(damaged, tmp_path, hub)["error"]
        assert "has no dtpt_config.json" in push(tmp_path, tmp_path, hub)["error"]
        assert hub.repositories == {}


def test_refusal_of_the_hub_is_one_line(tmp_path, folder):
    with running_hub({}) as hub:
        error = push(folder, tmp_path, hub, token="hf_read")["error"]
    assert error.startswith("org/tiny cannot be uploaded (")
    assert "\n" not in error
    error = push(folder, tmp_path, hub)["error"]  # the server is gone
    assert "cannot be reached" in error
