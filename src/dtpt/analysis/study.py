"""From a model and data sets to an `Analysis`: everything in one pass per data set and template."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from dtpt.analysis.collect import Collector, MethodTrack, kept_images
from dtpt.analysis.dominant import analyse_features, analyse_profile
from dtpt.analysis.gap import gap_of_centroids
from dtpt.analysis.image_dependence import compare_with_static, image_dependence
from dtpt.analysis.pareto import pareto_points
from dtpt.analysis.results import (
    FORMAT,
    Analysis,
    DatasetAnalysis,
    DispersionPoint,
    ImageDependence,
    MethodScore,
)
from dtpt.analysis.scatter import dispersion_scatter
from dtpt.analysis.scores import NO_IDD, NO_TDD, without_dominant
from dtpt.analysis.sensitivity import MASKED, sensitivity
from dtpt.analysis.study_runs import check_weights
from dtpt.errors import RunError
from dtpt.methods import ResolvedMethod, resolve_method
from dtpt.methods.parse import STATIC
from dtpt.options import EvalOptions
from dtpt.runs.evaluation import Setup, Task, prepare, resources_here, work_order
from dtpt.runs.pipeline import as_tensor
from dtpt.runs.progress import Reporter, make_reporter
from dtpt.runs.replica import Replica, torch_threads
from dtpt.runs.schedule import FailureLimit
from dtpt.runs.workers import Job

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset

# Figure 3b shows these without dominant dimensions.
WITHOUT_BASES = ("zero-shot", "tpt")


def analyse(
    options: EvalOptions,
    *,
    templates: Sequence[str] = (),
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
    reporter: Reporter | None = None,
) -> Analysis:
    """Analyse a model on data sets.

    Zero-shot, the static variant of every regularised method, and zero-shot and TPT without
    dominant dimensions are added to the methods asked for.

    Args:
        options: Model, data sets, methods and settings, as for an evaluation, with one seed.
        templates: Prompts to go through; the one of `options` when not given.
        model: Used instead of loading `options.model`.
        datasets: Used instead of loading `options.dataset`.
        reporter: Told about the progress; by default chosen for stderr.
    """
    if len(options.seed) != 1:
        seeds = ", ".join(map(str, options.seed))
        raise RunError(f"An analysis has one seed, not {seeds}: run it once for each.")
    if templates and options.context is not None:
        raise RunError("A trained context stands instead of a template: drop one of the two.")
    setup = prepare(options, model=model, datasets=datasets)
    check_weights(setup.tasks)
    shown = reporter if reporter is not None else make_reporter(quiet=options.quiet)
    resources = resources_here(setup, options)
    found: list[DatasetAnalysis] = []
    try:
        with torch_threads(resources.threads):
            for template in dict.fromkeys(templates or (setup.spec.template,)):
                order = work_order(_with_template(setup, template), options, resources=resources)
                with closing(Replica(order, model=setup.model)) as replica:
                    for index, task in enumerate(setup.tasks):
                        found.append(
                            _analyse_task(replica, index, task=task, options=options, told=shown)
                        )
    finally:
        shown.close()
    return Analysis(
        format=FORMAT,
        code_version=setup.spec.code_version,
        model=setup.spec.model.name,
        fingerprint=setup.spec.model.fingerprint,
        seed=options.seed[0],
        views=options.views,
        datasets=tuple(found),
        dispersion=dispersion_scatter(point for entry in found for point in _points(entry)),
    )


def with_companions(methods: Sequence[ResolvedMethod]) -> tuple[ResolvedMethod, ...]:
    """Add what the methods are compared with: zero-shot, static variants, no TDD, no IDD."""
    companions = [resolve_method("zero-shot")]
    for method in methods:
        companions.append(method)
        if method.method.is_regularised and not method.method.static:
            companions.append(resolve_method(method.method.name + STATIC))
    for base in WITHOUT_BASES:
        if any(method.name == base for method in companions):
            companions += [resolve_method(base + suffix) for suffix in (NO_TDD, NO_IDD)]
    unique: dict[tuple[str, float | None], ResolvedMethod] = {}
    for method in companions:
        unique.setdefault((method.name, method.lambda_), method)
    return tuple(unique.values())


def _with_template(setup: Setup, template: str) -> Setup:
    return replace(setup, spec=setup.spec.model_copy(update={"template": template}))


def _analyse_task(
    replica: Replica, index: int, *, task: Task, options: EvalOptions, told: Reporter
) -> DatasetAnalysis:
    """Stream the images of one data set through all methods, then summarise."""
    name, template = task.dataset.name, replica.order.template
    limit = FailureLimit(name, len(task.dataset), options.max_failures)
    title = f"{name} {template!r}"
    told.start(title, len(task.dataset), done=0)
    collector = Collector(replica.tuner(index), with_companions(task.methods))
    kept = task.dataset.limited(kept_images(*collector.text.shape)).samples
    chosen = {sample.id for sample in kept}
    jobs = (Job(sample, options.seed[0], task.recipe) for sample in task.dataset.samples)
    for seen in replica.pipeline.stream(jobs):
        sample = seen.job.sample
        if seen.features is None:
            limit.add(sample.id, seen.failure or seen.death)
        else:
            views = as_tensor(seen.features, replica.model.device)
            collector.add(sample.id, sample.label, views=views, keep=sample.id in chosen)
        told.advance(title)
    if collector.images == 0:
        raise RunError(f"{name}: no image could be read, so nothing was analysed.")
    return summarise(collector, name, template=template, failures=len(limit.reasons))


def summarise(
    collector: Collector, dataset: str, *, template: str, failures: int = 0
) -> DatasetAnalysis:
    """Turn what was collected on one data set into its analysis."""
    text = collector.text.detach().cpu().double()
    words, pictures = text.numpy(), collector.profile
    kept = torch.from_numpy(pictures.kept)
    scale = collector.tuner.logit_scale
    labels = collector.labels
    scores = [track.score(labels) for track in collector.tracks]
    pairs = list(zip(collector.tracks, scores, strict=True))
    return DatasetAnalysis(
        dataset=dataset,
        template=template,
        classes=len(words),
        images=collector.images,
        failures=failures,
        dimensions=words.shape[1],
        text=analyse_features(words, "text"),
        image=analyse_profile(pictures, "image"),
        gap=gap_of_centroids(
            words.mean(axis=0), pictures.mean, matched_cosine=collector.matched_cosine
        ),
        sensitivity=tuple(
            sensitivity(text, kept, logit_scale=scale, masked=masked) for masked in MASKED
        ),
        scores=tuple(scores),
        without=without_dominant(dataset, scores),
        geometry=tuple(t.geometry.result(t.method) for t in collector.tracks if t.geometry),
        image_dependence=_dependences(pairs),
        pareto=pareto_points([score for track, score in pairs if not track.method.modifiers]),
    )


def _dependences(pairs: Sequence[tuple[MethodTrack, MethodScore]]) -> tuple[ImageDependence, ...]:
    by_label = {track.label: (track, score) for track, score in pairs}
    found = []
    for track, score in pairs:
        if track.tally is None:
            continue
        static = by_label.get(track.method.method.name + STATIC)
        comparison = None
        if static is not None:
            comparison = compare_with_static(
                track.predictions(), static[0].predictions(), static_score=static[1]
            )
        found.append(image_dependence(track.tally.shares(), score, comparison))
    return tuple(found)


def _points(entry: DatasetAnalysis) -> list[DispersionPoint]:
    ece = {score.label: score.ece for score in entry.scores}
    return [
        DispersionPoint(entry.dataset, entry.template, g.label, g.after.atfd, ece[g.label])
        for g in entry.geometry
    ]
