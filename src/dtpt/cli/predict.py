"""`dtpt predict`: classify pictures with any method."""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dtpt.cli.exits import PARTLY
from dtpt.cli.flags import AsJson, Flags, flags_of
from dtpt.errors import PromptError, PromptWarning, os_error
from dtpt.files import printable, read_limited
from dtpt.options import PredictOptions

if TYPE_CHECKING:
    from PIL.Image import Image

    from dtpt.calibration import Promise, Subject
    from dtpt.errors import ImageError
    from dtpt.prediction import Classifier, Prediction

# what people look for first in the help
FIRST = ("classes", "classes_file", "model", "method", "lambda_", "template", "views", "seed")
MOST_CLASSES_BYTES = 10**7
SHOWN = 3  # classes of a prediction set in the table; --json prints all of them


@flags_of(PredictOptions, first=FIRST)
class PredictFlags(Flags):
    """The options of `predict`."""


def predict(
    images: Annotated[list[Path], Parameter(negative=(), json_list=False)],  # "[a].png" is a name
    *,
    flags: PredictFlags | None = None,
    as_json: AsJson = False,
) -> None:
    """Classify pictures; print label, confidence and the zero-shot answer beside it.

    Give the class names with --classes or --classes-file. A picture that cannot be read does not
    stop the others: its row says why, and the exit code is 1.

    Args:
        images: Picture files.
        flags: The options.
        as_json: Print one JSON line for each picture.
    """
    options, promise = _options(flags or PredictFlags())
    names = _class_names(options, promise)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", PromptWarning)
        classifier = _classifier(options, names, promise=promise)
    for remark in (*classifier.model.notes, *(warning.message for warning in told)):
        print(remark, file=sys.stderr)
    classifier.fit_weight(_readable(images))  # of a method such as d-tpt@auto
    rows = []
    for row in _rows(classifier, images, show=not (options.quiet or as_json)):
        rows.append(row)
        if as_json:
            print(json.dumps(row), flush=True)  # at once: what is answered is not lost
    if not as_json:
        _print_table(rows, classifier.method.name)
    if any("error" in row for row in rows):
        sys.exit(PARTLY)


def _options(flags: PredictFlags) -> "tuple[PredictOptions, Promise | None]":
    """Return the options and the promise; what is not given comes from the promise."""
    options = flags.options(PredictOptions, table="predict")
    if options.promise is None:
        return options, None
    from dtpt.calibration import read_promise

    promise = read_promise(options.promise)
    subject = promise.subject
    options = flags.options(PredictOptions, table="predict", defaults=_settings(subject))
    if options.lambda_ is None and options.method == subject.method:
        options = options.model_copy(update={"lambda_": subject.lambda_})
    return options, promise


def _settings(subject: "Subject") -> dict[str, Any]:
    """Return what a promise is about as options."""
    return {
        "model": subject.model,
        "precision": subject.precision,
        "method": subject.method,
        "template": subject.template,
        "views": subject.views["count"],
        "augmix": subject.views["augmix"],
        **subject.tuning,
    }


def _class_names(options: PredictOptions, promise: "Promise | None") -> list[str]:
    path = options.classes_file
    if promise is not None and options.classes is None and path is None:
        return list(promise.subject.classes)
    if (options.classes is None) == (path is None):
        raise PromptError("Give the class names once: --classes a,b,c or --classes-file FILE.")
    if path is None:
        return [name.strip() for name in (options.classes or "").split(",")]
    where = f"class names from {printable(path)}"
    try:
        lines = read_limited(path, MOST_CLASSES_BYTES).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise PromptError(f"Cannot read {where}: {os_error(error)}.") from None
    except UnicodeDecodeError:
        raise PromptError(f"Cannot read {where}: it is not UTF-8.") from None
    return [line.strip() for line in lines if line.strip()]


