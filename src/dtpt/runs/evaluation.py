"""A run from options to stored rows; the same call again resumes.

Every step can be interrupted: a row is in the store when its image is done, and whatever is not in
the store is computed by the next run of the same command. torch is not imported here before the
worker processes, which need it too, have been started.
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dtpt.clip.ensembles import descriptions_label, read_descriptions
from dtpt.data.order import GIVEN, order_digest
from dtpt.errors import OptionError, RunError, short_repr
from dtpt.executors.pool import InlineExecutor, ProcessExecutor, is_shippable, warm_up
from dtpt.executors.process import CAN_START, WorkerProcess, stop
from dtpt.files import AnyPath, as_path, printable
from dtpt.machine import describe_machine, free_memory, package_version, usable_cores
from dtpt.methods import ResolvedMethod, expand_views, parse_label, resolve_method
from dtpt.options import EvalOptions
from dtpt.runs.packing import check_packs, pack_recipe, with_pack_defaults
from dtpt.runs.plan import Plan
from dtpt.runs.progress import Reporter, make_reporter
from dtpt.runs.reading import Run, open_run, session_notes
from dtpt.runs.resources import (
    FEW_IMAGES,
    Machine,
    Resources,
    choose_resources,
    describe_work,
    pack_seconds,
)
from dtpt.runs.schema import archive
from dtpt.runs.shards import Shard, find_shard
from dtpt.runs.spec import DatasetSpec, MethodSpec, ModelSpec, OrderSpec, RunSpec
from dtpt.runs.store import Store

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.clip.model import Clip
    from dtpt.data.dataset import Dataset, Sample
    from dtpt.executors.pool import Executor
    from dtpt.runs.resources import Work
    from dtpt.runs.worker import EvaluatedSet, WorkerSpec

MOST_WARM = 4


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs, resolved and checked before any work."""

    model: "Clip"
    spec: RunSpec
    worker: "WorkerSpec"
    datasets: "tuple[Dataset, ...]"  # after the limit
    examples: "tuple[tuple[Sample, ...], ...]"  # by data set: images on which λ are selected
    is_shippable: bool = True  # other processes can load the same model, methods and images

    def work(self, images: int) -> "Work":
        """Estimate memory and time of evaluating some images."""
        entries = self.worker.datasets
        needed = (e.recipe_for(group) for e in entries for group in e.groups.values())
        views = max(recipe.count for recipe in needed)
        classes = max(len(entry.classes) for entry in entries)
        work = describe_work(
            self.model,
            images=images,
            views=views,
            classes=classes,
            is_shippable=self.is_shippable,
        )
        if any(dataset.pack is None for dataset in self.datasets):
            return work
        methods = max((entry.methods for entry in entries), key=len)
        seconds = pack_seconds(self.model, methods, views=views, classes=classes)
        return replace(work, is_rendered=False, image_seconds=seconds)

    def resources(self, options: EvalOptions, *, images: int) -> Resources:
        """Choose workers, threads and view workers for what is left to do."""
        if options.executor != "local":  # nodes of a cluster choose theirs
            return Resources(0, options.threads or 1, 0)
        devices = self.devices(options)
        return choose_resources(
            Machine(usable_cores(), free_memory(), self.model.device.type, len(devices)),
            self.work(images),
            workers=options.workers,
            view_workers=options.view_workers,
            threads=options.threads,
        )

    def devices(self, options: EvalOptions) -> tuple[str, ...]:
        """Return the devices that workers on this machine take in turn."""
        from dtpt.clip.device import worker_devices

        return worker_devices(options.device, self.model.device)

    def with_resources(self, resources: Resources) -> "WorkerSpec":
        return replace(self.worker, threads=resources.threads, view_workers=resources.view_workers)


def evaluate(
    dataset: "str | Dataset | Sequence[str] | Sequence[Dataset]",
    *,
    model: "str | Clip | None" = None,
    **options: object,
) -> Run:
    """Evaluate methods on data sets and return the stored run; the same call again resumes.

    Args:
        dataset: Names, or data sets in memory.
        model: A name, or a model in memory; the embedded one when not given, and for a feature pack
            what the pack states.
        **options: The options of `dtpt eval`, as `EvalOptions` describes them.

    Raises:
        OptionError: An option is unknown, or its value is invalid.
        RunError: The folder holds another run, or too many images cannot be read.

    Example:
        >>> run = evaluate("openmoji/food-drink", limit=4, method="zero-shot", quiet=True)
        >>> len(run.records()), sorted(run.records()[0])[:3]
        (4, ['cluster', 'confidence', 'correct'])
    """
    loaded = None if model is None or isinstance(model, str) else _checked(model)
    name = model if isinstance(model, str) else loaded and (loaded.name or "model")
    datasets = _datasets_in_memory(dataset)
    names = dataset if datasets is None else tuple(each.name for each in datasets)
    given = {} if name is None else {"model": name}
    chosen = EvalOptions.parse({**options, "dataset": names, **given})
    return run_options(chosen, model=loaded, datasets=datasets)


