"""From options to something that can run: the model, the data sets, the methods, the spec."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dtpt.clip.prompts import context_digest, load_context, placeholder_template
from dtpt.data import Dataset, Sample, load_dataset
from dtpt.data.loading import expand_names
from dtpt.errors import RunError
from dtpt.machine import describe_machine, package_version
from dtpt.methods import ResolvedMethod, expand_views, parse_label, resolve_method
from dtpt.options import EvalOptions
from dtpt.prediction.classifier import PICTURES_FOR_A_WEIGHT
from dtpt.runs.orders import TaskOrder, WorkOrder
from dtpt.runs.resources import Resources, choose_resources, describe_work, this_machine
from dtpt.runs.spec import DatasetSpec, MethodSpec, ModelSpec, RunSpec
from dtpt.tuning import TuningSettings, views_needed
from dtpt.views import ViewRecipe

if TYPE_CHECKING:
    from dtpt.clip.model import Clip


@dataclass(frozen=True)
class Task:
    """One data set of a run with what is evaluated on it.

    Attributes:
        dataset: The pictures to evaluate, after the limit.
        methods: What is evaluated.
        recipe: How views are made.
        examples: Pictures from which a λ is found, where a method asks for that (`@auto`); chosen
            by their ids from the whole set, whatever the limit.
    """

    dataset: Dataset
    methods: tuple[ResolvedMethod, ...]
    recipe: ViewRecipe
    examples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Setup:
    """Everything a run needs, resolved and checked before any work.

    Attributes:
        model: The model.
        tasks: The data sets.
        context: (n, W) initial context instead of the template's words.
        settings: Optimiser and selection.
        spec: What decides the numbers.
        can_leave: Whether other processes can load the same model, methods and pictures.
    """

    model: "Clip"
    tasks: tuple[Task, ...]
    context: Tensor | None
    settings: TuningSettings
    spec: RunSpec
    can_leave: bool = True


def prepare(
    options: EvalOptions,
    *,
    model: "Clip | None" = None,
    datasets: Sequence[Dataset] | None = None,
) -> Setup:
    """Resolve names, load the model and list the data sets.

    Args:
        options: What the user asks for.
        model: Used instead of loading `options.model`.
        datasets: Used instead of loading `options.dataset`.
    """
    full = list(datasets) if datasets is not None else _load_datasets(options)
    for dataset in full:  # wrong names are told before weights are loaded
        expand_methods(options.method, options.lambda_, protocol=dataset.protocol)
    loaded = model if model is not None else _load_model(options)
    if not loaded.fingerprint:
        raise RunError("The model has no fingerprint, so its results could not be told apart.")
    context = load_context(options.context) if options.context else None
    tasks = tuple(_task(dataset, options) for dataset in full)
    spec = RunSpec(
        model=ModelSpec(name=options.model, fingerprint=loaded.fingerprint),
        datasets=tuple(
            _describe(task, dataset, options=options)
            for task, dataset in zip(tasks, full, strict=True)
        ),
        seeds=options.seed,
        template=options.template if context is None else placeholder_template(len(context)),
        context=None if context is None else context_digest(context),
        tuning=options.tuning.model_dump(mode="json"),
        precision=loaded.precision,
        batch=options.batch,
        code_version=package_version("dtpt"),
    )
    is_ours = model is not None or datasets is not None
    can_leave = not is_ours and can_travel([task.methods for task in tasks])
    return Setup(loaded, tasks, context, options.tuning, spec, can_leave)


def can_travel(value: object) -> bool:
    """Tell whether a process that knows nothing of the caller's script could be sent a value.

    Example:
        >>> can_travel([1, "two"]), can_travel(lambda: 3)
        (True, False)
    """
    try:
        return b"__main__" not in pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


def needed_resources(setup: Setup, options: EvalOptions, *, pictures: int) -> Resources:
    """Choose replicas, threads and view-making processes for what is left to do."""
    work = describe_work(
        setup.model,
        pictures=pictures,
        views=max(views_needed(task.methods, task.recipe.count) for task in setup.tasks),
        classes=max(len(task.dataset.classes) for task in setup.tasks),
        can_leave=setup.can_leave,
    )
    return choose_resources(
        this_machine(setup.model.device.type),
        work,
        replicas=options.replicas,
        workers=options.workers,
        threads=options.threads,
    )


def resources_here(setup: Setup, options: EvalOptions) -> Resources:
    """Choose threads and view-making processes for work on all pictures in this process."""
    pictures = sum(len(task.dataset) for task in setup.tasks)
    return needed_resources(replace(setup, can_leave=False), options, pictures=pictures)


def work_order(setup: Setup, options: EvalOptions, *, resources: Resources) -> WorkOrder:
    """Write down what a replica needs to know."""
    return WorkOrder(
        model=options.model,
        fingerprint=setup.model.fingerprint,
        device=str(setup.model.device),
        activation=options.activation,
        precision=options.precision,
        threads=resources.threads,
        template=setup.spec.template,
        context=None if setup.context is None else setup.context.detach().cpu().numpy(),
        settings=setup.settings,
        tasks=tuple(
            TaskOrder(task.dataset.name, task.dataset.classes, task.methods, task.recipe)
            for task in setup.tasks
        ),
        workers=resources.workers,
        cache=options.cache,
        keep=options.keep,
        batch=options.batch,
    )


def _load_datasets(options: EvalOptions) -> list[Dataset]:
    return [
        load_dataset(
            name,
            data_root=options.data_root,
            presentation=options.presentation,
            partial=options.partial,
        )
        for name in expand_names(options.dataset)
    ]


def _load_model(options: EvalOptions) -> "Clip":
    from dtpt.clip.loading import load_model

    return load_model(
        options.model,
        device=options.device,
        activation=options.activation,
        precision=options.precision,
    )


def expand_methods(
    names: Sequence[str], lambdas: Sequence[float], *, protocol: str
) -> tuple[ResolvedMethod, ...]:
    """Resolve method names; `lambdas` apply, in all combinations, to those that take one.

    A name with its own `@lambda` keeps it, and a method without regulariser has none. `+views=auto`
    stands for all shares.
    """
    found: dict[tuple[str, float | None], ResolvedMethod] = {}
    for name in (one for written in names for one in expand_views(written)):
        plain = resolve_method(name, protocol=protocol)
        takes_lambda = plain.lambda_ is not None and not parse_label(name).rule
        choices = lambdas if lambdas and takes_lambda else (plain.lambda_,)
        for value in choices:
            resolved = resolve_method(name, lambda_=value, protocol=protocol)
            found.setdefault((resolved.name, resolved.lambda_), resolved)
    return tuple(found.values())


def _task(dataset: Dataset, options: EvalOptions) -> Task:
    methods = expand_methods(options.method, options.lambda_, protocol=dataset.protocol)
    asks = any(method.needs_lambda_search for method in methods)
    return Task(
        dataset=dataset if options.limit is None else dataset.limited(options.limit),
        methods=methods,
        recipe=ViewRecipe(count=options.views, augmix=dataset.augmix),
        examples=tuple(dataset.limited(PICTURES_FOR_A_WEIGHT).samples) if asks else (),
    )


def _describe(task: Task, full: Dataset, *, options: EvalOptions) -> DatasetSpec:
    return DatasetSpec(
        name=full.name,
        fingerprint=full.fingerprint,
        classes=len(full.classes),
        samples=len(task.dataset),
        whole=full.whole if full.whole is not None else len(full),
        family=full.family,
        presentation=options.presentation,
        limit=options.limit,
        methods=tuple(
            MethodSpec(name=method.name, lambda_=method.lambda_) for method in task.methods
        ),
        views=task.recipe.model_dump(mode="json"),
    )


def describe_environment(model: "Clip", threads: int) -> dict[str, Any]:
    """Return what of this machine can change a number in its last bits."""
    return {**describe_machine(), "device": _device_name(model.device), "threads": threads}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return device.type
