"""`dtpt predict`: classify pictures with any method."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dtpt.errors import PromptError

if TYPE_CHECKING:
    from dtpt.classifier import Classifier, Prediction
    from dtpt.errors import ImageError


def predict(
    images: Annotated[list[Path], Parameter(negative="", help="Picture files.")],
    *,
    classes: Annotated[str | None, Parameter(help="Class names, comma-separated.")] = None,
    classes_file: Annotated[Path | None, Parameter(help="File with a class name a line.")] = None,
    model: Annotated[str, Parameter(help="See `dtpt models`.")] = "pocket",
    method: Annotated[str, Parameter(help="See `dtpt methods`.")] = "d-tpt",
    lambda_: Annotated[float | None, Parameter(name="--lambda", help="Not the default.")] = None,
    template: Annotated[str, Parameter(help="Prompt with {} for the name.")] = "a photo of a {}.",
    context: Annotated[Path | None, Parameter(help="Initial context, e.g. CoOp's.")] = None,
    views: Annotated[int, Parameter(help="Views per image, the original included.")] = 64,
    seed: Annotated[int, Parameter(help="Of the random views.")] = 0,
    steps: Annotated[int, Parameter(help="Optimiser steps per image.")] = 1,
    augmix: Annotated[bool, Parameter(help="AugMix in the random views.")] = True,
    device: Annotated[str, Parameter(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    json_: Annotated[bool, Parameter(name="--json", help="Print one JSON line each.")] = False,
    quiet: Annotated[bool, Parameter(help="No progress bar.")] = False,
) -> None:
    """Classify pictures; print label, confidence and the zero-shot answer beside it.

    A picture that cannot be read does not stop the others: its row says why, the exit code is 1.
    """
    names = _class_names(classes, classes_file)
    from dtpt.classifier import Classifier
    from dtpt.clip.loading import load_model
    from dtpt.prompts import load_context, placeholder_template
    from dtpt.tuning import TuningSettings

    initial = None if context is None else load_context(context)
    classifier = Classifier(
        load_model(model, device=device),
        names,
        method=method,
        lambda_=lambda_,
        template=template if initial is None else placeholder_template(len(initial)),
        context=initial,
        views=views,
        seed=seed,
        augmix=augmix,
        settings=TuningSettings(steps=steps),
    )
    for remark in classifier.model.remarks:
        print(remark, file=sys.stderr)
    rows = _predict_all(classifier, images, show=not quiet)
    if json_:
        print("\n".join(json.dumps(row) for row in rows))
    else:
        _print_table(rows, classifier.method.name)
    if any("error" in row for row in rows):
        sys.exit(1)


def _class_names(classes: str | None, classes_file: Path | None) -> list[str]:
    if (classes is None) == (classes_file is None):
        raise PromptError("Give the class names once: --classes a,b,c or --classes-file FILE.")
    if classes is not None:
        return [name.strip() for name in classes.split(",")]
    assert classes_file is not None  # noqa: S101 - checked above
    try:
        lines = classes_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"Cannot read class names from {classes_file}: {error}.") from None
    return [line.strip() for line in lines if line.strip()]


def _predict_all(
    classifier: "Classifier", images: Sequence[Path], *, show: bool
) -> list[dict[str, Any]]:
    from rich.console import Console
    from rich.progress import track

    rows = []
    answers = classifier.predict_each(images)
    console = Console(stderr=True)
    visible = show and len(images) > 1 and console.is_terminal
    steps = track(images, "Tuning", console=console, disable=not visible)
    for path, answer in zip(steps, answers, strict=True):
        rows.append(_row(path, answer, classifier.classes))
    return rows


def _row(path: Path, answer: "Prediction | ImageError", classes: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(answer, Exception):
        return {"image": str(path), "error": str(answer)}
    return {
        "image": str(path),
        "label": answer.label,
        "confidence": answer.confidence,
        "entropy": answer.entropy,
        "method": answer.method,
        "lambda": answer.lambda_,
        "zero_shot": {"label": answer.zero_shot.label, "confidence": answer.zero_shot.confidence},
        "remark": answer.remark,
        "probabilities": dict(zip(classes, answer.probabilities.tolist(), strict=True))
        if len(set(classes)) == len(classes)
        else answer.probabilities.tolist(),
    }


def _print_table(rows: list[dict[str, Any]], method: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("image", method, "confidence", "zero-shot", "confidence")
    for row in rows:
        if "error" in row:
            table.add_row(row["image"], f"[red]{row['error']}[/red]", "", "", "")
        else:
            before = row["zero_shot"]
            numbers = (f"{row['confidence']:.1%}", before["label"], f"{before['confidence']:.1%}")
            table.add_row(row["image"], row["label"], *numbers)
    Console().print(table)
    for row in rows:
        if row.get("remark"):
            print(f"{row['image']}: {row['remark']}", file=sys.stderr)
