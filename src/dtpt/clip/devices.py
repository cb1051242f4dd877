"""Which device computes: the one rule behind every `device` option."""

import torch

from dtpt.errors import DeviceError, short_repr


def choose_device(name: str = "auto") -> torch.device:
    """Return the device called `name`; "auto" is a CUDA device, else Apple's, else the CPU.

    When a CUDA device is chosen, TF32 is switched off for matrix products and for convolutions
    (where torch has it on by default): it keeps 10 bits of a number's 23, which moves
    probabilities. Who wants its speed switches `torch.backends.cuda.matmul.allow_tf32` and
    `torch.backends.cudnn.allow_tf32` on afterwards.

    Args:
        name: "auto", "cpu", "cuda", "cuda:1" or "mps".

    Raises:
        DeviceError: no such device here; the message says which there are.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    present = present_devices()
    if isinstance(name, str) and name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if kind in present)
    if not isinstance(name, str) or name not in present:
        raise DeviceError(
            f"Device {short_repr(name)} is not here; there is: auto, {', '.join(present)}."
        )
    if name.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    return torch.device(name)


def present_devices() -> tuple[str, ...]:
    """Return the names of all devices that this machine and this torch have.

    Example:
        >>> "cpu" in present_devices()
        True
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ["cuda"] * (count > 0) + [f"cuda:{index}" for index in range(count)]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return ("cpu", *cuda, *mps)
