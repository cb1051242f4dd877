"""Pickled state dicts: every tensor as torch.load reads it, without torch's unpickler."""

import pytest
import torch
from tiny_checkpoints import tiny_weights
from torch import nn

from dtpt.clip.loading.torch_files import read_torch_file
from dtpt.errors import CheckpointError


def tensors():
    whole = torch.arange(24, dtype=torch.float32)
    return {
        "float16": torch.randn(3, 5).half(),
        "bfloat16": torch.randn(7).bfloat16(),
        "number": torch.tensor(3.0),
        "count": torch.tensor(5),
        "flags": torch.tensor([True, False]),
        "transposed": torch.randn(4, 6).T,
        "parameter": nn.Parameter(torch.randn(2, 2)),
        "view": whole[4:12].view(2, 4),
        "column": whole.view(6, 4)[:, 1],
        "tied": whole,
        "empty": torch.empty(0, 3),
    }


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "older format"])
def test_every_tensor_equals_torch_load(tmp_path, is_zip):
    path = tmp_path / "model.pt"
    torch.save(tensors(), path, _use_new_zipfile_serialization=is_zip)
    truth = torch.load(path, weights_only=True)
    found = read_torch_file(path).weights
    assert list(found) == list(truth)
    for name, tensor in truth.items():
        stored, read = found[name], found[name].read()
        assert stored.shape == tuple(tensor.shape)
        assert stored.dtype == str(tensor.dtype).removeprefix("torch.")
        assert not tensor.numel() or torch.equal(read, tensor)


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "older format"])
def test_training_checkpoint_with_optimiser_and_versions_loads(tmp_path, is_zip):
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4))
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 3, 4, 4)).sum().backward()
    optimiser.step()
    content = {"state_dict": model.state_dict(), "optimizer": optimiser.state_dict(), "name": "x"}
    content |= {"epoch": 3, "loss": 0.5, "size": torch.Size([2, 3]), "dtype": torch.float16}
    path = tmp_path / "epoch_3.pt"
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    found = read_torch_file(path).weights
    for name, tensor in model.state_dict().items():
        assert torch.equal(found[name].read(), tensor)


def test_damaged_weights_are_found_by_their_checksum(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(tiny_weights(), path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    weights = read_torch_file(path).weights
    with pytest.raises(CheckpointError, match="damaged at byte"):
        [stored.read() for stored in weights.values()]
