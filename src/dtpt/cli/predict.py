"""`dtpt predict`: classify images with any method."""

import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dtpt.cli.answers import answers_file
from dtpt.cli.exits import PARTIAL
from dtpt.cli.flags import AsJson, Config, flags
from dtpt.cli.output import show
from dtpt.data.layouts import is_image_name
from dtpt.errors import ImageError, PromptError, PromptWarning, os_error
from dtpt.files import printable, read_limited
from dtpt.machine import choose_threads, free_memory, usable_cores
from dtpt.options import PredictOptions
from dtpt.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from PIL.Image import Image

    from dtpt.calibration import Calibration
    from dtpt.prediction import Classifier, Prediction

MOST_CLASSES_BYTES = 10**7
SHOWN_CLASSES = 3  # of a prediction set in the table; --json prints all of them


def predict(
    images: list[Path],
    /,
    *,
    options: Annotated[PredictOptions, flags(PredictOptions)] = PredictOptions(),
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Classify images; print label, confidence and the zero-shot prediction beside it.

    Give the class names with --classes or --classes-file; a model of text features (features:)
    brings its own. An image that cannot be read does not
    stop the others: its row has the reason, and the exit code is 1. --json prints one line for
    each image; --output writes a file when all are answered.

    Args:
        images: Image files, and folders whose images are all classified.
    """
    images = list(find_images(images))
    options, calibration = _with_calibration(options)
    names = _class_names(options, calibration)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PromptWarning)
        classifier = _classifier(options, names, calibration=calibration)
    for note in (*classifier.model.notes, *(warning.message for warning in caught)):
        print(note, file=sys.stderr)
    classifier.fit_lambda(_readable(images))  # of a method such as d-tpt@auto
    progress = not (options.quiet or as_json)
    answers = _rows(classifier, images, options=options, progress=progress)
    if options.output is not None:
        unreadable = _save(answers, options.output)
    elif as_json:
        unreadable = _print_lines(answers)
    else:
        unreadable = _print_table(answers, classifier.method.name)
    if unreadable:
        sys.exit(PARTIAL)


def find_images(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files as they are, and in place of a folder the images in it, sorted by path.

    Raises:
        ImageError: A folder without an image; hidden files and folders do not count.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = []
        for folder, folders, names in os.walk(path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [Path(folder, name) for name in names if is_image_name(name)]
        if not found:
            raise ImageError(f"The folder {printable(path)} has no images.")
        yield from sorted(found)


def _save(rows: Iterable[dict[str, Any]], path: Path) -> int:
    """Write all rows to a file; return how many images could not be read."""
    counts: Counter[str] = Counter()
    with answers_file(path) as write:
        for row in rows:
            write(row)
            counts["images"] += 1
            for name in ("error", "abstained", "warning"):
                counts[name] += bool(row.get(name))
    parts = [f"{counts['images']:,} images", f"{counts['error']} unreadable"]
    parts += [f"{counts['abstained']} abstained", f"{counts['warning']} with a warning"]
    print(f"Wrote {printable(path)}: {', '.join(parts)}", file=sys.stderr)
    return counts["error"]


def _print_lines(rows: Iterable[dict[str, Any]]) -> int:
    unreadable = 0
    for row in rows:
        print(json.dumps(row), flush=True)  # at once: finished predictions are not lost
        unreadable += "error" in row
    return unreadable


def _print_table(rows: Iterable[dict[str, Any]], method: str) -> int:
    rows = list(rows)
    show(_table(rows, method))
    for row in rows:
        if row.get("warning"):
            print(f"{row['image']}: {row['warning']}", file=sys.stderr)
    return sum("error" in row for row in rows)


def _with_calibration(options: PredictOptions) -> "tuple[PredictOptions, Calibration | None]":
    """Return the options and the calibration; options that are not given come from it."""
    if options.calibration is None:
        return options, None
    from dtpt.calibration import read_calibration

    calibration = read_calibration(options.calibration)
    setup = calibration.setup
    settings = {
        "model": setup.model,
        "precision": setup.precision,
        "method": setup.method,
        "template": setup.template,
        "views": setup.views["count"],
        "augmix": setup.views["augmix"],
        **setup.tuning,
        **options.given(),
    }
    if settings["method"] == setup.method:
        settings.setdefault("lambda_", setup.lambda_)
    return PredictOptions.parse(settings), calibration


def _class_names(options: PredictOptions, calibration: "Calibration | None") -> list[str]:
    """Return the class names; none if they are those of the model."""
    path = options.classes_file
    if options.classes is None and path is None:
        if calibration is not None:
            return list(calibration.setup.classes)
        if options.model.startswith("features:"):
            return []
    if (options.classes is None) == (path is None):
        raise PromptError("Give the class names once: --classes a,b,c or --classes-file FILE.")
    if path is None:
        return [name.strip() for name in (options.classes or "").split(",")]
    try:
        lines = read_limited(path, MOST_CLASSES_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"Cannot read class names from {printable(path)}: {os_error(error)}."
        raise PromptError(message) from None
    return [line.strip() for line in lines if line.strip()]


def _classifier(
    options: PredictOptions, names: Sequence[str], *, calibration: "Calibration | None"
) -> "Classifier":
    import torch

    from dtpt.clip.ensembles import read_descriptions
    from dtpt.clip.prompts import load_context
    from dtpt.methods import resolve_method
    from dtpt.prediction import Classifier

    torch.set_num_threads(choose_threads(options.threads))
    context = None if options.context is None else load_context(options.context)
    method = resolve_method(options.method, lambda_=options.lambda_)
    if calibration is not None and method.name == calibration.setup.method:
        method = replace(method, learning_rate=calibration.setup.learning_rate)
    model = options.load()
    return Classifier(
        model,
        names or (model.fixed_text.classes if model.fixed_text else ()),
        method=method,
        template=options.prompt(context),
        descriptions=read_descriptions(options.descriptions) if options.descriptions else None,
        context=context,
        views=options.views,
        seed=options.seed,
        augmix=options.augmix,
        settings=options.tuning,
        calibration=calibration,
    )


def _readable(images: Sequence[Path]) -> "Iterator[Image]":
    from dtpt.images import open_image

    for path in images:
        try:
            yield open_image(path)
        except ImageError:  # the image's row has the reason
            continue


def _rows(
    classifier: "Classifier", images: Sequence[Path], *, options: PredictOptions, progress: bool
) -> Iterator[dict[str, Any]]:
    from rich.progress import track

    from dtpt.terminal import Console

    if options.stream is not None:
        predictions = _stream(classifier, images, path=options.stream)
    else:
        workers, threads = _workers(classifier, options, images=len(images))
        predictions = classifier.predict_each(images, workers=workers, threads=threads)
    console = Console(stderr=True)
    is_visible = progress and len(images) > 1 and console.is_terminal
    steps = track(images, "Classifying", console=console, disable=not is_visible)
    for path, prediction in zip(steps, predictions, strict=True):
        if isinstance(prediction, ImageError):
            yield {"image": printable(path), "error": str(prediction)}
        else:
            yield {"image": printable(path), **prediction.to_dict()}


def _stream(
    classifier: "Classifier", images: Iterable[Path], *, path: Path
) -> "Generator[Prediction | ImageError, None, None]":
    """Predict images one after the other, from the state in a file, which is then replaced."""
    stream = classifier.stream()
    if path.exists():
        stream.load(path)
    for image in images:
        try:
            yield stream.predict(image)
        except ImageError as error:
            yield error
    stream.save(path)


def _workers(classifier: "Classifier", options: PredictOptions, *, images: int) -> tuple[int, int]:
    """Return how many processes predict, and the threads of each; on an accelerator they render."""
    from dtpt.runs.resources import Machine, choose_resources, describe_work

    device = classifier.model.device.type
    views = classifier.predictor.recipe_for([classifier.method]).count
    chosen = choose_resources(
        Machine(usable_cores(), free_memory(), device),
        describe_work(
            classifier.model,
            images=images,
            views=views,
            classes=len(classifier.classes),
            is_shippable=True,
        ),
        workers=options.workers,
    )
    is_auto = options.workers == "auto" and device != "cpu"
    workers = 1 + chosen.view_workers if is_auto else chosen.workers
    return workers, choose_threads(options.threads, workers=workers)


def _table(rows: Sequence[dict[str, Any]], method: str) -> Table:
    has_sets = any("prediction_set" in row for row in rows)
    second = ("prediction set", "calibrated") if has_sets else ("zero-shot", "confidence")
    titles = (method, "confidence", *second)
    columns = tuple(Column(title, is_text=k % 2 == 0) for k, title in enumerate(titles))
    lines = []
    for row in rows:
        if "error" in row:
            cells = [Cell(row["error"], is_missing=True), Cell(""), Cell(""), Cell("")]
        else:
            label = f"abstains ({row['label']}?)" if row.get("abstained") else row["label"]
            cells = [Cell(label), Cell(f"{row['confidence']:.1%}"), *map(Cell, _second(row))]
        lines.append(Row(row["image"], tuple(cells)))
    return Table("", columns, tuple(lines), heading="image")


def _second(row: dict[str, Any]) -> tuple[str, str]:
    """Return the prediction set and the calibrated confidence, or what zero-shot predicts."""
    if "prediction_set" not in row:
        return row["zero_shot"]["label"], f"{row['zero_shot']['confidence']:.1%}"
    names = row["prediction_set"]
    more = f" and {len(names) - SHOWN_CLASSES} more" if len(names) > SHOWN_CLASSES else ""
    return ", ".join(names[:SHOWN_CLASSES]) + more, f"{row['calibrated_confidence']:.1%}"
