"""The commands that give the same numbers again."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from dtpt.data.families import family_protocol
from dtpt.errors import DtptError
from dtpt.methods import resolve_method
from dtpt.report.gathering.scored_cells import Condition, Contender, Source
from dtpt.runs.options import EvalOptions, flag
from dtpt.runs.spec import DatasetSpec, MethodSpec, RunSpec
from dtpt.tuning.settings import TuningSettings


def run_command(source: Source) -> str:
    """Return the `dtpt eval` that makes (or resumes) the run of one store."""
    spec = source.spec
    parts = ["dtpt", "eval", *_shared(spec.model.name, spec.template, context=spec.context)]
    parts += ["--dataset", ",".join(entry.name for entry in spec.datasets)]
    parts += ["--method", ",".join(method_words(spec))]
    parts += ["--seed", ",".join(str(seed) for seed in spec.seeds)]
    parts += _settings(spec.datasets[0], dict(spec.tuning))
    roots = [session.get("data_root") for session in source.sessions]
    parts += ["--data-root", str(roots[-1])] if roots and roots[-1] else []
    return shlex.join([*parts, "--output", str(source.folder)])


def row_command(condition: Condition, sets: Sequence[str], *, contender: Contender) -> str:
    """Return the `dtpt eval` that computes one row of a table by itself."""
    shared = _shared(condition.model, condition.template, context=condition.context)
    parts = ["dtpt", "eval", *shared, "--dataset", ",".join(sets), "--method", contender.label]
    parts += ["--seed", ",".join(str(seed) for seed in condition.seeds)]
    return shlex.join(parts + _settings(condition.datasets[sets[0]], dict(condition.tuning)))


def report_command(sources: Sequence[Source], output: Path) -> str:
    """Return the `dtpt report` that makes this report again."""
    folders = dict.fromkeys(str(source.folder) for source in sources)
    return shlex.join(["dtpt", "report", *folders, "--output", str(output)])


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


def _settings(entry: DatasetSpec, tuning: dict[str, object]) -> list[str]:
    """Return views, limits and those tuning options that are not the default."""
    parts = ["--views", str(entry.views.get("count", 64))]
    for name, field in TuningSettings.model_fields.items():
        if name in tuning and tuning[name] != field.default:
            parts += [flag(name), str(tuning[name])]
    if entry.limit is not None:
        parts += ["--limit", str(entry.limit)]
    elif entry.is_partial:
        parts += ["--partial"]
    if entry.presentation is not None:
        parts += ["--presentation", entry.presentation]
    return parts
