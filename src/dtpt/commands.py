"""Command lines and Python lines that give the same numbers again, from options and stored runs.

No torch.
"""

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from dtpt.clip.ensembles import DESCRIPTIONS, named_templates, prompt_label
from dtpt.errors import DtptError, flag
from dtpt.methods import resolve_method
from dtpt.options import EvalOptions, ImageOptions, Options, PredictOptions
from dtpt.runs.spec import DatasetSpec, MethodSpec, RunSpec
from dtpt.tuning.settings import TuningSettings

ALWAYS = ("model", "dataset", "method", "seed", "views", "output")


def command_line(
    command: str,
    *words: str,
    options: type[Options],
    given: Mapping[str, object],
    always: Collection[str] = (),
) -> str:
    """Return `dtpt COMMAND WORDS --flag value ...`, quoted for a shell.

    Of the `given` values None and defaults are left out, but for the names in `always`.

    Example:
        >>> from dtpt.options import PredictOptions
        >>> given = {"model": "pocket", "classes": "cat,dog", "views": 16, "augmix": False}
        >>> command_line("predict", "a b.png", options=PredictOptions, given=given)
        "dtpt predict 'a b.png' --classes cat,dog --views 16 --no-augmix"
    """
    parts = ["dtpt", command, *words]
    for name, value in given.items():
        field = options.model_fields.get(name)
        is_default = field is not None and value == field.default
        if value is None or (is_default and name not in always):
            continue
        if isinstance(value, bool):
            parts.append(flag(name if value else f"no_{name}"))
        else:
            values = value if isinstance(value, tuple | list) else [value]
            parts += [flag(name), ",".join(map(str, values))]
    return shlex.join(parts)


def predict_lines(
    image: str,
    classes: Sequence[str],
    *,
    model: str,
    methods: Sequence[str],
    settings: ImageOptions,
    dropped: Collection[int] = (),
) -> dict[str, str]:
    """Return "shell" lines and "python" lines that predict an image with each method.

    `dropped`: views to leave out, which only the Python lines can do.

    Example:
        >>> given = {"model": "m", "methods": ["tpt"], "settings": ImageOptions(views=16)}
        >>> print(predict_lines("a.png", ["x", "y"], **given)["shell"])
        dtpt predict a.png --model m --classes x,y --method tpt --views 16
    """
    lines, names = [], {"classes": list(classes)}
    if any("," in name for name in classes):
        lines = [f"printf '%s\\n' {shlex.join(classes)} > classes.txt"]
        names = {"classes_file": ["classes.txt"]}
    shared = {name: getattr(settings, name) for name in ImageOptions.model_fields}
    always = ("model", "method")
    for method in methods:
        given = {"model": model, **names, "method": method, **shared}
        lines.append(
            command_line("predict", image, options=PredictOptions, given=given, always=always)
        )
    if dropped:
        lines = ["# The command line cannot leave out views; the Python lines can."]
    python = [
        "import dtpt",
        "",
        f"model = dtpt.load_model({model!r})",
        f"classes = {list(classes)!r}",
        f"for method in {list(methods)!r}:",
        f"    classifier = dtpt.Classifier({', '.join(_python_arguments(settings))})",
    ]
    if dropped:
        python += [
            f"    features = classifier.view_features({image!r})",
            f"    kept = [k for k in range(len(features)) if k not in {sorted(set(dropped))}]",
            "    prediction = classifier.tune(features[kept])",
        ]
    else:
        python.append(f"    prediction = classifier.predict({image!r})")
    python.append("    print(method, prediction.label, prediction.confidence)")
    return {"shell": "\n".join(lines), "python": "\n".join(python)}


def _python_arguments(settings: ImageOptions) -> list[str]:
    changed = {
        name: getattr(settings, name)
        for name, field in ImageOptions.model_fields.items()
        if getattr(settings, name) != field.default
    }
    tuning = [name for name in TuningSettings.model_fields if name in changed]
    steps = ", ".join(f"{name}={changed.pop(name)!r}" for name in tuning)
    arguments = ["model", "classes", "method=method"]
    arguments += [f"{name}={value!r}" for name, value in changed.items()]
    return arguments + ([f"settings=dtpt.TuningSettings({steps})"] if tuning else [])


def eval_command(
    spec: RunSpec,
    *,
    datasets: Sequence[DatasetSpec],
    methods: Sequence[str],
    seeds: Sequence[int],
    sessions: Sequence[Mapping[str, Any]] = (),
    failures: Collection[tuple[str, str]] = (),
    output: Path | None = None,
) -> str:
    """Return the `dtpt eval` that computes a run again, or some data sets and methods of it.

    The `sessions` in which it was computed know `--partial` and, with an `output`, the data root;
    `failures` are the (data set, sample) that could not be read.
    """
    first = datasets[0]
    roots = [session.get("data_root") for session in sessions] if output else []
    prompt = _prompt(spec.template)
    if spec.context is not None:
        prompt = {"context": f"FILE-WITH-SHA256-{spec.context[:12]}"}
    given = {
        "model": spec.model.name,
        **prompt,
        "dataset": [entry.name for entry in datasets],
        "method": methods,
        "seed": seeds,
        "views": first.views.get("count", 64),
        **spec.tuning,
        "precision": spec.precision,
        "batch": spec.batch,
        "order": spec.order.kind if spec.order else None,
        "order_seeds": spec.order.seeds if spec.order else None,
        "limit": first.limit,
        "partial": _takes_parts(datasets, sessions),
        "presentation": first.presentation,
        "cluster_level": first.cluster_level,
        "max_failures": _allowed_failures(datasets, failures),
        "data_root": roots[-1] if roots else None,
        "output": output,
    }
    return command_line("eval", options=EvalOptions, given=given, always=ALWAYS)


def _prompt(template: str) -> dict[str, object]:
    """Return the options that mean a spec's template, or its several templates."""
    if template.startswith(DESCRIPTIONS):
        return {"descriptions": f"FILE-WITH-{template.partition(' ')[2].replace(':', '-')}"}
    label = prompt_label(template)
    return {"templates": label} if label in named_templates() else {"template": template}


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
    try:
        methods = [resolve_method(word, protocol=entry.protocol) for word in words]
    except DtptError:  # a plug-in that is not installed here
        return ()
    return tuple(dict.fromkeys(MethodSpec(name=m.name, lambda_=m.lambda_) for m in methods))


def _takes_parts(datasets: Sequence[DatasetSpec], sessions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a set lacks images; under a limit only the sessions know that."""
    if any(entry.limit is None and entry.is_partial for entry in datasets):
        return True
    return any(
        session.get("is_partial") or "--partial" in (session.get("command") or ())
        for session in sessions
    )


def _allowed_failures(
    datasets: Sequence[DatasetSpec], failures: Collection[tuple[str, str]]
) -> float:
    """Return the fraction of images that may fail, where more did than the default allows."""
    default: float = EvalOptions.model_fields["max_failures"].default
    allowed = default
    for entry in datasets:
        failed = sum(name == entry.name for name, _ in failures)
        if failed > max(math.floor(default * entry.samples), 1):
            above = (math.floor(100 * failed / entry.samples) + 1) / 100
            allowed = max(allowed, min(above, 1.0))
    return allowed
