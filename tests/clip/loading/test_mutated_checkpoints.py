"""Random damage to checkpoint files: they load or are refused, and never fail in another way."""

import copy
import io
import json
import random

import pytest
import torch
from hostile_checkpoints import module, script, tensor
from safetensors.torch import save, save_file
from tiny_checkpoints import OPEN_CLIP, tiny_weights

from dtpt.clip.loading.build import empty_model
from dtpt.clip.loading.read import open_weights, read_folder
from dtpt.errors import CheckpointError

ODD_VALUES = [
    None, True, 0, -1, 7, 10**18, 10**400, 1.5, float("nan"), float("inf"), "x", "64", "\0", [],
    [1], [1, 2, 3, 4], [[]], {}, {"a": 1}, [{}], 1e-300,
]  # fmt: skip


def saved(**options):
    buffer = io.BytesIO()
    torch.save({f"visual.{i}": torch.randn(3, 4) for i in range(6)}, buffer, **options)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact")
    script(folder, module(**{f"a{i}": tensor() for i in range(4)}, b=module(gelu=module())))
    return {
        "torchscript": (folder / "model.pt").read_bytes(),
        "state dict": saved(),
        "old state dict": saved(_use_new_zipfile_serialization=False),
        "safetensors": save({"a": torch.randn(3, 4), "b": torch.randn(2)}),
    }


def damaged(data, rng):
    data = bytearray(data)
    kind = rng.random()
    if kind < 0.75:
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind < 0.9:
        del data[rng.randrange(len(data)) :]
    else:
        place = rng.randrange(len(data))
        data[place:place] = rng.randbytes(rng.randint(1, 30))
    return bytes(data)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own about odd tensors
@pytest.mark.parametrize("kind", ["torchscript", "state dict", "old state dict", "safetensors"])
def test_damaged_bytes_load_or_are_refused(tmp_path, intact, kind):
    rng, path, refused = random.Random(kind), tmp_path / "model.bin", 0
    for _ in range(400):
        path.write_bytes(damaged(intact[kind], rng))
        try:
            for stored in open_weights(path)[0].values():
                stored.read()
        except CheckpointError:
            refused += 1
    assert refused > 200


def places(document, prefix=()):
    for key, value in document.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from places(value, (*prefix, key))


def test_odd_values_in_a_config_load_or_are_refused(tmp_path):
    rng, refused = random.Random(0), 0
    save_file(tiny_weights(), tmp_path / "model.safetensors")
    for _ in range(400):
        document = copy.deepcopy(OPEN_CLIP)
        *path, last = rng.choice(list(places(document)))
        section = document
        for key in path:
            section = section[key]
        section[last] = rng.choice(ODD_VALUES)
        (tmp_path / "open_clip_config.json").write_text(json.dumps(document))
        try:
            empty_model(read_folder(tmp_path))
        except CheckpointError:
            refused += 1
    assert refused > 200
