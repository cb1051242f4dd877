"""`dtpt doctor`: facts for a bug report, a test of this installation, and everything about a run.

Of the environment only the names of our own variables are printed, and paths begin with `~` where
they are in the user's home.
"""

import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtpt.cli.exits import FAILED, PARTIAL
from dtpt.cli.flags import AsJson
from dtpt.cli.output import emit
from dtpt.errors import DatasetError, RunError
from dtpt.files import printable
from dtpt.machine import free_memory, package_version, processor_name, usable_cores
from dtpt.tables import text_table

if TYPE_CHECKING:
    from PIL.Image import Image

    from dtpt.prediction import Classifier
    from dtpt.runs import Run

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:.*extra\s*==\s*[\"'](?P<extra>[\w.-]+))?")
_REMEDIES = {
    "cache": "features are computed again each time. DTPT_CACHE names another folder.",
    "settings": "models cannot be named. DTPT_CONFIG names another folder.",
}
# The self-test: a few drawings, two methods, the engine beside Algorithm 1.
MOST_SECONDS = 20.0
LARGEST_DIFFERENCE = 1e-4  # of a probability: rounding gives less than 1e-6
METHODS = ("tpt", "d-tpt")
CLASSES = ("bicycle", "camel", "key", "owl", "pizza", "sailboat", "umbrella", "violin")
DRAWINGS = {"1F42B": "camel", "1F355": "pizza", "1F989": "owl", "1F511": "key"}


def doctor(
    run: Path | None = None, /, *, no_self_test: bool = False, as_json: AsJson = False
) -> None:
    """Describe installation and machine for a bug report, and test for at most 20 seconds.

    With a run: check everything that is stored in it. No value of an environment variable is shown.
    Exit code 0: no problem; 1: something limits the use of dtpt, or of the run; 2: the self-test
    failed, a needed package is missing, or the run is damaged.

    Args:
        run: Folder or SQLite file of a run to check.
        no_self_test: Only describe.
    """
    facts = examine(with_self_test=not no_self_test) if run is None else examine_run(run)
    described = {name: value for name, value in facts.items() if name not in ("errors", "warnings")}
    rows = [(name, _text(value)) for name, value in described.items()]
    problems = [f"error: {text}" for text in facts["errors"]]
    problems += [f"warning: {text}" for text in facts["warnings"]]
    table = text_table("", ("fact", "value"), rows=rows)
    emit(facts, table, *(problems or ["No problems found."]), as_json=as_json, framed=False)
    if problems:
        sys.exit(FAILED if facts["errors"] else PARTIAL)


def examine(*, with_self_test: bool) -> dict[str, Any]:
    """Collect the facts and run the self-test; nothing that is broken ends it."""
    from dtpt.clip.loading.names import config_folder
    from dtpt.prediction.cache import cache_folder, list_shards

    packages, extras = package_versions()
    errors = [f"The package {name} is missing." for name in packages if not packages[name]]
    computing = _attempt(describe_computing, errors)
    tested = _attempt(self_test, errors) if with_self_test and computing else None
    folders = {"cache": _folder(cache_folder()), "settings": _folder(config_folder())}
    warnings = [
        f"{folder['folder']} is not writable; {_REMEDIES[name]}"
        for name, folder in folders.items()
        if not folder["writable"]
    ]
    if tested:
        (errors if tested["status"] == "failed" else warnings).extend(tested["problems"])
    return {
        "dtpt": package_version("dtpt"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_version()} at {_home_path(Path(sys.executable))}",
        "processor": processor_name(),
        "cores": usable_cores(),
        "free_memory": _gigabytes(free_memory()),
        "packages": packages,
        "extras": extras,
        "computing": computing,
        **folders,
        "cache_size": _gigabytes(sum(shard.size for shard in list_shards(cache_folder()))),
        "variables": sorted(name for name in os.environ if name.startswith("DTPT_")),
        "self_test": tested or "not run",
        "warnings": warnings,
        "errors": errors,
    }


def examine_run(path: Path) -> dict[str, Any]:
    """Read everything that is stored at a path, and collect all that is wrong with it."""
    from dtpt.runs.integrity import problems_of_cell, problems_of_tables
    from dtpt.runs.reading import Run
    from dtpt.runs.shards import store_files

    facts: dict[str, Any] = {"errors": [], "warnings": []}
    for file in store_files(path):
        name = _home_path(file)
        try:
            with Run(file, is_trusted=True) as run:
                problems = [text for (text,) in run.query("PRAGMA integrity_check(20)")]
                problems = [f"a damaged page ({text})" for text in problems if text != "ok"]
                problems += problems_of_tables(run)
                for cell in run.cells if not problems else ():
                    problems += problems_of_cell(run, cell, is_deep=True)
                facts["errors"] += [f"{name} has {problem}." for problem in problems]
                if not problems:
                    facts[name] = _describe_run(run, facts["warnings"])
        except RunError as error:
            facts["errors"].append(str(error))
    return facts


