"""The command line and the Python lines that give the same numbers as the page."""

import json
import shlex

from dtpt.clip.prompts import DEFAULT_TEMPLATE
from dtpt.web.schemas import Commands, PredictSettings

PICTURE = "picture.png"  # the server does not know what the file is called


def commands(settings: PredictSettings, *, model: str) -> Commands:
    """Write down how to repeat an answer.

    Example:
        >>> wanted = PredictSettings(classes=["cat", "dog"], methods=["tpt"], views=16)
        >>> print(commands(wanted, model="pocket").shell)
        dtpt predict picture.png --model pocket --classes cat,dog --method tpt --views 16
    """
    return Commands(shell=_shell(settings, model), python=_python(settings, model))


def _shell(settings: PredictSettings, model: str) -> str:
    if settings.dropped:
        return "# The command line cannot leave out views; the Python lines can."
    first, classes = "", ["--classes", ",".join(settings.classes)]
    if any("," in name or name != name.strip() for name in settings.classes):
        first = f"printf '%s\\n' {shlex.join(settings.classes)} > classes.txt\n"
        classes = ["--classes-file", "classes.txt"]
    asked = ["dtpt", "predict", PICTURE, "--model", model]
    lines = [
        shlex.join([*asked, *classes, "--method", method, *_flags(settings)])
        for method in settings.methods
    ]
    return first + "\n".join(lines)


def _flags(settings: PredictSettings) -> list[str]:
    """Return what differs from the defaults."""
    flags: list[str] = []
    for name in ("template", "views", "seed", "steps"):
        value = getattr(settings, name)
        if value != PredictSettings.model_fields[name].default:
            flags += [f"--{name}", str(value)]
    return flags if settings.augmix else [*flags, "--no-augmix"]


def _python(settings: PredictSettings, model: str) -> str:
    lines = ["import dtpt", ""]
    lines.append(f"model = dtpt.load_model({json.dumps(model)})")
    lines.append(f"classes = {json.dumps(settings.classes, ensure_ascii=False)}")
    if settings.steps != 1:
        lines.append(f"settings = dtpt.TuningSettings(steps={settings.steps})")
    lines.append(f"for method in {json.dumps(settings.methods)}:")
    lines.append(f"    classifier = dtpt.Classifier({', '.join(_arguments(settings))})")
    if settings.dropped:
        lines.append(f"    features = classifier.view_features({json.dumps(PICTURE)})")
        lines.append(f"    dropped = {sorted(set(settings.dropped))}")
        lines.append("    kept = [k for k in range(len(features)) if k not in dropped]")
        lines.append("    answer = classifier.tune(features[kept])")
    else:
        lines.append(f"    answer = classifier.predict({json.dumps(PICTURE)})")
    lines.append("    print(method, answer.label, answer.confidence)")
    return "\n".join(lines)


def _arguments(settings: PredictSettings) -> list[str]:
    given = ["model", "classes", "method=method"]
    if settings.template != DEFAULT_TEMPLATE:
        given.append(f"template={json.dumps(settings.template, ensure_ascii=False)}")
    given += [f"views={settings.views}", f"seed={settings.seed}"]
    if not settings.augmix:
        given.append("augmix=False")
    if settings.steps != 1:
        given.append("settings=settings")
    return given
