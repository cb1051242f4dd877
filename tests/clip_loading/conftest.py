"""The foreign libraries whose checkpoints are loaded; tests skip when they are missing."""

import sys

import pytest
import torch

_kept_alive = []


@pytest.fixture(scope="session")
def torchvision_shim():
    """Let torchvision import beside a CPU torch that lacks its compiled operators."""
    if "torchvision" in sys.modules:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    _kept_alive.append(library)  # the definitions vanish with it
    for name in ("nms", "qnms"):
        try:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        except RuntimeError:  # another test defined it already
            continue


@pytest.fixture(scope="session")
def open_clip(torchvision_shim):
    return pytest.importorskip("open_clip")


@pytest.fixture(scope="session")
def transformers(torchvision_shim):
    return pytest.importorskip("transformers")


@pytest.fixture
def pixels():
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(7))
