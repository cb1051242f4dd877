"""The commands that give the same numbers again."""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from dtpt.data.catalog import family_protocol
from dtpt.errors import DtptError
from dtpt.methods import resolve_method
from dtpt.options import EvalOptions, flag
from dtpt.report.comparison import Resampling
from dtpt.report.gathering.scored_cells import Condition, Contender, Source
from dtpt.runs.spec import LATER, DatasetSpec, MethodSpec, RunSpec
from dtpt.tuning.settings import TuningSettings


def run_command(source: Source) -> str:
    """Return the `dtpt eval` that makes (or resumes) the run of one store."""
    spec = source.spec
    parts = ["dtpt", "eval", *_shared(spec.model.name, spec.template, context=spec.context)]
    parts += ["--dataset", ",".join(entry.name for entry in spec.datasets)]
    parts += ["--method", ",".join(method_words(spec))]
    parts += ["--seed", ",".join(str(seed) for seed in spec.seeds)]
    parts += _settings(spec.datasets, spec.tuning, sources=[source])
    roots = [session.get("data_root") for session in source.sessions]
    parts += ["--data-root", str(roots[-1])] if roots and roots[-1] else []
    return shlex.join([*parts, "--output", str(source.folder)])


def row_command(condition: Condition, sets: Sequence[str], *, contender: Contender) -> str:
    """Return the `dtpt eval` that computes one row of a table by itself."""
    shared = _shared(condition.model, condition.template, context=condition.context)
    parts = ["dtpt", "eval", *shared, "--dataset", ",".join(sets), "--method", contender.label]
    parts += ["--seed", ",".join(str(seed) for seed in condition.seeds)]
    entries = [condition.datasets[name] for name in sets]
    parts += _settings(entries, condition.tuning, sources=condition.sources)
    return shlex.join(parts)


def report_command(
    sources: Sequence[Source],
    output: Path,
    *,
    resampling: Resampling,
    intervals: bool = False,
    analysed: bool = False,
    data_root: Path | None = None,
) -> str:
    """Return the `dtpt report` that makes this report again; who `analysed` knows the file."""
    folders = dict.fromkeys(str(source.folder) for source in sources)
    parts = ["dtpt", "report", *folders, "--output", str(output)]
    parts += ["--analysis", "ANALYSIS-FILE"] if analysed else []
    parts += ["--intervals"] if intervals else []
    for name in ("resamples", "level", "seed"):
        value = getattr(resampling, name)
        parts += [flag(name), str(value)] if value != getattr(Resampling(), name) else []
    parts += ["--data-root", str(data_root)] if data_root is not None else []
    return shlex.join(parts)


def _shared(model: str, template: str, *, context: str | None) -> list[str]:
    parts = ["--model", model]
    if context is not None:
        parts += ["--context", f"FILE-WITH-SHA256-{context[:12]}"]
    elif template != EvalOptions.model_fields["template"].default:
        parts += ["--template", template]
    return parts


def method_words(spec: RunSpec) -> list[str]:
    """Return what to give to `--method` so that every data set gets its methods and weights.

    A weight that all sets share is written out (`d-tpt@1e6`). One that differs between sets is the
    default of each set's protocol and is given by the method's name alone.
    """
    longest = max(spec.datasets, key=lambda entry: len(entry.methods))
    everywhere = set.intersection(*(set(entry.methods) for entry in spec.datasets))
    mixed = [m.label if m in everywhere else m.name for m in longest.methods]
    plain = [method.label for method in longest.methods]
    names = list(dict.fromkeys(method.name for method in longest.methods))
    for words in (mixed, plain, names):
        if all(_expanded(words, entry) == entry.methods for entry in spec.datasets):
            return words
    return mixed


def _expanded(words: Sequence[str], entry: DatasetSpec) -> tuple[MethodSpec, ...]:
    """Return the methods that a data set would get."""
    protocol = family_protocol(entry.family)
    try:
        found = [resolve_method(word, protocol=protocol) for word in words]
    except DtptError:  # a plug-in that is not installed here
        return ()
    return tuple(dict.fromkeys(MethodSpec(name=m.name, lambda_=m.lambda_) for m in found))


def _settings(
    entries: Sequence[DatasetSpec], tuning: Mapping[str, object], *, sources: Sequence[Source]
) -> list[str]:
    """Return views, limits and those other options that are not the default."""
    first = entries[0]
    parts = ["--views", str(first.views.get("count", 64))]
    for name, field in TuningSettings.model_fields.items():
        if name in tuning and tuning[name] != field.default:
            parts += [flag(name), str(tuning[name])]
    for name, default in LATER.items() if sources else ():
        value = getattr(sources[0].spec, name)
        parts += [flag(name), str(value)] if value != default else []
    if first.limit is not None:
        parts += ["--limit", str(first.limit)]
    if _takes_parts(entries, sources):
        parts += ["--partial"]
    if first.presentation is not None:
        parts += ["--presentation", first.presentation]
    return parts + _allowed_failures(entries, sources)


def _takes_parts(entries: Sequence[DatasetSpec], sources: Sequence[Source]) -> bool:
    """Tell whether a set is not there as a whole; under a limit only the typed command knows."""
    if any(entry.limit is None and entry.is_partial for entry in entries):
        return True
    sessions = [session for source in sources for session in source.sessions]
    return any("--partial" in (session.get("command") or ()) for session in sessions)


def _allowed_failures(entries: Sequence[DatasetSpec], sources: Sequence[Source]) -> list[str]:
    """Return how many pictures may fail, where more did than are let pass by default."""
    allowed = EvalOptions.model_fields["max_failures"].default
    failures = {failure[:2] for source in sources for failure in source.failures}
    share = allowed
    for entry in entries:
        failed = sum(name == entry.name for name, _ in failures)
        if failed > max(math.floor(allowed * entry.samples), 1):
            above = (math.floor(100 * failed / entry.samples) + 1) / 100
            share = max(share, min(above, 1.0))
    return [] if share == allowed else ["--max-failures", f"{share:g}"]
