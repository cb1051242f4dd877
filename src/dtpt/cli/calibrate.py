"""`dtpt calibrate`: from labelled rows of a run to a promise about new pictures."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dtpt.cli.check_promises import check_flags, checked, show_checked
from dtpt.cli.flags import AsJson
from dtpt.files import printable

if TYPE_CHECKING:
    from dtpt.calibration import Promise


def calibrate(
    run: Path,
    *,
    method: str,
    output: Path | None = None,
    dataset: str | None = None,
    coverage: float = 0.9,
    error: float = 0.05,
    confidence: float = 0.95,
    sets: Literal["lac", "aps"] = "lac",
    seed: int | None = None,
    check: int | None = None,
    figure: Path | None = None,
    as_json: AsJson = False,
) -> None:
    """Promise calibrated confidence, prediction sets and rare errors for one method and class list.

    Fits a temperature, prediction sets and a threshold for answers on the labelled pictures of a
    run. `dtpt predict --calibration FILE` and `Classifier(promise=FILE)` use the file; it holds for
    new pictures of the same kind, and for exactly this model, method and class list.

    Args:
        run: The run's folder (`dtpt eval`).
        method: As in the run; with its lambda (d-tpt@100000) if the run has several. With
            +views=auto, the share of views that part of the rows chooses.
        output: The promise file to write; without it the promise is only shown.
        dataset: Of the run, if it has several.
        coverage: Share of new pictures whose set shall hold the true class.
        error: Share of wrong answers, among the given ones, that is not to be exceeded.
        confidence: With which errors are not exceeded.
        sets: lac (the smallest on average) or aps (larger where the model is unsure).
        seed: Of the views, if the run has several.
        check: Make no promise; instead divide the rows that many times at random, fit on one half,
            judge the other. Takes several methods (comma-separated), and all sets of the run.
        figure: With --check, draw what it shows into this .svg file.
        as_json: Print JSON instead.
    """
    from dtpt.calibration import Levels
    from dtpt.runs import open_run
    from dtpt.runs.promised import chosen_cell, promise_of

    check_flags(check=check, figure=figure, output=output)
    levels = Levels.checked(coverage=coverage, error=error, confidence=confidence)
    with open_run(run) as opened:
        if check is not None:
            found = checked(opened, method, levels=levels, splits=check, dataset=dataset, seed=seed)
            show_checked(found, figure=figure, as_json=as_json)
            return
        cell, choice = chosen_cell(opened, method, dataset=dataset, seed=seed)
        promise = promise_of(opened, cell, levels=levels, sets=sets, choice=choice)
    if output is not None:
        promise.save(output)
    if as_json:
        print(json.dumps(promise.document(), indent=2, ensure_ascii=False))
    else:
        _print(promise, output)


def _print(promise: "Promise", output: Path | None) -> None:
    """Print what is promised, on what it rests, and when it does not hold."""
    basis, subject = promise.basis, promise.subject
    rest = basis.pictures - basis.temperature_pictures
    name = subject.method if subject.lambda_ is None else f"{subject.method}@{subject.lambda_:.10g}"
    print(f"{name}, {subject.model}, {len(subject.classes)} classes, {basis.dataset}")
    print(
        f"{basis.pictures:,} labelled pictures: {basis.temperature_pictures:,} for the temperature "
        f"({promise.fit.temperature:.3f}), {rest:,} for sets and threshold."
    )
    if basis.choice is not None:
        print(f"Chosen: {basis.choice}.")
    for sentence in promise.promised:
        print(f"* {sentence}")
    for remark in promise.remarks:
        print(f"Note: {remark}")
    print(f"If: {promise.assumption}")
    print(f"Otherwise: {promise.otherwise}")
    if output is not None:
        print(f"Written to {printable(output)}.")
