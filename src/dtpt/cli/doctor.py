"""`dtpt doctor`: what a bug report needs, and whether this installation computes what it should."""

import json
import shutil
import sys
import textwrap
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.cli.exits import PARTLY, REFUSED
from dtpt.cli.flags import AsJson

if TYPE_CHECKING:
    from dtpt.cli.installation import Computing, Place, System
    from dtpt.cli.self_test import SelfTest


@dataclass(frozen=True)
class Checkup:
    """Everything that `dtpt doctor` finds.

    Attributes:
        dtpt: Version.
        system: The machine.
        packages: Versions of what dtpt needs; "" if absent.
        extras: The same for each optional group of packages.
        computing: Devices and threads; None if torch cannot be loaded.
        cache: Folder of view features.
        cache_bytes: Their size.
        settings: Folder of the user's settings.
        variables: Names of our environment variables that are set.
        self_test: What came out of it; None if it was not or could not be run.
        warnings: What limits the use of dtpt.
        errors: What makes its answers wrong or impossible.
    """

    dtpt: str
    system: "System"
    packages: dict[str, str]
    extras: dict[str, dict[str, str]]
    computing: "Computing | None"
    cache: "Place"
    cache_bytes: int
    settings: "Place"
    variables: tuple[str, ...]
    self_test: "SelfTest | None"
    warnings: tuple[str, ...]
    errors: tuple[str, ...]


def doctor(
    *,
    no_self_test: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    as_json: AsJson = False,
) -> None:
    """Describe installation and machine for a bug report, and test for at most 20 seconds.

    No value of an environment variable is shown. Exit code 0: all is well; 1: something limits the
    use of dtpt; 2: the self-test failed, or a needed package is missing.

    Args:
        no_self_test: Only describe.
        as_json: Print JSON.
    """
    found = check_up(with_self_test=not no_self_test)
    if as_json:
        print(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    else:
        print("\n".join(lines_of(found)))
    if found.errors or found.warnings:
        sys.exit(REFUSED if found.errors else PARTLY)


def check_up(*, with_self_test: bool = True) -> Checkup:
    """Gather the facts, run the self-test and judge; nothing that is broken ends it."""
    from dtpt.cli import installation
    from dtpt.clip.loading.added import config_folder
    from dtpt.runs.features import cache_folder, list_shards

    errors: list[str] = []
    packages, extras = installation.package_versions()
    errors += [f"The package {name} is missing." for name, own in packages.items() if not own]
    computing, tested = _computing(errors), None
    if with_self_test and computing is not None:
        tested = _tested(errors)
    cache = installation.describe_place(cache_folder())
    settings = installation.describe_place(config_folder())
    return Checkup(
        dtpt=installation.installed_version("dtpt"),
        system=installation.describe_system(),
        packages=packages,
        extras=extras,
        computing=computing,
        cache=cache,
        cache_bytes=sum(shard.size for shard in list_shards(cache_folder())),
        settings=settings,
        variables=installation.variables(),
        self_test=tested,
        warnings=tuple(_limits(cache, settings, tested=tested)),
        errors=tuple(errors),
    )


def _computing(errors: list[str]) -> "Computing | None":
    from dtpt.cli.installation import describe_computing

    try:
        return describe_computing()
    except Exception as error:  # whatever is broken in torch belongs into the report
        errors.append(f"torch cannot be used: {_in_one_line(error)}")
        return None


def _tested(errors: list[str]) -> "SelfTest | None":
    from dtpt.cli.self_test import self_test

    try:
        tested = self_test()
    except Exception as error:  # a crash is what the reader of the report wants to know
        errors.append(f"The self-test broke off: {_in_one_line(error)}")
        return None
    if tested.status == "failed":
        errors += tested.problems
    return tested


def _limits(cache: "Place", settings: "Place", *, tested: "SelfTest | None") -> list[str]:
    found = [
        f"{place.folder} cannot be written to; {remedy}"
        for place, remedy in (
            (cache, "features are computed anew each time. DTPT_CACHE names another folder."),
            (settings, "models cannot be named. DTPT_CONFIG names another folder."),
        )
        if not place.is_writable
    ]
    if tested is not None and tested.status == "partly":
        found += tested.problems
    return found


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def lines_of(found: Checkup) -> list[str]:
    """Return the lines that are printed: facts first, then the verdict."""
    facts = {"dtpt": found.dtpt or "not installed as a package", **_machine_lines(found)}
    facts |= {"packages": _versions(found.packages)}
    for name, versions in found.extras.items():
        is_complete = all(versions.values())
        facts[f"extra {name}"] = f"{'yes' if is_complete else 'no'}: {_versions(versions)}"
    facts |= {
        "cache": f"{_place(found.cache)}, {found.cache_bytes / 1e9:.3f} GB in it",
        "settings": _place(found.settings),
        "variables": ", ".join(found.variables) or "none of ours is set",
        "self-test": _self_test(found.self_test),
    }
    lines = [line for name, text in facts.items() for line in _wrapped(f"{name:<19} {text}")]
    lines += [f"error: {text}" for text in found.errors]
    lines += [f"warning: {text}" for text in found.warnings]
    return lines if found.errors or found.warnings else [*lines, "All is well."]


def _wrapped(line: str) -> list[str]:
    columns = shutil.get_terminal_size().columns
    return textwrap.wrap(
        line,
        columns,
        subsequent_indent=" " * 20,
        break_long_words=False,  # paths and versions stay whole
        break_on_hyphens=False,
    )


def _machine_lines(found: Checkup) -> dict[str, str]:
    system, computing = found.system, found.computing
    amounts = {"memory": system.memory_bytes, "free": system.free_bytes}
    memory = [f", {size / 1e9:.1f} GB {name}" for name, size in amounts.items() if size is not None]
    lines = {
        "python": system.python,
        "system": system.system,
        "processor": f"{system.processor}, {system.cores} cores{''.join(memory)}",
    }
    if computing is not None:
        names = [
            f"{name} ({about})" if about else name for name, about in computing.devices.items()
        ]
        lines["devices"] = f"{', '.join(names)}; auto is {computing.automatic}"
        lines["threads"] = str(computing.threads)
    return lines


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {own or 'is missing'}" for name, own in versions.items())


def _place(place: "Place") -> str:
    state = "writable" if place.is_writable else "not writable"
    free = "" if place.free_bytes is None else f", {place.free_bytes / 1e9:.1f} GB free"
    return f"{place.folder}, {state}{free}"


def _self_test(tested: "SelfTest | None") -> str:
    if tested is None:
        return "not run"
    return (
        f"{tested.status}: {tested.answers} answers in {tested.seconds} s, at most "
        f"{tested.largest_difference:.1e} from Algorithm 1"
    )
