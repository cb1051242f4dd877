"""One direction? The first steps of all regularisers on many class lists, without a picture."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtpt.analysis.gradients import GradientAgreement, gradient_agreement
from dtpt.analysis.regularisers_options import RegularisersOptions
from dtpt.clip.loading import load_model
from dtpt.data import load_dataset
from dtpt.data.dataset import prompt_name
from dtpt.data.loading import expand_names
from dtpt.data.named_sets import NAMED_SETS, catalog_entry
from dtpt.methods import ResolvedMethod, resolve_method
from dtpt.prompts import PromptSet, load_context
from dtpt.runs.progress import make_reporter
from dtpt.runs.replica import torch_threads
from dtpt.tuning import Tuner

if TYPE_CHECKING:
    from dtpt.clip.model import Clip


@dataclass(frozen=True)
class RegulariserStudy:
    """How the regularisers' first steps agree on every class list.

    Attributes:
        model: name of the model.
        fingerprint: of the model.
        template: the prompt.
        lists: one entry per class list.
    """

    model: str
    fingerprint: str
    template: str
    lists: tuple[GradientAgreement, ...]


def study_regularisers(
    options: RegularisersOptions, *, model: "Clip | None" = None
) -> RegulariserStudy:
    """Compare the gradients of regularisers at the initial context, class list by class list.

    Args:
        options: model, class lists and methods.
        model: used instead of loading `options.model`.
    """
    names = expand_names(options.dataset)
    lists = {name: class_list(name) for name in names}  # wrong names are told first
    methods = [resolve_method(name) for name in options.method]
    loaded = model if model is not None else _load(options)
    with ExitStack() as stack:
        stack.enter_context(torch_threads(options.threads or 1))
        told = make_reporter(quiet=options.quiet)
        stack.callback(told.close)
        title = "class lists"
        told.start(title, len(lists), done=0)
        found = []
        for agreement in _agreements(loaded, lists, options=options, methods=methods):
            found.append(agreement)
            told.advance(title)
    return RegulariserStudy(options.model, loaded.fingerprint, options.template, tuple(found))


def class_list(name: str) -> tuple[str, ...]:
    """Return the class names of a data set as they enter the prompt.

    The lists of the catalogue's sets are known without their pictures.

    Example:
        >>> class_list("eurosat")[0]
        'Annual Crop Land'
    """
    if name in NAMED_SETS:
        return tuple(prompt_name(raw) for raw in catalog_entry(name).classes)
    return load_dataset(name).classes


def _load(options: RegularisersOptions) -> "Clip":
    return load_model(
        options.model,
        device=options.device,
        activation=options.activation,
        precision=options.precision,
    )


def _agreements(
    model: "Clip",
    lists: dict[str, tuple[str, ...]],
    *,
    options: RegularisersOptions,
    methods: Sequence[ResolvedMethod],
) -> Iterator[GradientAgreement]:
    context = load_context(options.context) if options.context else None
    for name, classes in lists.items():
        prompts = PromptSet.build(model, classes, template=options.template, context=context)
        tuner = Tuner(model, prompts)
        yield gradient_agreement(tuner, methods, model=options.model, class_list=name)
