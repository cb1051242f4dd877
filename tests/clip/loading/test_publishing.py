"""Uploads to a local server that speaks the hub's protocol, and loading them back from there.

huggingface_hub reads its environment at import, so uploads run in a process of their own.
"""

import json
import shutil

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
results = []
for source, repo in json.loads(sys.argv[1]):
    if source.startswith("local-dir:"):
        source = dtpt.load_model(source)
    try:
        results.append(dtpt.push_to_hub(source, repo, license="mit"))
    except dtpt.DtptError as error:
        results.append(str(error))
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    save_model(tiny_model(), folder)
    return folder


def push(uploads, home, hub, token="hf_write"):
    # Xet, the hub's newer protocol for large files, needs a server of its own: here the older one.
    environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1"}
    pairs = json.dumps([(str(source), repo) for source, repo in uploads])
    done = run(["-c", PUSH, pairs], home, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_pushed_models_load_back_with_their_fingerprint(tmp_path, folder):
    original = load_model(f"local-dir:{folder}")
    uploads = [(folder, "org/folder"), (f"local-dir:{folder}", "org/memory")]
    with running_hub({}) as hub:
        addresses = push(uploads, tmp_path, hub)
        assert addresses == [f"{hub.url}/org/folder", f"{hub.url}/org/memory"]
        assert hub.commits == ["Upload with dtpt"] * 2
        back = load("hf-hub:org/folder", tmp_path, HF_ENDPOINT=hub.url)
        first, second = hub.repositories["org/folder"], hub.repositories["org/memory"]
    assert back["fingerprint"] == original.fingerprint
    assert set(first) == {"dtpt_config.json", "model.safetensors", "README.md"}
    assert first["model.safetensors"] == second["model.safetensors"]
    assert first["README.md"].decode() == model_card(original, "org/folder", license="mit")


def test_card_has_fingerprint_licence_and_the_line_that_loads_it(folder):
    model = load_model(f"local-dir:{folder}")
    card = model_card(model, "org/tiny", license="mit")
    assert card.startswith("---\nlibrary_name: dtpt\n")
    assert "license: mit\n" in card
    assert model.fingerprint in card
    assert 'dtpt.load_model("hf-hub:org/tiny")' in card
    assert "license:" not in model_card(model, "org/tiny")


def test_existing_cards_are_kept_and_only_model_files_are_uploaded(tmp_path, folder):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    (own / "README.md").write_text("# Ours\n")
    (own / "secret.txt").write_text("not part of the model")
    with running_hub({"org/tiny": {"README.md": b"mine"}}) as hub:
        push([(folder, "org/tiny"), (own, "org/own")], tmp_path, hub)
        assert hub.repositories["org/tiny"]["README.md"] == b"mine"
        assert hub.repositories["org/own"]["README.md"] == b"# Ours\n"
        assert "secret.txt" not in hub.repositories["org/own"]


def test_broken_folders_are_not_published(tmp_path, folder):
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "model.safetensors").write_bytes(b"\0" * 100)
    with running_hub({}) as hub:
        errors = push([(damaged, "org/tiny"), (tmp_path, "org/tiny")], tmp_path, hub)
        assert hub.repositories == {}
    assert "damaged/model.safetensors" in errors[0]
    assert "dtpt_config.json" in errors[1]


def test_refused_upload_is_one_line(tmp_path, folder):
    with running_hub({}) as hub:
        (error,) = push([(folder, "org/tiny")], tmp_path, hub, token="hf_read")
    assert error.startswith("org/tiny")
    assert "\n" not in error
