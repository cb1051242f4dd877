"""Models from a local server that speaks the hub's protocol, then offline from the cache.

huggingface_hub reads its environment at import, so every load runs in a process of its own.
"""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from hub_server import running_hub
from safetensors.torch import save
from tiny_checkpoints import OPEN_CLIP, tiny_config, tiny_weights

from dtpt.clip.loading.formats import wanted_files, weight_file
from dtpt.clip.loading.hub import _first_hop, cached_folder
from dtpt.clip.loading.names import architecture, parse_name
from dtpt.clip.loading.read import read_folder
from dtpt.errors import CheckpointError

LOAD = """
import json, sys, warnings
warnings.simplefilter("error")
from dtpt.errors import DtptError
from dtpt.clip.loading import load_model
try:
    print(json.dumps({"fingerprint": load_model(sys.argv[1]).fingerprint}))
except DtptError as error:
    print(json.dumps({"error": str(error)}))
"""
FETCH = """
import json, sys, warnings
warnings.simplefilter("error")
from dtpt.errors import DtptError
from dtpt.clip.loading import hub, names
try:
    print(json.dumps({"folder": str(hub.fetch(names.parse_name(sys.argv[1])))}))
except DtptError as error:
    print(json.dumps({"error": str(error)}))
assert "torch" not in sys.modules
"""


@pytest.fixture(scope="module")
def repository():
    weights = tiny_weights()
    return {
        "open_clip_config.json": json.dumps(OPEN_CLIP).encode(),
        "open_clip_model.safetensors": save(weights),
        "open_clip_pytorch_model.bin": b"a pickle that must never be downloaded",
        "README.md": b"not needed",
        "model_card/image.png": b"not needed",
    }


@pytest.fixture(scope="module")
def shards():
    config = tiny_config()
    weights = {name: value for name, value in tiny_weights().items()}
    names = sorted(weights)
    parts = {
        f"model-0000{i + 1}-of-00002.safetensors": {n: weights[n] for n in names[i::2]}
        for i in range(2)
    }
    index = {"weight_map": {n: part for part, some in parts.items() for n in some}}
    vision, text = config.vision, config.text
    towers = {
        "vision_config": {
            "hidden_size": vision.width, "intermediate_size": vision.mlp_width,
            "num_hidden_layers": 2, "num_attention_heads": 1, "image_size": 32, "patch_size": 8,
            "hidden_act": "gelu",
        },
        "text_config": {
            "hidden_size": text.width, "intermediate_size": text.mlp_width,
            "num_hidden_layers": 2, "num_attention_heads": 1, "hidden_act": "gelu",
        },
    }  # fmt: skip
    pixels = {"crop_size": 32, "size": {"shortest_edge": 32}}
    document = {"model_type": "clip", "projection_dim": 32, **towers}
    return {
        "config.json": json.dumps(document).encode(),
        "preprocessor_config.json": json.dumps(pixels).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{name: save(part) for name, part in parts.items()},
        "pytorch_model.bin": b"a pickle that must never be downloaded",
    }


