"""A run on a Ray cluster: what it brings to the nodes, and how long it would take (`--plan`).

Nodes that share a disk, or hold the same files under the same paths, show that by hashes. A node
that lacks the model receives its files once; a node that lacks images receives them with its tasks.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtpt.clip.loading.formats import WEIGHT_NAMES, weight_file
from dtpt.clip.loading.hub import cached_folder
from dtpt.clip.loading.names import added_models, parse_name
from dtpt.data.dataset import EncodedRef, FileRef, ImageRef, Sample
from dtpt.errors import ImageError, RunError
from dtpt.executors.cluster import Quota, ResourceRequest, connected
from dtpt.executors.pool import completed
from dtpt.files import read_limited
from dtpt.images import open_image
from dtpt.options import EvalOptions
from dtpt.prediction.cache import cache_folder
from dtpt.runs.evaluation import Prepared, prepare
from dtpt.runs.reading import open_run
from dtpt.runs.worker import ImageTask, Task, WorkerSpec, image_results

if TYPE_CHECKING:
    from PIL import Image

    from dtpt.executors.pool import Executor
    from dtpt.executors.ray import Artifact, RayExecutor
    from dtpt.runs.progress import Reporter

PROBES = 16  # images by which a node shows that it has a data set
SECONDS_PER_CHUNK = 1.0
MOST_IMAGES = 16  # of a chunk
LEAST_CHUNKS = 64  # of a run, so that some nodes can share a small one
SECONDS_TO_ANSWER = 120.0
MOST_IMAGE_BYTES = 1 << 30
TIMED = 4  # images of each data set per worker


@dataclass
class Site:
    """What a node lacks: data sets by their index."""

    lacking: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class RunDeployment:
    """What a run brings to a node."""

    worker: WorkerSpec
    probes: Mapping[int, tuple[tuple[ImageRef, str], ...]]  # by data set: images and their keys
    artifact: "Artifact | None" = None  # the files of the model

    def probe(self) -> Site:
        return Site({index for index, images in self.probes.items() if not _are_here(images)})

    def received_folder(self, artifact: "Artifact") -> Path:
        return cache_folder().parent / "received" / artifact.key

    def factory(self, quota: Quota, *, received: Path | None) -> WorkerSpec:
        name = self.worker.model
        if received is not None and self.artifact is not None:
            is_file = name.startswith("local-file:")
            file = received / self.artifact.paths[0].name
            name = f"local-file:{file}" if is_file else f"local-dir:{received}"
        return replace(
            self.worker, model=name, device=quota.device, view_workers=quota.view_workers
        )

    def localise(self, task: Task, site: Site) -> Task:
        if task.dataset not in site.lacking:
            return task
        if isinstance(task, ImageTask):
            return replace(task, sample=_with_bytes(task.sample))
        return replace(task, samples=tuple(_with_bytes(sample) for sample in task.samples))

    def is_lost(self, task: Task, result: Any, *, site: Site) -> bool:
        """Send a data set's images with the tasks when a node cannot read one that is here."""
        if task.dataset in site.lacking:
            return False
        failed = [pair for pair in image_results(task, result) if pair[1].failure]
        if not any(_is_other_file(sample.image, image.image_key) for sample, image in failed):
            return False
        site.lacking.add(task.dataset)
        return True


def _is_other_file(image: ImageRef, key: str) -> bool:
    """Check whether an image here is not the one that a node has; it is never decoded here."""
    try:
        return image.key() != key
    except ImageError:
        return False


def _are_here(images: tuple[tuple[ImageRef, str], ...]) -> bool:
    try:
        return all(image.key() == key for image, key in images)
    except Exception:  # a file, or a package that holds or draws the images, is missing
        return False


@dataclass(frozen=True)
class BytesRef:
    """An encoded image that travels with its task; key and stamp are those of the driver's file."""

    data: bytes
    content_key: str
    file_stamp: str
    name: str

    def key(self) -> str:
        return self.content_key

    def stamp(self) -> str:
        return self.file_stamp

    def open(self) -> "Image.Image":
        return open_image(self.data, name=self.name)


def _with_bytes(sample: Sample) -> Sample:
    """Return a sample that carries its encoded image; one that is not a file stays as it is."""
    image = sample.image
    try:
        if isinstance(image, FileRef):
            data = read_limited(image.path, MOST_IMAGE_BYTES)
        elif isinstance(image, EncodedRef):
            data = image.read()
        else:
            return sample
        sent = BytesRef(data, image.key(), image.stamp(), sample.id)
    except (ImageError, OSError):  # the node reports it
        return sample
    return replace(sample, image=sent)