def _checked(model: object) -> "Clip":
    from dtpt.clip.model import Clip  # imports torch

    if not isinstance(model, Clip):
        raise OptionError(f"model must be a name or come from load_model, not {short_repr(model)}.")
    return model


def _signature() -> inspect.Signature:
    """Return the signature of `evaluate` with every option, for `help` and notebooks."""
    first, model, _ = inspect.signature(evaluate).parameters.values()
    model = model.replace(default=EvalOptions.model_fields["model"].default)
    rest = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.annotation
        )
        for name, f in EvalOptions.model_fields.items()
        if name not in ("dataset", "model")
    ]
    return inspect.Signature([first, model, *rest], return_annotation=Run)


evaluate.__signature__ = _signature()  # type: ignore[attr-defined]


def load_run(path: AnyPath) -> Run:
    """Open a stored run to read it; `Run.records()` and `Run.to_pandas()` give its rows.

    Args:
        path: The folder that `evaluate` or `dtpt eval` wrote, or one SQLite file of it.

    Raises:
        RunError: There is none, it is damaged, or it is still in shards.

    Example:
        >>> made = evaluate(
        ...     "openmoji/food-drink", limit=4, method="zero-shot", output="food", quiet=True
        ... )
        >>> load_run("food").is_complete
        True
    """
    return open_run(as_path(path, "run"))


def run_options(
    options: EvalOptions,
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
    reporter: Reporter | None = None,
) -> Run:
    """Evaluate what options describe; a given model and data sets are used instead of loading.

    Raises:
        RunError: The folder holds another configuration, too many images fail, or the disk is
            full. What was finished is stored.
    """
    shard = find_shard(options.shard)
    path = options.output / shard.file_name
    in_memory = model is not None or datasets is not None  # and in no other process
    threads = {"OMP_NUM_THREADS": str(options.threads or 1)}
    warm = 0 if in_memory else _warm_workers(options)
    with warm_up(warm, module="dtpt.runs.worker", environment=threads) as processes:
        prepared = prepare(options, model=model, datasets=datasets)
        if prepared.spec.order is not None and shard.count > 1:
            raise RunError("Methods that carry state from image to image cannot run in shards.")
        if options.fresh:
            archive(path)
        with Store(path, prepared.spec, shard=str(shard)) as store:
            shown = reporter if reporter is not None else make_reporter(quiet=options.quiet)
            session = _Session(store, prepared, options=options, shard=shard, reporter=shown)
            try:
                session.fill(processes)
            finally:
                shown.close()
    return open_run(path)


def _warm_workers(options: EvalOptions) -> int:
    """Guess how many processes will be needed, before anything is loaded; too many do no harm."""
    is_small = options.limit is not None and options.limit * len(options.dataset) < FEW_IMAGES
    if options.executor != "local" or not CAN_START or is_small:
        return 0
    if options.device not in ("auto", "cpu"):
        return 0
    count = options.workers
    if count == "auto":
        count = usable_cores() // (options.threads or 1) if options.view_workers == "auto" else 1
    return min(count, MOST_WARM) if count > 1 else 0


