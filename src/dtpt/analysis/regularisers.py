"""One direction? The first steps of all regularisers on many class lists, without an image.

Two regularisers whose gradients at the initial context point the same way take the same first step,
up to their λ. On the sphere, the distance to the centroid (C-TPT), the norm of a row of the Gram
matrix (O-TPT) and the part along the mean (aligned D-TPT) all change fastest along the great circle
away from the mean text feature; only how much each class counts differs.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from dtpt.analysis.study import (
    Facts,
    Names,
    Origin,
    ShiftOptions,
    Study,
    fact_text,
    with_shift,
)
from dtpt.errors import PromptError
from dtpt.machine import package_version
from dtpt.methods import ResolvedMethod, resolve_method
from dtpt.runs.progress import make_reporter
from dtpt.tables import Table, signed_text, text_table

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.tuning import Tuner

PAIRS_PER_TABLE = 4


class RegularisersOptions(ShiftOptions):
    """The options of `dtpt analyze regularisers`."""

    dataset: Annotated[
        Names,
        Field(
            description="Data sets or groups whose class lists are taken; images of the paper's "
            "sets are not needed.",
        ),
    ] = ("all",)
    method: Annotated[
        Names, Field(min_length=2, description="Methods with a regulariser, comma-separated.")
    ] = ("c-tpt", "o-tpt", "a-tpt", "d-tpt:aligned", "d-tpt", "random-tpt")
    output: Annotated[Path, Field(description="Folder of regularisers.json.")] = Path(
        "runs/regularisers"
    )
    quiet: Annotated[bool, Field(description="Show no progress.")] = False


def study_regularisers(options: RegularisersOptions, *, model: "Clip | None" = None) -> Study:
    """Compare the gradients of regularisers at the initial context, class list by class list."""
    from dtpt.data.loading import expand_names
    from dtpt.runs.worker import torch_threads

    options = with_shift(options, model)
    is_own = options.model.startswith("features:") and "dataset" not in options.model_fields_set
    names = () if is_own else expand_names(options.dataset)
    lists = {name: class_list(name) for name in names}  # before weights
    methods = [resolve_method(name) for name in options.method]
    loaded = model or options.load()
    if is_own and loaded.fixed_text is not None:
        lists = {"the model's": loaded.fixed_text.classes}
    pairs, left_out, title = [], [], "class lists"
    reporter = make_reporter(quiet=options.quiet)
    reporter.start(title, len(lists), done=0)
    with closing(reporter), torch_threads(options.threads or 1):
        for name, classes in lists.items():
            try:
                tuner = _tuner(loaded, classes, options=options)
            except PromptError as error:
                left_out.append({"class_list": name, "reason": str(error)})
            else:
                facts = {"class_list": name, "classes": len(classes)}
                pairs += [facts | pair for pair in gradient_agreement(tuner, methods)]
            reporter.advance(title)
    if not pairs:
        raise PromptError(left_out[0]["reason"])
    where = (options.model, loaded.fingerprint, (), options.template)
    origin = Origin(package_version("dtpt"), *where)
    return Study("regularisers", origin, facts={"pairs": pairs, "left_out": left_out})


def gradient_agreement(tuner: "Tuner", methods: Sequence[ResolvedMethod]) -> Iterator[Facts]:
    """Yield the cosine of the gradients and the fraction of equal signs, pair by pair."""
    gradients = {
        method.method.name: tuner.regulariser_gradient(method.method).detach().cpu().double()
        for method in methods
    }
    for (first, one), (second, other) in combinations(gradients.items(), 2):
        lengths = float(one.norm() * other.norm())
        yield {
            "first": first,
            "second": second,
            "cosine": float(one.flatten() @ other.flatten()) / lengths if lengths > 0 else 0.0,
            "same_signs": float((one.sign() == other.sign()).double().mean()),
        }


def class_list(name: str) -> tuple[str, ...]:
    """Return the class names of a data set as they enter the prompt.

    The lists of the catalogue's sets are known without their images.

    Example:
        >>> class_list("eurosat")[0]
        'Annual Crop Land'
    """
    from dtpt.data import load_dataset
    from dtpt.data.catalog import NAMED_SETS, catalog_entry
    from dtpt.data.dataset import prompt_name

    if name in NAMED_SETS:
        return tuple(prompt_name(raw) for raw in catalog_entry(name).classes)
    return load_dataset(name).classes


def _tuner(model: "Clip", classes: tuple[str, ...], *, options: RegularisersOptions) -> "Tuner":
    from dtpt.clip.prompts import load_context
    from dtpt.prediction import Predictor

    context = load_context(options.context) if options.context else None
    return Predictor(model, classes, template=options.template, context=context).tuner


def regulariser_tables(study: Study) -> Iterator[Table | str]:
    """Yield the tables of all pairs of regularisers, a few pairs side by side."""
    origin = study.origin
    by_list: dict[tuple[str, str], dict[str, str]] = {}
    for fact in study.facts["pairs"]:
        text = f"{signed_text(fact['cosine'], 3)} {fact_text(fact['same_signs'])}"
        row = by_list.setdefault((fact["class_list"], str(fact["classes"])), {})
        row[f"{fact['first']} ~ {fact['second']}"] = text
    yield f"{origin.model}, {origin.template!r}: cosine, and fraction of equal signs"
    pairs = list(next(iter(by_list.values())))
    for start in range(0, len(pairs), PAIRS_PER_TABLE):
        chosen = pairs[start : start + PAIRS_PER_TABLE]
        rows = [(*names, *(row[pair] for pair in chosen)) for names, row in by_list.items()]
        yield text_table("", ("class list", "classes", *chosen), rows=rows)
    for fact in study.facts["left_out"]:
        yield f"Without {fact['class_list']}: {fact['reason']}"
    yield "50 % of the signs agree by chance; a cosine of 1 is the same step up to its λ."
