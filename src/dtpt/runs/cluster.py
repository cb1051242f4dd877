"""A run on a Ray cluster: what it brings to the nodes, and how long it would take (`--plan`).

The driver's model goes to every node through Ray's object store. A node with the same images under
the same paths, such as on a shared disk, shows that by hashes; another one receives them with its
tasks.
"""

import copy
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dtpt.data.dataset import Dataset, EncodedRef, FileRef, ImageRef, Sample
from dtpt.data.pack import PackRef
from dtpt.errors import ImageError, RunError
from dtpt.executors.cluster import Quota, ResourceRequest, connected
from dtpt.executors.pool import Announce, completed
from dtpt.files import read_limited
from dtpt.options import EvalOptions
from dtpt.runs.evaluation import Prepared, prepare
from dtpt.runs.progress import Reporter
from dtpt.runs.reading import open_run
from dtpt.runs.spec import Cell
from dtpt.runs.worker import ImageTask, RunWorker, Task, WorkerSpec, image_results
from dtpt.views import ViewRecipe

if TYPE_CHECKING:
    from dtpt.executors.ray import RayExecutor

PROBES = 16  # images by which a node shows that it has a data set
SECONDS_PER_CHUNK = 1.0
MOST_IMAGES = 16  # of a chunk
LEAST_CHUNKS = 64  # of a run, so that several nodes take part in a small one
MOST_IMAGE_BYTES = 1 << 30
TIMED = 4  # images of each data set per worker

Probes = dict[int, list[tuple[ImageRef, str]]]  # by data set: images and their keys
Lacking = set[int]  # data sets, by their index, that a node lacks


@dataclass(frozen=True)
class NodeWorker:
    """The factory of the workers on a node."""

    spec: WorkerSpec
    model: list[Any]  # one reference in Ray's store; nested, so that the worker fetches it

    def __call__(self, announce: Announce) -> RunWorker:
        import ray

        torch.set_num_threads(self.spec.threads)
        model = ray.get(self.model[0]).to(self.spec.device)
        return RunWorker(self.spec, announce, model=model)


@dataclass(frozen=True)
class RunDeployment:
    """What a run brings to the nodes; a node's site is what it lacks."""

    worker: NodeWorker
    probe: Callable[[], Lacking]

    def factory(self, quota: Quota) -> NodeWorker:
        spec = replace(self.worker.spec, device=quota.device, view_workers=quota.view_workers)
        return replace(self.worker, spec=spec)

    def localise(self, task: Task, site: Lacking) -> Task:
        if task.dataset not in site:
            return task
        recipe = self.worker.spec.datasets[task.dataset].recipe_for(task.methods)
        carried = partial(with_bytes, recipe=recipe, seed=task.seed)
        if isinstance(task, ImageTask):
            return replace(task, sample=carried(task.sample))
        return replace(task, samples=tuple(carried(sample) for sample in task.samples))

    def is_lost(self, task: Task, result: Any, *, site: Lacking) -> bool:
        """Send a data set's images with the tasks when a node cannot read one that is here."""
        for sample, image in image_results(task, result):
            with suppress(ImageError):  # it cannot be read here either
                if image.failure and sample.image.key() != image.image_key:
                    site.add(task.dataset)
                    return True
        return False


def probe_images(datasets: tuple[Dataset, ...]) -> Probes:
    """Return some images of each data set with their keys."""
    probes: Probes = {index: [] for index in range(len(datasets))}
    for index, dataset in enumerate(datasets):
        for sample in dataset.limited(PROBES).samples:
            with suppress(ImageError):  # a damaged one proves nothing
                probes[index].append((sample.image, sample.image.key()))
    return probes


def lacking_datasets(probes: Probes) -> Lacking:
    """Run on a node: return the data sets whose images are not the driver's."""
    lacking = set(probes)
    for index, images in probes.items():
        with suppress(Exception):  # a file, or a package that holds or draws images, is missing
            if all(image.key() == key for image, key in images):
                lacking.remove(index)
    return lacking


@dataclass(frozen=True)
class BytesRef(EncodedRef):
    """An encoded image that travels with its task, with the stamp of the driver's file."""

    data: bytes
    file_stamp: str
    name: str

    def read(self) -> bytes:
        return self.data

    def describe(self) -> str:
        return self.name

    def stamp(self) -> str:
        return self.file_stamp


def with_bytes(sample: Sample, *, recipe: ViewRecipe, seed: int) -> Sample:
    """Return a sample that carries its encoded image, or its features if it is of a pack.

    One that is neither in a file nor in a pack stays as it is.
    """
    image, data = sample.image, None
    with suppress(ImageError, OSError):  # the node reports it
        if isinstance(image, PackRef):
            return replace(sample, image=image.carried(recipe, seed))
        if isinstance(image, FileRef):
            data = read_limited(image.path, MOST_IMAGE_BYTES)
        elif isinstance(image, EncodedRef):
            data = image.read()
        if data is not None:
            return replace(sample, image=BytesRef(data, image.stamp(), sample.id))
    return sample