def run(arguments, home, **environment):
    removed = ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_HUB_CACHE", "HF_HOME")
    clean = {name: value for name, value in os.environ.items() if name not in removed}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**clean, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def load(name, home, script=LOAD, **environment):
    done = run(["-c", script, name], home, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def fetch(name, home, **environment):
    return load(name, home, FETCH, **environment)


def test_model_comes_from_the_hub_then_offline_from_the_cache(tmp_path, repository):
    with running_hub({"org/tiny": repository}) as hub:
        online = load("hf-hub:org/tiny", tmp_path, HF_ENDPOINT=hub.url, HF_TOKEN="hf_test")
        asked = [path for _, path in hub.requests]
    assert len(online["fingerprint"]) == 64
    assert any(path.endswith("open_clip_model.safetensors") for path in asked)
    assert not any(path.endswith((".bin", ".png", "README.md")) for path in asked)
    offline = load("hf-hub:org/tiny", tmp_path, HF_HUB_OFFLINE="1")
    assert offline == online
    unreachable = fetch("hf-hub:org/tiny", tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert (Path(unreachable["folder"]) / "open_clip_model.safetensors").is_file()


def test_offline_and_not_cached_names_the_command_to_fetch(tmp_path):
    result = fetch("hf-hub:org/tiny@main", tmp_path, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE=0 dtpt models fetch hf-hub:org/tiny@main" in result["error"]
    assert str(tmp_path) in result["error"]


@contextmanager
def unresponsive_endpoint():
    """A port that never accepts: its queue of waiting connections is full."""
    with socket.socket() as server, socket.socket() as waiting:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting.connect(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_unreachable_hub_is_one_line_of_the_probe(tmp_path):
    words = ["predict", __file__, "--classes", "a,b", "--model", "ViT-B-16/openai"]
    command = ["-c", "from dtpt.cli.main import run; run()", *words]
    with unresponsive_endpoint() as silent:
        for endpoint, reason in [("http://127.0.0.1:9", "refused"), (silent, "timed out")]:
            done = run(command, tmp_path, HF_ENDPOINT=endpoint)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr.count("\n") == 1, done.stderr
            address = endpoint.removeprefix("http://")
            assert re.search(f"{address} cannot be reached: .*{reason}", done.stderr)
            assert "dtpt models fetch ViT-B-16/openai" in done.stderr


def test_invalid_endpoint_is_a_typed_error(tmp_path):
    result = fetch("hf-hub:org/tiny", tmp_path, HF_ENDPOINT="http://hub:port")
    assert "HF_ENDPOINT 'http://hub:port'" in result["error"]


@pytest.mark.parametrize(
    ("endpoint", "environment", "address"),
    [
        ("https://huggingface.co", {}, ("huggingface.co", 443)),
        ("http://mirror.example:8080/hub", {}, ("mirror.example", 8080)),
        ("https://hub.example", {"https_proxy": "http://proxy:3128"}, ("proxy", 3128)),
        ("https://hub.example", {"all_proxy": "socks5://proxy:1080"}, ("proxy", 1080)),
        ("https://hub.example", {"http_proxy": "http://proxy:3128"}, ("hub.example", 443)),
        (
            "https://hub.example",
            {"https_proxy": "proxy:3128", "no_proxy": "hub.example"},
            ("hub.example", 443),
        ),
    ],
)
def test_probe_connects_to_the_host_or_its_proxy(monkeypatch, endpoint, environment, address):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _first_hop(endpoint) == address


def test_fetch_command_fills_the_cache_with_shards(tmp_path, shards):
    command = ["-c", "from dtpt.cli.main import run; run()", "models", "fetch", "hf-hub:org/shards"]
    with running_hub({"org/shards": shards}) as hub:
        done = run(command, tmp_path, HF_ENDPOINT=hub.url)
        asked = [path for _, path in hub.requests]
    assert done.returncode == 0, done.stderr
    assert not any(path.endswith(".bin") for path in asked)
    # the shards hold OpenAI's names under a transformers config: names decide the layout
    assert len(read_folder(Path(done.stdout.strip())).weights) == len(tiny_weights())


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"README.md": b"x"}, "open_clip_config.json"),
        ({"open_clip_config.json": b"{}"}, "open_clip_config.json"),
        (None, "dtpt models fetch"),
    ],
)
def test_repository_without_a_model_is_a_typed_error(tmp_path, files, words):
    with running_hub({"org/tiny": files} if files else {}) as hub:
        result = fetch("hf-hub:org/tiny", tmp_path, HF_ENDPOINT=hub.url)
    assert words in result["error"]


def test_catalogue_model_is_checked_against_the_known_architecture(tmp_path, repository):
    with running_hub({"timm/vit_base_patch16_clip_224.openai": repository}) as hub:
        folder = Path(fetch("ViT-B/16", tmp_path, HF_ENDPOINT=hub.url)["folder"])
    with pytest.raises(CheckpointError, match="catalogue"):
        read_folder(folder, expected=architecture("ViT-B-16"))


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (["open_clip_config.json", "open_clip_pytorch_model.bin"], "open_clip_pytorch_model.bin"),
        (
            ["open_clip_config.json", "open_clip_pytorch_model.bin", "open_clip_model.safetensors"],
            "open_clip_model.safetensors",
        ),
        (["config.json", "pytorch_model.bin", "model.safetensors"], "model.safetensors"),
        (["config.json", "tf_model.h5"], None),
        (["model.safetensors"], None),
    ],
)
def test_pickle_is_wanted_only_where_nothing_safe_exists(names, weights):
    assert weight_file(names) == weights
    pickles = [name for name in wanted_files(names) if name.endswith(".bin")]
    assert pickles == ([weights] if weights and weights.endswith(".bin") else [])


def test_incomplete_download_is_not_a_cached_model(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--tiny" / "snapshots" / ("a" * 40)
    (snapshot.parents[1] / "refs").mkdir(parents=True)
    (snapshot.parents[1] / "refs" / "main").write_text("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    name = parse_name("hf-hub:org/tiny")
    assert cached_folder(name) is None
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    (snapshot / "model-1.safetensors").write_bytes(b"")
    assert cached_folder(name) is None
    (snapshot / "model-2.safetensors").write_bytes(b"")
    assert cached_folder(name) == snapshot


def test_models_command_lists_all_without_torch(tmp_path):
    script = """
import sys
from dtpt.cli.main import call
call(["models", "--json"])
assert "torch" not in sys.modules, "torch was imported"
"""
    done = run(["-c", script], tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {"pocket", "RN50/openai", "ViT-L-14-336/openai"} <= set(rows)
    assert not rows["RN50/openai"]["cached"]
    assert rows["ViT-B-16/openai"]["size_bytes"] == 4 * 149_620_737


def test_loading_package_imports_without_torch():
    script = "import sys, dtpt.clip, dtpt.clip.loading.hub; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
