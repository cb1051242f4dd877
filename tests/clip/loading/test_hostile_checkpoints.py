"""Malicious and broken checkpoints: a typed error, nothing run, bounded time and memory.

All are loaded in one fresh process, so that the growth of its memory can be measured.
"""

import json
import subprocess
import sys

import pytest
from hostile_checkpoints import CHECKPOINTS
from safetensors.torch import save_file
from tiny_checkpoints import tiny_weights

MAX_SECONDS = 5.0  # of processor time
MAX_GROWTH_MB = 256

PROBE = """
import json, sys, time, warnings
warnings.simplefilter("error")
from dtpt.clip.loading.build import load_model
from dtpt.errors import DtptError

def memory(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))

def forget_peak():  # else it would stay at that of the file before
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")

good, *rest = json.load(open(sys.argv[1]))
load_model(good[1])
results = {}
for name, model in rest:
    forget_peak()
    before, start = memory("VmRSS"), time.process_time()
    try:
        load_model(model)
        error, message = "loaded", ""
    except Exception as caught:
        error, message = type(caught).__name__, str(caught)
    seconds = time.process_time() - start
    results[name] = [error, message, seconds, memory("VmHWM") - before]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    canary = root / "canary"
    save_file(tiny_weights(), root / "good.safetensors", metadata={"activation": "gelu"})
    names = [("good", f"local-file:{root / 'good.safetensors'}")]
    for name, write in CHECKPOINTS.items():
        (root / name).mkdir()
        names.append((name, write(root / name, canary)))
    (root / "names.json").write_text(json.dumps(names))
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(root / "names.json")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout), canary


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_refused_with_a_typed_error_in_bounded_time_and_memory(outcome, name):
    error, message, seconds, growth = outcome[0][name]
    assert error == "CheckpointError", message
    assert seconds < MAX_SECONDS
    assert growth < MAX_GROWTH_MB


def test_no_payload_was_run(outcome):
    assert not outcome[1].exists()


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("script_that_calls_a_shell", "os.system"),
        ("state_dict_that_calls_a_shell", "posix.system"),
        ("script_of_endless_steps", "500000"),
        ("text_file", "Git LFS pointer"),
        ("zip_bomb", "compressed"),
        ("zip_with_a_path_in_a_member_name", "path"),
        ("zip_whose_members_overlap", "overlaps"),
        ("script_whose_storage_claims_a_terabyte", "declares 1,099,511,627,776 bytes"),
        ("safetensors_with_nan", "visual.proj holds NaN"),
        ("safetensors_without_some_tensors", "ln_final.weight is missing"),
        ("safetensors_of_integers", "visual.proj is I8"),
        ("safetensors_with_a_foreign_tensor", "visual.trojan"),
        ("safetensors_without_an_activation", "activation='quick_gelu'"),
        ("state_dict_of_gigabytes_in_some_kilobytes", "more elements than its storage"),
        ("old_state_dict_of_gigabytes_in_some_kilobytes", "more elements than its storage"),
        ("state_dict_of_terabytes", "more elements than its storage"),
        ("config_of_terabytes", "16.0 GiB allowed"),
        ("state_dict_whose_tensors_share_one_storage", "share"),
        ("state_dict_that_copies_a_text", "_codecs.encode"),
        ("tokenizer_with_an_infinite_added_id", "Infinity"),
        ("tokenizer_with_an_id_beyond_the_embedding", "9999999"),
        ("index_that_points_outside", "outside"),
        ("config_of_a_billion_layers", "got 1000000000"),
        ("pipe_as_file", "model.pt cannot be read: is a named pipe"),
        ("socket_as_file", "is a socket"),
        ("device_behind_a_link", "is a device"),
        ("pipe_as_weights", "open_clip_model.safetensors cannot be read: is a named pipe"),
        ("pipe_as_shard", "model-00001-of-00001.safetensors cannot be read: is a named pipe"),
        ("pipe_as_index", "model.safetensors.index.json cannot be read: is a named pipe"),
        ("pipe_as_tokenizer", "tokenizer.json cannot be read: is a named pipe"),
        ("broken_link_as_tokenizer", "tokenizer.json cannot be read: No such file"),
    ],
)
def test_message_names_the_fault(outcome, name, fact):
    assert fact in outcome[0][name][1]
