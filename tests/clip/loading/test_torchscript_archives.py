"""OpenAI's kind of archive: every tensor as torch.jit.load reads it, and no code is run."""

import io
import zipfile
from collections import OrderedDict

import pytest
import torch
from tiny_checkpoints import TEXTS, tiny_model
from torch import nn

from dtpt.clip.loading import load_model
from dtpt.clip.loading.torch_files import read_torch_file
from dtpt.errors import CheckpointError

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.*:DeprecationWarning")


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Holder(nn.Module):
    """A module that only carries parameters, so that a tree of any key names can be scripted."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def scripted(weights, activation=QuickGELU):
    """A TorchScript module with these weights, the activation where OpenAI has it, and OpenAI's
    three numbers beside them."""
    root = Holder()
    for name, value in weights.items():
        *path, leaf = name.split(".")
        parent = root
        for part in path:
            if part not in parent._modules:
                parent.add_module(part, Holder())
            parent = parent._modules[part]
        if (path and path[-1] == "mlp") or path[-2:-1] == ["mlp"]:
            owner = root.get_submodule(".".join(path[: path.index("mlp") + 1]))
            if activation is not None and "gelu" not in owner._modules:
                owner.add_module("gelu", activation())
        parent.register_parameter(leaf, nn.Parameter(value, requires_grad=False))
    for name, number in {"input_resolution": 32, "context_length": 77, "vocab_size": 49408}.items():
        root.register_buffer(name, torch.tensor(number))
    return torch.jit.script(root)


def weights_of(model, dtype=torch.float16):
    state = model.state_dict()
    return OrderedDict(
        (name, t.to(dtype).contiguous())
        for name, t in state.items()
        if not name.endswith("num_batches_tracked")
    )


def rewrite(source, target, change):
    """Copy an archive member by member through `change(name, data) -> (name, data) or None`."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            changed = change(info.filename, old.read(info))
            if changed is not None:
                new.writestr(*changed)


@pytest.mark.parametrize("tower", ["vit", "resnet"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_every_tensor_equals_torch_jit_load(tmp_path, tower, dtype):
    path = tmp_path / "model.pt"
    scripted(weights_of(tiny_model(tower), dtype)).save(str(path))
    truth = torch.jit.load(path, map_location="cpu").state_dict()
    found = read_torch_file(path).weights
    assert set(found) == set(truth)
    for name, tensor in truth.items():
        read = found[name].read()
        assert found[name].shape == tuple(tensor.shape)
        assert read.dtype == tensor.dtype
        assert torch.equal(read, tensor), name


@pytest.mark.parametrize("tower", ["vit", "resnet"])
def test_archive_loads_as_the_model_it_was_made_from(tmp_path, pixels, tower):
    model = tiny_model(tower, "quick_gelu")
    path = tmp_path / "model.pt"
    scripted(weights_of(model, torch.float32)).save(str(path))
    if tower == "resnet":  # heads follow from the width, 64 each, as in all of OpenAI's
        model = _with_heads_of_64(model)
    loaded = load_model(f"local-file:{path}")
    assert loaded.config == model.config
    assert torch.equal(loaded.encode_image(pixels), model.encode_image(pixels))
    assert torch.equal(loaded.encode_text(TEXTS), model.encode_text(TEXTS))


def _with_heads_of_64(model):
    vision = model.config.vision.model_copy(update={"heads": model.config.vision.width // 2})
    model.config = model.config.model_copy(update={"vision": vision})
    model.visual.attnpool.heads = vision.heads
    return model


@pytest.mark.parametrize(("activation", "expected"), [(QuickGELU, "quick_gelu"), (nn.GELU, "gelu")])
def test_activation_is_the_class_that_the_archive_names(tmp_path, activation, expected):
    path = tmp_path / "model.pt"
    scripted(weights_of(tiny_model()), activation).save(str(path))
    assert load_model(f"local-file:{path}").config.activation == expected


def test_archive_that_states_no_activation_needs_the_callers(tmp_path):
    path = tmp_path / "model.pt"
    scripted(weights_of(tiny_model()), None).save(str(path))
    with pytest.raises(CheckpointError, match="activation='quick_gelu'"):
        load_model(f"local-file:{path}")
    assert load_model(f"local-file:{path}", activation="gelu").config.activation == "gelu"


def test_strided_and_shared_tensors_are_read_as_they_are(tmp_path):
    base = torch.arange(24.0).reshape(2, 3, 4)
    weights = {"a": base.permute(2, 0, 1), "b": base, "c": base[1, 1:], "d": torch.tensor(2.5)}
    path = tmp_path / "strided.pt"
    scripted(weights).save(str(path))
    found = read_torch_file(path).weights
    for name, tensor in torch.jit.load(path).state_dict().items():
        assert torch.equal(found[name].read(), tensor)


def test_code_in_the_archive_is_never_run_nor_even_read(tmp_path):
    """The archive's code is replaced by code that writes a file, and by plain rubbish."""
    good, evil, canary = tmp_path / "good.pt", tmp_path / "evil.pt", tmp_path / "canary"
    scripted(weights_of(tiny_model())).save(str(good))
    code = f"open({str(canary)!r}, 'w').write('run')\n\0 no python".encode()
    rewrite(good, evil, lambda n, d: (n, code if "/code/" in n or "constants" in n else d))
    with pytest.raises(RuntimeError):
        torch.jit.load(evil)
    loaded = load_model(f"local-file:{evil}")
    assert loaded.fingerprint == load_model(f"local-file:{good}").fingerprint
    assert not canary.exists()


def test_archive_in_memory_order_of_torch_is_accepted_whatever_its_root_is_called(tmp_path):
    buffer = io.BytesIO()
    torch.jit.save(scripted(weights_of(tiny_model())), buffer)
    path = tmp_path / "any name at all.bin"
    path.write_bytes(buffer.getvalue())
    assert load_model(f"local-file:{path}").config.activation == "quick_gelu"
