"""Choosing a device."""

import pytest
import torch

from dtpt.clip.device import choose_device, present_devices, worker_devices
from dtpt.errors import DeviceError


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = True
    yield
    for switch, value in zip(switches, before, strict=True):
        switch.allow_tf32 = value


def test_auto_prefers_cuda_then_mps_then_cpu(monkeypatch, two_gpus):
    assert choose_device("auto") == choose_device() == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_tf32_is_off_once_a_cuda_device_is_chosen(two_gpus, name):
    assert choose_device("cpu").type == "cpu"
    assert torch.backends.cudnn.allow_tf32
    assert choose_device(name) == torch.device(name)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("name", ["cuda:2", "cuda:x", "tpu", "", "meta", "CPU", "mps"])
def test_absent_device_is_an_error_that_lists_the_present_ones(two_gpus, name):
    with pytest.raises(DeviceError, match="cuda:1"):
        choose_device(name)


def test_workers_share_all_gpus_unless_one_was_named(two_gpus):
    for name in ("auto", "cuda"):
        assert worker_devices(name, torch.device("cuda:0")) == ("cuda:0", "cuda:1")
    assert worker_devices("cuda:1", torch.device("cuda:1")) == ("cuda:1",)
    assert worker_devices("auto", torch.device("mps")) == ("mps",)
    assert worker_devices("cpu", torch.device("cpu")) == ("cpu",)


def test_this_machine_has_at_least_a_cpu():
    assert present_devices()[0] == "cpu"