@dataclass(frozen=True)
class _Session:
    """One process's work on a run."""

    store: Store
    prepared: Prepared
    options: EvalOptions
    shard: Shard
    reporter: Reporter

    def fill(self, warm: list[WorkerProcess]) -> None:
        """Bring everything that is missing into the store."""
        from dtpt.runs.schedule import Scheduler

        self._record_notes()
        with ExitStack() as stack:
            plan = stack.enter_context(Plan(self.prepared, store=self.store, shard=self.shard))
            resources = self.prepared.resources(self.options, images=plan.missing)
            session = self._describe(resources)
            self.store.begin_session(session)
            if not plan.missing:
                return
            for text in session_notes([*self.store.sessions()[:-1], session]):
                self.reporter.note(text)
            executor = self._open_executor(stack, resources, warm=warm, images=plan.missing)
            stack.callback(executor.close)
            Scheduler(
                plan,
                executor,
                prepared=self.prepared,
                store=self.store,
                reporter=self.reporter,
                max_failures=self.options.max_failures,
            ).run()

    def _open_executor(
        self,
        stack: ExitStack,
        resources: Resources,
        *,
        warm: list[WorkerProcess],
        images: int,
    ) -> "Executor":
        from dtpt.runs.worker import RunWorker, torch_threads

        if self.options.executor != "local":
            from dtpt.runs.cluster import open_cluster

            return open_cluster(
                stack,
                self.prepared,
                options=self.options,
                images=images,
                reporter=self.reporter,
                record=self._record_node,
            )
        spec = self.prepared.with_resources(resources)
        try:
            if resources.workers > 1:
                devices = self.prepared.devices(self.options)
                return ProcessExecutor(
                    [replace(spec, device=device) for device in devices],
                    resources.workers,
                    depth=spec.depth,
                    warm=warm,
                    environment={"OMP_NUM_THREADS": str(spec.threads)},
                    remedy="finished images are kept: run the same command with fewer --workers",
                )
            stack.enter_context(torch_threads(spec.threads))
            factory = partial(RunWorker, spec, model=self.prepared.model)
            return InlineExecutor(factory, depth=spec.depth)
        finally:
            stop(warm)  # those that turned out not to be needed

    def _record_notes(self) -> None:
        """Store class names, and show and store the notes of model and data sets."""
        datasets = self.prepared.datasets
        for dataset in datasets:
            self.store.write_classes(dataset.name, dataset.classes)
        model = self.prepared.model
        for name, texts in [
            ("", model.notes),
            *((d.name, (*d.notes, *_same_prompts(model, d.classes))) for d in datasets),
        ]:
            self.store.write_notes(name, texts)
            for text in texts:
                self.reporter.note(f"{name}: {text}" if name else text)

    def _record_node(self, description: Mapping[str, object]) -> None:
        """Store that a node works on the run; note one of another kind than the others."""
        before = session_notes(self.store.sessions())
        self.store.add_node(description)
        for text in session_notes(self.store.sessions()):
            if text not in before:
                self.reporter.note(text)

    def _describe(self, resources: Resources) -> dict[str, object]:
        options = self.options
        return {
            "environment": {
                **describe_machine(),
                "device": _device_name(self.prepared.model),
                "threads": resources.threads,
            },
            "shard": str(self.shard),
            "executor": options.executor.partition("=")[0],
            "workers": resources.workers,
            "view_workers": resources.view_workers,
            "data_root": printable(options.data_root) if options.data_root else None,
            "is_partial": options.partial,
            "command": [printable(word) for word in sys.argv],
        }


def _same_prompts(model: "Clip", classes: Sequence[str]) -> tuple[str, ...]:
    from dtpt.clip.tokenizer import same_prompt_notes, same_prompts

    if model.text is None:  # its text features are given
        return ()
    return same_prompt_notes(same_prompts(classes, map(model.tokenizer.encode, classes)))


def _device_name(model: "Clip") -> str:
    import torch

    if model.device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(model.device)})"
    return model.device.type


def prepare(
    options: EvalOptions,
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
) -> Prepared:
    """Resolve names, load the model and list the data sets."""
    from dtpt.clip.prompts import context_digest, load_context
    from dtpt.runs.worker import WorkerSpec

    full = list(datasets) if datasets is not None else _load_datasets(options)
    options = with_pack_defaults(options, full)
    entries = tuple(_evaluated_set(dataset, options) for dataset in full)  # before weights load
    loaded = model or options.load()
    if not loaded.fingerprint:
        raise RunError("The model has no fingerprint, so its results could not be identified.")
    check_packs(full, entries, model=loaded, seeds=options.seed)
    context = load_context(options.context) if options.context else None
    template = _template(loaded, options, context=context)
    _check_text(loaded, entries, template=template)
    limited = tuple(d if options.limit is None else d.limited(options.limit) for d in full)
    worker = WorkerSpec(
        model=options.model,
        fingerprint=loaded.fingerprint,
        device=str(loaded.device),
        activation=options.activation,
        precision=options.precision,
        max_model_size=options.max_model_size,
        threads=options.threads or 1,
        template=template,
        descriptions=read_descriptions(options.descriptions) if options.descriptions else None,
        context=None if context is None else context.detach().cpu().numpy(),
        settings=options.tuning,
        datasets=entries,
        cache=options.cache,
        keep=options.keep,
        batch=options.batch,
    )
    described = zip(entries, full, limited, strict=True)
    spec = RunSpec(
        model=ModelSpec(name=options.model, fingerprint=loaded.fingerprint),
        datasets=tuple(_describe(*each, options=options) for each in described),
        seeds=options.seed,
        template=worker.template,
        context=None if context is None else context_digest(context),
        tuning=options.tuning.model_dump(mode="json"),
        precision=loaded.precision,
        batch=options.batch,
        order=_order(entries, limited, options=options),
        code_version=package_version("dtpt"),
    )
    in_memory = model is not None or datasets is not None
    return Prepared(
        loaded,
        spec,
        worker,
        limited,
        examples=tuple(_examples(*pair) for pair in zip(full, entries, strict=True)),
        is_shippable=not in_memory and is_shippable([entry.methods for entry in entries]),
    )