def open_cluster(
    stack: ExitStack,
    prepared: Prepared,
    *,
    options: EvalOptions,
    images: int,
    reporter: Reporter,
    record: Callable[[Mapping[str, object]], None],
) -> "RayExecutor":
    """Join the cluster and return the executor on it; the stack ends the connection."""
    if not prepared.is_shippable:
        raise RunError(
            "Other nodes cannot load a model, data set or method that is in memory: with "
            "--executor ray give them by name."
        )
    stack.enter_context(connected(options.executor))
    import ray

    from dtpt.executors.ray import RayExecutor

    model = prepared.model
    if model.device.type != "cpu":  # nodes may lack the driver's accelerator
        model = copy.deepcopy(model).to("cpu")
    worker = NodeWorker(prepared.worker, [ray.put(model)])
    probe = partial(lacking_datasets, probe_images(prepared.datasets))
    return RayExecutor(
        RunDeployment(worker, probe),
        request=ResourceRequest(
            device=options.device,
            threads=options.threads or 1,
            workers=options.workers,
            view_workers=options.view_workers,
            worker_bytes=prepared.work(1).worker_bytes,
        ),
        chunk=chunk_size(prepared, options, images=images),
        note=reporter.note,
        record=record,
    )


def chunk_size(prepared: Prepared, options: EvalOptions, *, images: int) -> int:
    """Return how many images a worker is sent at a time: about a second's work.

    More would be lost when a node leaves; fewer would cost the driver more messages.
    """
    seconds = prepared.work(images).image_seconds
    most = min(int(SECONDS_PER_CHUNK / max(seconds, 1e-9)), MOST_IMAGES)
    return max(options.batch, min(most, images // LEAST_CHUNKS), 1)


@dataclass(frozen=True)
class NodePlan:
    """What one node would do."""

    name: str
    processor: str
    device: str
    workers: int
    images: int  # about, counted under each seed
    image_seconds: float  # of one worker


@dataclass(frozen=True)
class ClusterPlan:
    """How a run would be divided."""

    images: int  # that lack rows, counted under each seed
    chunk: int
    seconds: float  # once the workers have been started
    nodes: tuple[NodePlan, ...]
    refusals: tuple[str, ...]


def plan_cluster(options: EvalOptions, *, reporter: Reporter) -> ClusterPlan:
    """Measure every node on a few images, all its workers at once, and divide the run."""
    prepared = prepare(options)
    prepared = replace(prepared, worker=replace(prepared.worker, cache=False))
    images = missing_images(prepared, options)
    with ExitStack() as stack:
        executor = open_cluster(
            stack,
            prepared,
            options=options,
            images=images,
            reporter=reporter,
            record=lambda _: None,
        )
        stack.callback(executor.close)
        ready = executor.wait_for_nodes()
        workers = sum(quota.workers for _, _, quota in ready)
        _run_some(executor, prepared, images=workers)  # warm-up
        began = time.perf_counter()
        done = _run_some(executor, prepared, images=TIMED * workers)
        rates = {name: count / (time.perf_counter() - began) for name, count in done.items()}
        refusals = tuple(executor.refusals)
    nodes = tuple(
        NodePlan(
            name,
            facts["processor"],
            quota.device,
            quota.workers,
            images=round(images * rates.get(name, 0.0) / sum(rates.values())),
            image_seconds=quota.workers / max(rates.get(name, 0.0), 1e-9),
        )
        for name, facts, quota in ready
    )
    chunk = chunk_size(prepared, options, images=images)
    return ClusterPlan(images, chunk, images / sum(rates.values()), nodes, refusals)


def _run_some(executor: "RayExecutor", prepared: Prepared, *, images: int) -> Counter[int | str]:
    """Run some images of every data set; return how many each node did."""
    tasks = [
        (None, ImageTask(index, prepared.spec.seeds[0], sample, methods))
        for index, entry in enumerate(prepared.worker.datasets)
        for sample in prepared.datasets[index].limited(images).samples
        for methods in entry.groups.values()
    ]
    return Counter(event.worker for done in completed(executor, tasks) for _, event in done)


def missing_images(prepared: Prepared, options: EvalOptions) -> int:
    """Return how many images lack rows, counted under each seed and with each kind of views."""
    counts: dict[Cell, tuple[int, int]] = {}
    with suppress(RunError), open_run(options.output) as run:
        counts = run.counts()
    missing = 0
    for dataset, entry in zip(prepared.datasets, prepared.worker.datasets, strict=True):
        for seed in prepared.spec.seeds:
            cells = prepared.spec.cells(dataset=dataset.name, seed=seed)
            labels = [method.label for method in entry.methods]
            for methods in entry.groups.values():
                names = {labels[k] for k in methods}
                done = min(counts.get(c, (0, 0))[0] for c in cells if c.label in names)
                missing += max(len(dataset) - done, 0)
    return missing
