"""Methods of other packages: the entry points of the group `dtpt.methods`.

A plug-in is imported only when its name is asked for, or when all methods are listed, so a broken
one cannot disturb others. The import runs in a thread with a time limit, and whatever it raises,
`SystemExit` too, becomes the reason why the plug-in is left out. A plug-in runs with the rights of
the user: one that ends the process (`os._exit`) or never releases the interpreter is not contained.
"""

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions

from dtpt.errors import MethodError, short_repr
from dtpt.methods.base import Method
from dtpt.methods.table import METHODS

GROUP = "dtpt.methods"
IMPORT_SECONDS = 20.0  # importing torch takes 8 on a machine with five times as much work as cores


def find_plugins() -> dict[str, EntryPoint]:
    """Return the entry points by the names of their methods; nothing is imported."""
    found: dict[str, EntryPoint] = {}
    for package in distributions():
        for point in _entry_points(package):
            found.setdefault(point.name, point)
    return found


def load_plugin(point: EntryPoint) -> Method:
    """Import a plug-in's method, once.

    Raises:
        MethodError: The plug-in cannot be used; the message has its error.
    """
    result = _load(point)
    if isinstance(result, Method):
        return replace(result, name=point.name)
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    raise MethodError(f"The plug-in {point.name}{package} ({point.value}) {result}.")


def load_plugins() -> tuple[dict[str, Method], list[str]]:
    """Return the methods of all plug-ins that can be used, and why the others cannot."""
    methods: dict[str, Method] = {}
    problems = []
    for name, point in find_plugins().items():
        if name in METHODS:
            problems.append(f"The plug-in {name} ({point.value}) has the name of a method here.")
            continue
        try:
            methods[name] = load_plugin(point)
        except MethodError as error:
            problems.append(str(error))
    return methods, problems


def _entry_points(package: Distribution) -> Iterator[EntryPoint]:
    try:
        yield from package.entry_points.select(group=GROUP)
    except Exception:  # a malformed file of some package, most likely not meant for us
        return


@cache  # a plug-in that took its time once must not take it again
def _load(point: EntryPoint) -> Method | str:
    """Return the method, or what is wrong with the plug-in."""
    results: queue.SimpleQueue[object] = queue.SimpleQueue()

    def load() -> None:
        try:
            results.put(point.load())
        except BaseException as error:
            results.put(error)

    threading.Thread(target=load, daemon=True).start()
    try:
        result = results.get(timeout=IMPORT_SECONDS)
    except queue.Empty:
        return f"was not imported within {IMPORT_SECONDS:g} seconds"
    if isinstance(result, BaseException):
        reason = f"{type(result).__name__}: {result}".rstrip(".: ")
        return f"cannot be imported: {' '.join(reason.split())}"
    return result if isinstance(result, Method) else f"is no dtpt.Method: {short_repr(result)}"
