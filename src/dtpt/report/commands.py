"""The commands that give the same numbers again."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from dtpt.report.cells import Block, Source
from dtpt.runs.options import EvalOptions
from dtpt.runs.spec import RunSpec, method_label


def run_command(source: Source) -> str:
    """Return the `dtpt eval` that makes (or resumes) the run of one store."""
    spec = source.spec
    parts = ["dtpt", "eval", *_shared(spec.model.name, spec.template, spec.context)]
    parts += ["--dataset", ",".join(entry.name for entry in spec.datasets)]
    parts += ["--method", ",".join(_methods(spec))]
    parts += ["--seed", ",".join(str(seed) for seed in spec.seeds)]
    parts += _settings(spec)
    return shlex.join([*parts, "--output", str(source.folder)])


def row_command(block: Block, sets: Sequence[str], method: str, lambda_: float | None) -> str:
    """Return the `dtpt eval` that computes one row of a table by itself."""
    entry = block.datasets[sets[0]]
    parts = ["dtpt", "eval", *_shared(block.model, block.template, block.context)]
    parts += ["--dataset", ",".join(sets), "--method", method_label(method, lambda_)]
    parts += ["--seed", ",".join(str(seed) for seed in block.seeds)]
    parts += ["--views", str(entry.views.get("count", 64))]
    parts += _changed(dict(block.tuning))
    if entry.limit is not None:
        parts += ["--limit", str(entry.limit)]
    if entry.presentation is not None:
        parts += ["--presentation", entry.presentation]
    return shlex.join(parts)


def report_command(sources: Sequence[Source], output: Path) -> str:
    """Return the `dtpt report` that makes this report again."""
    folders = dict.fromkeys(str(source.folder) for source in sources)
    return shlex.join(["dtpt", "report", *folders, "--output", str(output)])


def _shared(model: str, template: str, context: str | None) -> list[str]:
    parts = ["--model", model]
    if template != EvalOptions.model_fields["template"].default:
        parts += ["--template", template]
    if context is not None:
        parts += ["--context", f"FILE-WITH-SHA256-{context[:12]}"]
    return parts


def _methods(spec: RunSpec) -> list[str]:
    """Name the methods; λ is written unless it is each family's default, which differs by set."""
    labels = {tuple(method.label for method in entry.methods) for entry in spec.datasets}
    if len(labels) == 1:
        return list(labels.pop())
    return list(dict.fromkeys(m.name for entry in spec.datasets for m in entry.methods))


def _settings(spec: RunSpec) -> list[str]:
    first = spec.datasets[0]
    parts = ["--views", str(first.views.get("count", 64)), *_changed(dict(spec.tuning))]
    if first.limit is not None:
        parts += ["--limit", str(first.limit)]
    if first.presentation is not None:
        parts += ["--presentation", first.presentation]
    return parts


def _changed(tuning: dict[str, object]) -> list[str]:
    """Return the tuning options that are not the default."""
    parts = []
    for name in ("steps", "learning_rate", "rho", "entropy"):
        if name in tuning and tuning[name] != EvalOptions.model_fields[name].default:
            parts += [f"--{name.replace('_', '-')}", str(tuning[name])]
    return parts
