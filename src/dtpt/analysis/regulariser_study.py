"""One direction? The first steps of all regularisers on many class lists, without a picture."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtpt.analysis.gradients import GradientAgreement, gradient_agreement
from dtpt.analysis.regularisers_options import RegularisersOptions
from dtpt.clip.loading import load_model
from dtpt.clip.prompts import PromptSet, load_context
from dtpt.data import load_dataset
from dtpt.data.catalog import NAMED_SETS, catalog_entry
from dtpt.data.dataset import prompt_name
from dtpt.data.loading import expand_names
from dtpt.errors import PromptError
from dtpt.methods import resolve_method
from dtpt.runs.progress import make_reporter
from dtpt.runs.worker import torch_threads
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
        left_out: class lists whose prompts the model cannot take, with the reason.
    """

    model: str
    fingerprint: str
    template: str
    lists: tuple[GradientAgreement, ...]
    left_out: dict[str, str]


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
    found: list[GradientAgreement] = []
    left_out: dict[str, str] = {}
    with ExitStack() as stack:
        stack.enter_context(torch_threads(options.threads or 1))
        told = make_reporter(quiet=options.quiet)
        stack.callback(told.close)
        title = "class lists"
        told.start(title, len(lists), done=0)
        for name, classes in lists.items():
            try:
                tuner = Tuner(loaded, _prompts(loaded, classes, options=options))
            except PromptError as error:
                left_out[name] = str(error)
            else:
                found.append(
                    gradient_agreement(tuner, methods, model=options.model, class_list=name)
                )
            told.advance(title)
    if not found:
        raise PromptError(next(iter(left_out.values())))
    return RegulariserStudy(
        options.model, loaded.fingerprint, options.template, tuple(found), left_out
    )


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


def _prompts(model: "Clip", classes: tuple[str, ...], *, options: RegularisersOptions) -> PromptSet:
    context = load_context(options.context) if options.context else None
    return PromptSet.build(model, classes, template=options.template, context=context)
