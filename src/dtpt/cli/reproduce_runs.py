"""The runs behind `dtpt reproduce`: one for each model, data set, and choice of methods and seeds.

A table can be done in parts and in any order, because each part has a folder of its own:

    OUTPUT/TARGET/MODEL/DATASET/all                as planned
    OUTPUT/TARGET/MODEL/DATASET/tpt_seed=0         a part of the methods and seeds
    OUTPUT/TARGET/MODEL/DATASET-partly/all         a set that lacks pictures
    OUTPUT/TARGET/limit=16,views=8/MODEL/...       settings that are not the paper's
"""

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtpt.options import EvalOptions

if TYPE_CHECKING:
    from dtpt.report.paper.targets import PlannedRun, Target

# options that decide numbers, beside what a target decides itself
SETTINGS = (
    *("limit", "views", "steps", "learning_rate", "weight_decay", "rho", "entropy"),
    *("precision", "activation"),
)
PARTLY_HERE = "-partly"
LONGEST_NAME = 100  # of a folder


def part_options(
    options: EvalOptions, run: "PlannedRun", *, datasets: tuple[str, ...]
) -> EvalOptions:
    """Return what is evaluated: the plan, with what was given instead of what was planned."""
    given = {n: value for n, value in options.given().items() if n in EvalOptions.model_fields}
    decided: dict[str, Any] = {
        "model": run.model,
        "dataset": datasets,
        "template": run.template,
        "context": given.get("context") if run.needs_context else None,
    }
    if "method" in given:
        decided["method"] = run.methods  # narrowed already, with the weights of the target
    planned = {"method": run.methods, "seed": run.seeds, "views": run.views}
    return EvalOptions.parse({**planned, **given, **decided})


def target_folder(output: Path, target: "Target", *, options: EvalOptions) -> Path:
    """Return the folder of a target; with settings that are not its own, one inside it."""
    changed = []
    for name in SETTINGS:
        usual = target.runs[0].views if name == "views" else EvalOptions.model_fields[name].default
        value = getattr(options, name)
        changed += [] if value == usual else [f"{name}={value}"]
    return output / target.name / _name(",".join(changed))


def part_folder(folder: Path, target: "Target", *, run: "PlannedRun", options: EvalOptions) -> Path:
    """Return the folder of one run of one data set inside the target's.

    Args:
        folder: From `target_folder`.
        target: The whole, which knows all methods and seeds.
        run: The part of it that is run.
        options: What is evaluated; of a set that lacks pictures with `partial`.
    """
    (dataset,) = options.dataset
    whole = next(own for own in target.runs if own.name == run.name)
    words = [] if options.method == whole.methods else [",".join(options.method)]
    if options.seed != whole.seeds:
        words.append(f"seed={','.join(map(str, options.seed))}")
    suffix = PARTLY_HERE if options.partial else ""
    return folder / run.name / f"{dataset}{suffix}" / _name("_".join(words) or "all")


def stored_runs(folder: Path, target: "Target") -> list[Path]:
    """Return the folders of all runs of a target that exist; a whole set hides a part of it."""
    found = []
    for run in target.runs:
        for dataset in run.datasets:
            for name in (dataset, dataset + PARTLY_HERE):
                stores = sorted((folder / run.name / name).glob("*/run.sqlite"))
                found += [store.parent for store in stores]
                if stores:
                    break
    return found


def _name(words: str) -> str:
    """Return a name that every file system takes.

    Example:
        >>> _name("o-tpt:printed@2_seed=0")
        'o-tpt-printed@2_seed=0'
    """
    name = re.sub(r"[^\w.,=@+-]", "-", words)
    return name if len(name) <= LONGEST_NAME else hashlib.sha256(words.encode()).hexdigest()[:16]