def _check_text(model: "Clip", entries: "Sequence[EvaluatedSet]", *, template: str) -> None:
    """Refuse methods and classes that a model without a text tower does not have, before work."""
    from dtpt.tuning.engine import check_text_tower

    for entry in entries:
        check_text_tower(entry.methods, model, template=template)
        if model.fixed_text is not None:
            model.fixed_text.of(entry.classes)


def _template(model: "Clip", options: EvalOptions, *, context: "Tensor | None") -> str:
    if model.fixed_text is not None:
        model.fixed_text.check_prompt(options.prompt(None), context=context)
        return model.fixed_text.prompt
    template = options.prompt(context)
    if options.descriptions is not None:
        return descriptions_label(read_descriptions(options.descriptions))
    return template


def _order(
    entries: "Sequence[EvaluatedSet]", datasets: "Sequence[Dataset]", *, options: EvalOptions
) -> OrderSpec | None:
    stateful = (m.name for entry in entries for m in entry.methods if m.method.is_stateful)
    methods = tuple(dict.fromkeys(stateful))
    if not methods:
        return None
    seeds = (0,) if options.order == GIVEN else options.order_seeds
    ids = order_digest([dataset.samples for dataset in datasets], options.order, seeds=seeds)
    return OrderSpec(kind=options.order, seeds=seeds, methods=methods, digest=ids)


def _examples(dataset: "Dataset", entry: "EvaluatedSet") -> "tuple[Sample, ...]":
    """Return the images on which λ are selected: chosen by their ids from the whole set."""
    from dtpt.prediction.predictor import IMAGES_FOR_LAMBDA

    if not any(method.needs_lambda_search for method in entry.methods):
        return ()
    return tuple(dataset.limited(IMAGES_FOR_LAMBDA).samples)


def _load_datasets(options: EvalOptions) -> "list[Dataset]":
    from dtpt.data.loading import expand_names, load_dataset

    chosen = options.model_dump(include={"data_root", "presentation", "partial", "cluster_level"})
    return [load_dataset(name, **chosen) for name in expand_names(options.dataset)]


def _evaluated_set(dataset: "Dataset", options: EvalOptions) -> "EvaluatedSet":
    from dtpt.runs.worker import EvaluatedSet
    from dtpt.views import ViewRecipe

    methods = expand_methods(options.method, options.lambda_, protocol=dataset.protocol)
    return EvaluatedSet(
        dataset.name,
        dataset.classes,
        tuple(method.on_dataset(dataset.name) for method in methods),
        ViewRecipe(count=options.views, augmix=dataset.augmix)
        if dataset.pack is None
        else pack_recipe(dataset.pack, views=options.views),
    )


def expand_methods(
    names: Sequence[str], lambdas: Sequence[float], *, protocol: str
) -> tuple[ResolvedMethod, ...]:
    """Resolve method names; `lambdas` apply, in all combinations, to those that take one.

    A name with its own `@lambda` keeps it, and a method without regulariser has none. `+views=auto`
    is expanded to all fractions.
    """
    methods: dict[str, ResolvedMethod] = {}
    for name in (expanded for written in names for expanded in expand_views(written)):
        resolved = resolve_method(name, protocol=protocol)
        is_swept = lambdas and resolved.lambda_ is not None and not parse_label(name).rule
        for value in lambdas if is_swept else (resolved.lambda_,):
            method = replace(resolved, lambda_=value)
            methods.setdefault(method.label, method)
    return tuple(methods.values())


def _describe(
    entry: "EvaluatedSet", full: "Dataset", limited: "Dataset", *, options: EvalOptions
) -> DatasetSpec:
    return DatasetSpec(
        name=full.name,
        fingerprint=full.fingerprint,
        classes=len(full.classes),
        samples=len(limited),
        whole=full.whole if full.whole is not None else len(full),
        family=full.family,
        protocol=full.protocol,
        cluster_noun=full.cluster_noun,
        cluster_level=options.cluster_level,
        presentation=options.presentation,
        limit=options.limit,
        methods=tuple(MethodSpec(name=m.name, lambda_=m.lambda_) for m in entry.methods),
        views=entry.recipe.model_dump(mode="json"),
        pack=None if full.pack is None else full.pack.digest,
    )


def _datasets_in_memory(dataset: object) -> "list[Dataset] | None":
    """Return data sets that are in memory; None where names are given."""
    from dtpt.data.dataset import Dataset

    several = dataset if isinstance(dataset, list | tuple) else [dataset]
    objects = [each for each in several if isinstance(each, Dataset)]
    if objects and len(objects) < len(several):
        raise OptionError("dataset mixes names and data sets; pass one kind.")
    return objects or None
