"""Fixtures for the whole suite: a tiny CLIP with random weights."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest-xdist gives each core its own worker
os.environ["DTPT_CONFIG"] = os.devnull + "/none"  # the developer's own models play no part

import socket
import sys
from collections.abc import Callable, Iterator

import pytest

_kept_alive = []


@pytest.fixture(scope="session")
def torchvision():
    """Torchvision as an oracle: importable beside a CPU torch that lacks its compiled operators."""
    import torch

    if "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "FRAGMENT")
        _kept_alive.append(library)  # the definitions vanish with it
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip("torchvision")


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Give torch's threads back: commands choose them for a process of their own."""
    yield
    if torch := sys.modules.get("torch"):
        threads = int(os.environ["OMP_NUM_THREADS"])
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def open_clip(torchvision):
    """Open_clip as an oracle; tests skip when it is missing."""
    return pytest.importorskip("open_clip")


def is_own(family: int, host: str) -> bool:
    """Whether an address belongs to this machine; a cluster started here has such a one."""
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Refuse connections from the test process to anything but this machine."""
    connect = socket.socket.connect

    def only_here(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if host not in ("", "127.0.0.1", "::1", "localhost") and not is_own(self.family, host):
            raise OSError(f"tests reach this machine only, not {host}")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", only_here)
        yield


@pytest.fixture(scope="session")
def make_clip() -> Callable[..., object]:
    """Build a tiny CLIP (random weights, CLIP's vocabulary) in a given precision."""
    import torch

    from dtpt.clip.config import ClipConfig, TextConfig, VitConfig
    from dtpt.clip.model import Clip, initialise
    from dtpt.clip.preprocess import Preprocess
    from dtpt.clip.tokenizer import Tokenizer

    def make(*, dtype: torch.dtype = torch.float32, seed: int = 0, activation: str = "quick_gelu"):
        config = ClipConfig(
            embed_dim=32,
            activation=activation,
            vision=VitConfig(
                image_size=32, patch_size=8, width=32, layers=2, heads=2, mlp_width=64
            ),
            text=TextConfig(
                context_length=77, vocab_size=49408, width=48, layers=3, heads=4, mlp_width=96
            ),
        )
        model = Clip(
            config,
            tokenizer=Tokenizer.clip_default(),
            preprocessing=Preprocess.openai(32),
            fingerprint=f"tiny-{seed}",
        )
        initialise(model, torch.Generator().manual_seed(seed))
        return model.to(dtype).eval().requires_grad_(False)

    return make


@pytest.fixture(scope="session")
def tiny_clip(make_clip):
    """The tiny CLIP in float32."""
    return make_clip()
