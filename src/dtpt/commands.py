"""Command lines and Python lines that give the same numbers again, from options. No torch."""

import shlex
from collections.abc import Collection, Mapping, Sequence

from dtpt.options import ImageOptions, Options, PredictOptions, flag
from dtpt.tuning.settings import TuningSettings


def command_line(
    command: str,
    *words: str,
    options: type[Options],
    given: Mapping[str, object],
    always: Collection[str] = (),
) -> str:
    """Return `dtpt COMMAND WORDS --flag value ...`, quoted for a shell.

    Args:
        command: such as `eval`.
        words: positional arguments.
        options: the command's options, which know the defaults.
        given: values by name, in the order of printing; None and defaults are left out.
        always: names that are printed even with their default.

    Example:
        >>> from dtpt.options import PredictOptions
        >>> given = {"model": "pocket", "classes": "cat,dog", "views": 16, "augmix": False}
        >>> command_line("predict", "a b.png", options=PredictOptions, given=given)
        "dtpt predict 'a b.png' --classes cat,dog --views 16 --no-augmix"
    """
    parts = ["dtpt", command, *words]
    for name, value in given.items():
        known = options.model_fields.get(name)
        is_default = known is not None and value == known.default
        if value is not None and (name in always or not is_default):
            parts += _flag_words(name, value)
    return shlex.join(parts)


def _flag_words(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    if isinstance(value, tuple | list):
        return [flag(name), ",".join(str(part) for part in value)]
    return [flag(name), str(value)]


def predict_lines(
    image: str,
    classes: Sequence[str],
    *,
    model: str,
    methods: Sequence[str],
    settings: ImageOptions,
    dropped: Collection[int] = (),
) -> tuple[str, str]:
    """Return shell lines and Python lines that predict an image with each method.

    `dropped`: views to leave out, which only the Python lines can do.

    Example:
        >>> options = ImageOptions(views=16)
        >>> print(predict_lines("a.png", "xy", model="m", methods=["tpt"], settings=options)[0])
        dtpt predict a.png --model m --classes x,y --method tpt --views 16
    """
    shell = ["# The command line cannot leave out views; the Python lines can."]
    if not dropped:
        shell = _shell_lines(image, classes, model=model, methods=methods, settings=settings)
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
    return "\n".join(shell), "\n".join(python)


def _shell_lines(
    image: str,
    classes: Sequence[str],
    *,
    model: str,
    methods: Sequence[str],
    settings: ImageOptions,
) -> list[str]:
    lines: list[str] = []
    names: dict[str, object] = {"classes": list(classes)}
    if any("," in name for name in classes):
        lines = [f"printf '%s\\n' {shlex.join(classes)} > classes.txt"]
        names = {"classes_file": "classes.txt"}
    shared = {name: getattr(settings, name) for name in ImageOptions.model_fields}
    always = ("model", "method")
    for method in methods:
        given = {"model": model, **names, "method": method, **shared}
        lines.append(
            command_line("predict", image, options=PredictOptions, given=given, always=always)
        )
    return lines


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