def _describe_run(run: "Run", warnings: list[str]) -> dict[str, Any]:
    counts = run.counts()
    expected = {entry.name: entry.samples for entry in run.spec.datasets}
    missing = sum(expected[cell.dataset] - sum(pair) for cell, pair in counts.items())
    failures, name = run.failures(), _home_path(run.path)
    if missing:
        warnings.append(f"{name} lacks {missing:,} rows: it is unfinished, or a shard.")
    if failures:
        warnings.append(f"{name}: {len(failures):,} images could not be read.")
    return {
        "dtpt": run.spec.code_version,
        "model": run.spec.model.name,
        "run": run.spec.hash,
        "sessions": len(run.sessions()),
        "cells": len(run.cells),
        "samples": sum(len(run.samples(name)) for name in run.datasets),
        "rows": sum(ok for ok, _ in counts.values()),
        "failed_rows": sum(failed for _, failed in counts.values()),
        "missing_rows": missing,
    }


def _attempt(function: Callable[[], dict[str, Any]], errors: list[str]) -> dict[str, Any] | None:
    try:
        return function()
    except Exception as error:  # whatever is broken belongs into the report
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        errors.append(f"{function.__name__} failed: {reason}")
        return None


def package_versions() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return versions of what dtpt needs, and of the packages of each extra; "" if absent."""
    try:
        requirements = metadata.requires("dtpt") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        requirements = []
    needed: dict[str, str] = {}
    extras: dict[str, dict[str, str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, requirements)):
        group = extras.setdefault(match["extra"], {}) if match["extra"] else needed
        group[match["name"]] = package_version(match["name"]).replace("unknown", "")
    return needed, extras


def describe_computing() -> dict[str, Any]:
    """Return devices with their names, what `--device auto` means, and torch's threads."""
    import torch

    from dtpt.clip.device import choose_device, present_devices

    devices = [
        f"{name} ({torch.cuda.get_device_name(name)})" if name.startswith("cuda") else name
        for name in present_devices()
    ]
    automatic = str(choose_device("auto"))
    return {"devices": devices, "automatic": automatic, "threads": torch.get_num_threads()}


def _folder(folder: Path) -> dict[str, Any]:
    """Describe a folder that dtpt writes to, by the nearest one above it that exists."""
    present = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    return {
        "folder": _home_path(folder),
        "writable": os.path.isdir(present) and os.access(present, os.W_OK | os.X_OK),
        "free": _gigabytes(shutil.disk_usage(present).free),
    }


def _home_path(path: Path) -> str:
    try:
        return printable(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):  # elsewhere, or there is no home
        return printable(path)


def self_test(most_seconds: float = MOST_SECONDS) -> dict[str, Any]:
    """Classify a few drawings with the embedded model, on one thread of the CPU.

    Every label must be the expected one, and the engine must agree with Algorithm 1. Without the
    package of drawings a generated image is used, whose label is not checked.

    Args:
        most_seconds: No further image is started after that.
    """
    from dtpt.clip.loading import load_model
    from dtpt.prediction import Classifier
    from dtpt.runs.worker import torch_threads

    started = time.monotonic()
    differences: list[float] = []
    wrong: list[str] = []
    left_out: list[str] = []
    with torch_threads(1):
        model = load_model("pocket", device="cpu")
        classifiers = [Classifier(model, CLASSES, method=name, views=8) for name in METHODS]
        for image, expected in _images(left_out):
            if time.monotonic() - started > most_seconds:
                left_out.append(f"The self-test was stopped after {most_seconds:g} seconds.")
                break
            for classifier in classifiers:
                name = classifier.method.name
                label, difference = _compare(classifier, image)
                differences.append(difference)
                if expected is not None and label != expected:
                    wrong.append(f"{name} predicts {label!r} for the drawing of a {expected}.")
                if not difference <= LARGEST_DIFFERENCE:  # also NaN
                    wrong.append(f"{name}: engine and Algorithm 1 differ by {difference:.1e}.")
    return {
        "status": "failed" if wrong else "partial" if left_out else "passed",
        "answers": len(differences),
        "seconds": round(time.monotonic() - started, 2),
        "largest_difference": max(differences, default=0.0),
        "problems": [*wrong, *left_out],
    }


def _images(left_out: list[str]) -> "Iterator[tuple[Image, str | None]]":
    """Yield images with their class; what cannot be drawn is noted in `left_out`."""
    import numpy as np
    from PIL import Image

    from dtpt.data.openmoji import OpenMojiRef, require_packages

    try:
        require_packages()
    except DatasetError as error:
        left_out.append(f"No drawing was classified. {error}")
        noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
        yield Image.fromarray(noise), None
        return
    for codepoint, name in DRAWINGS.items():
        yield OpenMojiRef(codepoint, "noisy").open(), name


def _compare(classifier: "Classifier", image: "Image") -> tuple[str, float]:
    """Return the engine's label, and how far its probabilities are from Algorithm 1's."""
    from dtpt.methods.algorithm_1 import algorithm_1

    features = classifier.view_features(image)
    prediction = classifier.tune(features)
    reference = algorithm_1(
        classifier.model, classifier.predictor.prompts, views=features, method=classifier.method
    )
    return prediction.label, float(abs(reference.numpy() - prediction.probabilities).max())


def _text(value: Any) -> str:
    if isinstance(value, dict):
        texts = {key: _text(part) for key, part in value.items()}
        return ", ".join(f"{k} ({t})" if "," in t else f"{k} {t}" for k, t in texts.items())
    text = ", ".join(value) or "none" if isinstance(value, list) else str(value)
    return text or "missing"


def _gigabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.3f} GB"