def open_cluster(
    stack: ExitStack,
    prepared: Prepared,
    *,
    options: EvalOptions,
    images: int,
    reporter: "Reporter",
    record: Callable[[Mapping[str, object]], None],
) -> "Executor":
    """Join the cluster and return the executor on it; the stack ends the connection.

    Raises:
        RunError: The cluster cannot be joined, or the run's model, methods or images are known to
            the calling process alone.
    """
    if not prepared.is_shippable:
        raise RunError(
            "Other nodes cannot load a model, data set or method that is in memory: with "
            "--executor ray give them by name."
        )
    stack.enter_context(connected(options.executor))
    from dtpt.executors.ray import RayExecutor

    return RayExecutor(
        _deployment(prepared, options),
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


def _deployment(prepared: Prepared, options: EvalOptions) -> RunDeployment:
    from dtpt.executors.ray import Artifact

    worker, artifact = prepared.worker, None
    path = model_path(options.model)
    if path is not None:
        # a name that the user gave to a model is known here alone: nodes get its path
        kind = "file" if path.is_file() else "dir"
        is_added = parse_name(options.model).kind == "added"
        name = f"local-{kind}:{path}" if is_added else options.model
        worker = replace(worker, model=name, activation=prepared.model.config.activation)
        files = [path] if path.is_file() else model_files(path)
        artifact = Artifact.of(options.model, files)
    return RunDeployment(worker, _probes(prepared), artifact)


def model_path(name: str) -> Path | None:
    """Return the file or folder of a model on this machine; None for the embedded one."""
    parsed = parse_name(name)
    if parsed.kind == "embedded":
        return None
    if parsed.kind == "added":
        return Path(added_models()[parsed.value].path)
    if parsed.kind in ("hub", "catalog"):
        return cached_folder(parsed)
    return Path(parsed.value).expanduser()


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model's folder that loading needs: of several weights, one."""
    names = {path.name for path in folder.iterdir() if path.is_file()}
    others = WEIGHT_NAMES - {weight_file(names)}
    return [folder / name for name in sorted(names - others)]


def _probes(prepared: Prepared) -> dict[int, tuple[tuple[ImageRef, str], ...]]:
    probes = {}
    for index, dataset in enumerate(prepared.datasets):
        images = []
        for sample in dataset.limited(min(PROBES, len(dataset))).samples:
            with suppress(ImageError):  # a damaged one proves nothing
                images.append((sample.image, sample.image.key()))
        probes[index] = tuple(images)
    return probes


def chunk_size(prepared: Prepared, options: EvalOptions, *, images: int) -> int:
    """Return how many images a worker is sent at a time: about a second's work.

    More would be lost when a node leaves, and fewer would cost the driver more messages.
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


def plan_cluster(options: EvalOptions, *, reporter: "Reporter") -> ClusterPlan:
    """Measure every node on a few images, all its workers at once, and divide the run.

    Nothing of the run is stored; nodes that lack the model receive it.

    Raises:
        RunError: No node can work.
    """
    prepared = prepare(options)
    uncached = replace(prepared, worker=replace(prepared.worker, cache=False))
    images = missing_images(prepared, options)
    with ExitStack() as stack:
        executor: Any = open_cluster(
            stack,
            uncached,
            options=options,
            images=images,
            reporter=reporter,
            record=lambda _: None,
        )
        stack.callback(executor.close)
        nodes = executor.wait_for_nodes(SECONDS_TO_ANSWER)
        if not nodes:
            reasons = "; ".join(executor.refusals[:3])
            raise RunError(f"No node of the cluster can work. {reasons}")
        workers = sum(quota.workers for _, _, quota in nodes)
        _run_some(executor, uncached, images=workers)  # warm-up
        began = time.perf_counter()
        done = _run_some(executor, uncached, images=TIMED * workers)
        seconds = time.perf_counter() - began
        refusals = tuple(executor.refusals)
    rates = {name: done[name] / seconds for name, _, _ in nodes}
    total = sum(rates.values())
    return ClusterPlan(
        images=images,
        chunk=chunk_size(prepared, options, images=images),
        seconds=images / total,
        nodes=tuple(
            NodePlan(
                name,
                facts["processor"],
                quota.device,
                quota.workers,
                images=round(images * rates[name] / total),
                image_seconds=quota.workers / max(rates[name], 1e-9),
            )
            for name, facts, quota in nodes
        ),
        refusals=refusals,
    )


def _run_some(executor: "RayExecutor", prepared: Prepared, *, images: int) -> Counter[int | str]:
    """Run some images of every data set; return how many each node did."""
    tasks = []
    for index, dataset in enumerate(prepared.datasets):
        methods = tuple(range(len(prepared.worker.datasets[index].methods)))
        samples = dataset.limited(min(images, len(dataset))).samples
        seed = prepared.spec.seeds[0]
        tasks += [ImageTask(index, seed, sample, methods) for sample in samples]
    done: Counter[int | str] = Counter()
    for results in completed(executor, ((None, task) for task in tasks)):
        done.update(event.worker for _, event in results)
    return done


def missing_images(prepared: Prepared, options: EvalOptions) -> int:
    """Return how many images lack rows, counted under each seed."""
    done: dict[tuple[str, int], int] = {}
    with suppress(RunError), open_run(options.output) as run:
        for cell, (successful, _) in run.counts().items():
            key = (cell.dataset, cell.seed)
            done[key] = min(done.get(key, successful), successful)
    return sum(
        max(len(dataset) - done.get((dataset.name, seed), 0), 0)
        for dataset in prepared.datasets
        for seed in prepared.spec.seeds
    )
