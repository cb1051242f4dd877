"""The commands that make the runs and the report again."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from dtpt.commands import command_line
from dtpt.data.catalog import family_protocol
from dtpt.errors import DtptError
from dtpt.methods import resolve_method
from dtpt.options import EvalOptions, flag
from dtpt.report.facts import Resampling
from dtpt.report.load import Condition, Source, Variant
from dtpt.runs.spec import DatasetSpec, MethodSpec, RunSpec

ALWAYS = ("model", "dataset", "method", "seed", "views", "output")


def run_command(source: Source) -> str:
    """Return the `dtpt eval` that makes (or resumes) the run of one store."""
    spec = source.spec
    roots = [session.get("data_root") for session in source.sessions]
    given = {
        **_prompt(spec.model.name, spec.template, context=spec.context),
        "dataset": [entry.name for entry in spec.datasets],
        "method": method_words(spec),
        "seed": spec.seeds,
        **_settings(spec.datasets, [source]),
        "data_root": roots[-1] if roots else None,
        "output": source.folder,
    }
    return command_line("eval", options=EvalOptions, given=given, always=ALWAYS)


def row_command(condition: Condition, sets: Sequence[str], *, variant: Variant) -> str:
    """Return the `dtpt eval` that computes one row of a table by itself."""
    given = {
        **_prompt(condition.model, condition.template, context=condition.context),
        "dataset": sets,
        "method": variant.label,
        "seed": condition.seeds,
        **_settings([condition.datasets[name] for name in sets], condition.sources),
    }
    return command_line("eval", options=EvalOptions, given=given, always=ALWAYS)


def report_command(
    sources: Sequence[Source],
    output: Path,
    *,
    resampling: Resampling,
    intervals: bool = False,
    analysed: bool = False,
    data_root: Path | None = None,
) -> str:
    """Return the `dtpt report` that makes this report again."""
    folders = dict.fromkeys(str(source.folder) for source in sources)
    parts = ["dtpt", "report", *folders, "--output", str(output)]
    parts += ["--analysis", "ANALYSIS-FILE"] if analysed else []
    parts += ["--intervals"] if intervals else []
    for name in ("resamples", "level", "seed"):
        value = getattr(resampling, name)
        parts += [flag(name), str(value)] if value != getattr(Resampling(), name) else []
    parts += ["--data-root", str(data_root)] if data_root is not None else []
    return shlex.join(parts)


def _prompt(model: str, template: str, *, context: str | None) -> dict[str, object]:
    if context is not None:
        return {"model": model, "context": f"FILE-WITH-SHA256-{context[:12]}"}
    return {"model": model, "template": template}


def method_words(spec: RunSpec) -> list[str]:
    """Return what to give to `--method` so that every data set gets its methods with their λ.

    A λ that all sets share is written out (`d-tpt@1e6`). One that differs between sets is the
    default of each set's protocol and is given by the method's name alone.
    """
    longest = max(spec.datasets, key=lambda entry: len(entry.methods))
    everywhere = set.intersection(*(set(entry.methods) for entry in spec.datasets))
    mixed = [m.label if m in everywhere else m.name for m in longest.methods]
    labels = [method.label for method in longest.methods]
    names = list(dict.fromkeys(method.name for method in longest.methods))
    for words in (mixed, labels, names):
        if all(_expanded(words, entry) == entry.methods for entry in spec.datasets):
            return words
    return mixed


def _expanded(words: Sequence[str], entry: DatasetSpec) -> tuple[MethodSpec, ...]:
    """Return the methods that a data set would get."""
    protocol = family_protocol(entry.family)
    try:
        methods = [resolve_method(word, protocol=protocol) for word in words]
    except DtptError:  # a plug-in that is not installed here
        return ()
    return tuple(dict.fromkeys(MethodSpec(name=m.name, lambda_=m.lambda_) for m in methods))


def _settings(entries: Sequence[DatasetSpec], sources: Sequence[Source]) -> dict[str, object]:
    first, spec = entries[0], sources[0].spec
    return {
        "views": first.views.get("count", 64),
        **spec.tuning,
        "precision": spec.precision,
        "batch": spec.batch,
        "limit": first.limit,
        "partial": _takes_parts(entries, sources),
        "presentation": first.presentation,
        "max_failures": _allowed_failures(entries, sources),
    }


def _takes_parts(entries: Sequence[DatasetSpec], sources: Sequence[Source]) -> bool:
    """Return whether a set lacks images; under a limit only the typed command shows that."""
    if any(entry.limit is None and entry.is_partial for entry in entries):
        return True
    sessions = [session for source in sources for session in source.sessions]
    return any("--partial" in (session.get("command") or ()) for session in sessions)


def _allowed_failures(entries: Sequence[DatasetSpec], sources: Sequence[Source]) -> float:
    """Return the fraction of images that may fail, where more did than the default allows."""
    default: float = EvalOptions.model_fields["max_failures"].default
    failures = {failure[:2] for source in sources for failure in source.failures}
    allowed = default
    for entry in entries:
        failed = sum(name == entry.name for name, _ in failures)
        if failed > max(math.floor(default * entry.samples), 1):
            above = (math.floor(100 * failed / entry.samples) + 1) / 100
            allowed = max(allowed, min(above, 1.0))
    return allowed
