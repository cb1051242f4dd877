"""What differed between the processes that computed the rows of a run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# what of a machine changes numbers in their last bits
MACHINE = ("machine", "system", "processor", "device", "torch")


def thread_remarks(sessions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say when rows were computed with different numbers of threads; sums depend on it.

    Example:
        >>> one, two = ({"rows": 4, "environment": {"threads": n}} for n in (1, 2))
        >>> thread_remarks([one]), len(thread_remarks([one, two]))
        ([], 1)
    """
    worked = [session for session in sessions if session.get("rows") != 0]
    counts = {session.get("environment", {}).get("threads") for session in worked} - {None}
    if len(counts) < 2:
        return []
    listed = " and ".join(str(count) for count in sorted(counts))
    return [
        f"Rows were computed with {listed} torch threads; between them numbers differ in the last "
        "bits."
    ]


def machine_remarks(sessions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say when rows were computed on different kinds of machines or with different libraries.

    Example:
        >>> one, two = ({"rows": 4, "environment": {"device": d}} for d in ("cpu", "cuda (A6000)"))
        >>> machine_remarks([one, one]), machine_remarks([one, two])[0][:50]
        ([], 'Rows were computed on different machines: device c')
    """
    environments = [
        environment
        for session in sessions
        if session.get("rows") != 0
        for environment in session.get("machines") or [session.get("environment", {})]
    ]
    parts = []
    for name in MACHINE:
        values = {str(environment.get(name, "")) for environment in environments} - {""}
        if len(values) > 1:
            parts.append(f"{name} {' and '.join(sorted(values))}")
    if not parts:
        return []
    return [
        f"Rows were computed on different machines: {'; '.join(parts)}. Between them numbers "
        "differ in the last bits."
    ]


def session_remarks(sessions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what differed between the processes that computed the rows."""
    return [*thread_remarks(sessions), *machine_remarks(sessions)]