def _classifier(
    options: PredictOptions, names: Sequence[str], *, promise: "Promise | None"
) -> "Classifier":
    import torch

    from dtpt.clip.loading import load_model
    from dtpt.clip.prompts import load_context, placeholder_template
    from dtpt.prediction import Classifier

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    context = None if options.context is None else load_context(options.context)
    return Classifier(
        load_model(
            options.model,
            device=options.device,
            activation=options.activation,
            precision=options.precision,
        ),
        names,
        method=options.method,
        lambda_=options.lambda_,
        protocol=_protocol(options, promise),
        template=options.template if context is None else placeholder_template(len(context)),
        context=context,
        views=options.views,
        seed=options.seed,
        augmix=options.augmix,
        settings=options.tuning,
        promise=promise,
    )


def _protocol(options: PredictOptions, promise: "Promise | None") -> str:
    """Return the protocol that gives the method the promise's learning rate, where one does."""
    from dtpt.methods import PROTOCOLS, resolve_method

    if promise is None:
        return PROTOCOLS[0]
    given, weight = options.method, options.lambda_
    rates = {p: resolve_method(given, lambda_=weight, protocol=p).learning_rate for p in PROTOCOLS}
    fitting = [name for name, rate in rates.items() if rate == promise.subject.learning_rate]
    return fitting[0] if fitting else PROTOCOLS[0]


def _readable(images: Iterable[Path]) -> "Iterator[Image]":
    """Yield the pictures that can be read; the others are told in their rows."""
    from dtpt.errors import ImageError
    from dtpt.images import open_image

    for path in images:
        try:
            yield open_image(path)
        except ImageError:
            continue


def _rows(
    classifier: "Classifier", images: Sequence[Path], *, show: bool
) -> Iterator[dict[str, Any]]:
    """Yield the row of each picture; with a bar, which no other output may go along with."""
    from rich.console import Console
    from rich.progress import track

    answers = classifier.predict_each(images)
    console = Console(stderr=True)
    visible = show and len(images) > 1 and console.is_terminal
    steps = track(images, "Tuning", console=console, disable=not visible)
    for path, answer in zip(steps, answers, strict=True):
        yield _row(printable(path), answer)


def _row(name: str, answer: "Prediction | ImageError") -> dict[str, Any]:
    if isinstance(answer, Exception):
        return {"image": name, "error": str(answer)}
    return {"image": name, **answer.to_dict()}


def _print_table(rows: list[dict[str, Any]], method: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    from dtpt.cli.output import wide_console

    promised = any("prediction_set" in row for row in rows)
    table = Table()
    table.add_column("image", overflow="fold")
    for head in (method, "prediction set" if promised else "zero-shot"):
        table.add_column(head, overflow="fold")
        table.add_column("confidence", justify="right", no_wrap=True)
    if promised:
        table.columns[-1].header = "calibrated"
    for row in rows:
        if "error" in row:
            table.add_row(escape(row["image"]), f"[red]{escape(row['error'])}[/red]", "", "", "")
        else:
            second, confidence = _set_cells(row) if promised else _zero_shot_cells(row)
            texts = (row["image"], _said(row), f"{row['confidence']:.1%}", second, confidence)
            table.add_row(*(escape(text) for text in texts))
    wide_console().print(table)
    for row in rows:
        if row.get("remark"):
            print(f"{row['image']}: {row['remark']}", file=sys.stderr)


def _said(row: dict[str, Any]) -> str:
    """Return the answer; where the promise gives none, the guess with a question mark."""
    return str(row["label"]) if row.get("is_answered", True) else f"no answer ({row['label']}?)"


def _zero_shot_cells(row: dict[str, Any]) -> tuple[str, str]:
    return row["zero_shot"]["label"], f"{row['zero_shot']['confidence']:.1%}"


def _set_cells(row: dict[str, Any]) -> tuple[str, str]:
    """Return the set, cut where it is long, and the calibrated confidence."""
    names = row["prediction_set"]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more, f"{row['calibrated_confidence']:.1%}"
