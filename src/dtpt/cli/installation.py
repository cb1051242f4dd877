"""What is installed here and on what machine: the facts of a bug report, without secrets.

Of the environment only the names of our own variables are told, and paths begin with `~` where they
lie in the user's home.
"""

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:.*extra\s*==\s*[\"'](?P<extra>[\w.-]+))?")


@dataclass(frozen=True)
class Place:
    """A folder that dtpt writes to.

    Attributes:
        folder: Where it is; it may not exist yet.
        is_writable: Whether it, or the folder in which it would be made, can be written to.
        free_bytes: On its disk; None where the system does not say.
    """

    folder: str
    is_writable: bool
    free_bytes: int | None


@dataclass(frozen=True)
class System:
    """The machine.

    Attributes:
        system: Operating system and architecture.
        python: Version, and where it is.
        processor: Its model name.
        cores: That this process may use.
        memory_bytes: Of the whole machine; None where the system does not say.
        free_bytes: Of it, what this process can still get.
    """

    system: str
    python: str
    processor: str
    cores: int
    memory_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True)
class Computing:
    """What torch finds.

    Attributes:
        devices: Names for --device, with what they are.
        automatic: What --device auto means here.
        threads: That torch uses for one operation.
    """

    devices: dict[str, str]
    automatic: str
    threads: int


def describe_system() -> System:
    """Describe machine and interpreter; loads no torch.

    Example:
        >>> describe_system().cores > 0
        True
    """
    from dtpt.machine import free_memory, processor_name, usable_cores

    return System(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_version()} at {shown(Path(sys.executable))}",
        processor=processor_name(),
        cores=usable_cores(),
        memory_bytes=_memory(),
        free_bytes=free_memory(),
    )


def describe_computing() -> Computing:
    """Describe devices and threads; loads torch."""
    import torch

    from dtpt.clip.device import choose_device, present_devices

    devices = {}
    for name in present_devices():
        is_cuda = name.startswith("cuda")
        devices[name] = torch.cuda.get_device_name(name) if is_cuda else ""
    return Computing(devices, str(choose_device("auto")), torch.get_num_threads())


def package_versions(
    distribution: str = "dtpt",
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return versions of what a package needs, and of the packages of each extra; "" if absent.

    Example:
        >>> needed, extras = package_versions()
        >>> "numpy" in needed, "pyarrow" in extras["parquet"]
        (True, True)
    """
    needed: dict[str, str] = {}
    extras: dict[str, dict[str, str]] = {}
    for requirement in _requirements(distribution):
        found = _REQUIREMENT.match(requirement)
        if found is not None:
            group = extras.setdefault(found["extra"], {}) if found["extra"] else needed
            group[found["name"]] = installed_version(found["name"])
    return needed, extras


def _requirements(distribution: str) -> list[str]:
    try:
        return metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:  # imported from a checkout that is not installed
        return []


def installed_version(distribution: str) -> str:
    """Return the version of an installed package, or "".

    Example:
        >>> installed_version("no-such-package")
        ''
    """
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def describe_place(folder: Path) -> Place:
    """Look at a folder, or at the nearest one above it that exists."""
    paths = (folder, *folder.absolute().parents)
    present = next((path for path in paths if os.path.exists(path)), Path("/"))
    is_writable = os.path.isdir(present) and os.access(present, os.W_OK | os.X_OK)
    try:
        free = shutil.disk_usage(present).free
    except OSError:
        free = None
    return Place(shown(folder), is_writable, free)


def variables() -> tuple[str, ...]:
    """Return the names of our variables that are set, never their values."""
    return tuple(sorted(name for name in os.environ if name.startswith("DTPT_")))


def shown(path: Path) -> str:
    """Return a path as text, with `~` for the user's home.

    Example:
        >>> shown(Path.home() / "runs")
        '~/runs'
    """
    from dtpt.files import printable

    try:
        return printable(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):  # elsewhere, or there is no home
        return printable(path)


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
