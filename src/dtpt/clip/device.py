"""Where the towers compute, and in which precision.

What enters and leaves the towers is float32 (float64 in exactness tests) in every precision.
"""

import os

import torch
from torch import Tensor, nn

from dtpt.clip.config import Precision
from dtpt.errors import DeviceError, short_repr

# A forked process has none of the threads that torch started in its parent, and would wait for them
# for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def choose_device(name: str = "auto") -> torch.device:
    """Return the device called `name`: "auto", "cpu", "cuda", "cuda:1" or "mps".

    "auto" is a CUDA device, else Apple's, else the CPU. When a CUDA device is chosen, TF32 is
    switched off for matrix products and for convolutions (where torch has it on by default): it
    keeps 10 bits of a number's 23, which moves probabilities. To use it, switch
    `torch.backends.cuda.matmul.allow_tf32` and `torch.backends.cudnn.allow_tf32` on afterwards.
    """
    present = present_devices()
    if isinstance(name, str) and name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if kind in present)
    if not isinstance(name, str) or name not in present:
        raise DeviceError(
            f"Device {short_repr(name)} is not available. Use one of: auto, {', '.join(present)}."
        )
    if name.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    return torch.device(name)


def present_devices() -> tuple[str, ...]:
    """Return the names of all devices that this machine and this torch have."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ["cuda"] * (count > 0) + [f"cuda:{index}" for index in range(count)]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return ("cpu", *cuda, *mps)


def worker_devices(name: str, chosen: torch.device) -> tuple[str, ...]:
    """Return the devices that workers take in turn: every CUDA device, unless one was named."""
    if chosen.type != "cuda" or name not in ("auto", "cuda"):
        return (str(chosen),)
    return tuple(device for device in present_devices() if device.startswith("cuda:"))


def cast_tower(tower: nn.Module, precision: Precision) -> None:
    tower.to(getattr(torch, precision))
    for module in tower.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()  # folded into convolutions in float32


def to_float32(x: Tensor) -> Tensor:
    """Return half-precision numbers as float32, others unchanged."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def scale_for_half(gradient: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | float]:
    """Scale a gradient so that a tower of this dtype can carry it; also return the inverse factor.

    float16 has no number between 0 and 6e-8, where most of a regulariser's gradient lies. A power
    of two, which rounds nothing, brings the largest entry to between 1 and 2. Wider dtypes need
    none.
    """
    if dtype != torch.float16:
        return gradient, 1.0
    largest = gradient.abs().max().clamp_min(torch.finfo(gradient.dtype).tiny)
    undo = torch.exp2(torch.floor(torch.log2(largest)))
    return gradient / undo, undo
