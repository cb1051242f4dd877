"""Foreign implementations that the views are compared with; tests skip when they are missing."""

import sys

import pytest

_kept_alive = []


@pytest.fixture(scope="session")
def torchvision():
    """Makes torchvision importable beside a CPU torch that lacks its compiled operators."""
    torch = pytest.importorskip("torch")
    if "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "FRAGMENT")
        _kept_alive.append(library)  # the definitions vanish with it
        for name in ("nms", "qnms"):
            try:
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            except RuntimeError:  # defined already
                continue
    return pytest.importorskip("torchvision")
