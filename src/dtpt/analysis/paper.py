"""What the paper computes beside its tables, in one pass per data set and template.

Memory is bounded: sums over D dimensions, two numbers per image and method, and the features of a
limited number of images, which are chosen by id, so that their order plays no part.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dtpt.analysis.features import (
    MASKED,
    Floats,
    ModalityAnalysis,
    ModalityGap,
    RunningProfile,
    Sensitivity,
    modality_gap,
    sensitivity,
)
from dtpt.analysis.geometry import (
    ImageDependence,
    MethodGeometry,
    SignTally,
    geometry_sums,
    mean_geometry,
)
from dtpt.analysis.images import ImageWorker, answers, prepare_pass
from dtpt.analysis.scores import (
    TEMPERATURES,
    DispersionPoint,
    DispersionScatter,
    MethodScore,
    TemperatureControl,
    dispersion_scatter,
    efficient,
    match_confidence,
    score_method,
    without_labels,
)
from dtpt.analysis.study import save_json
from dtpt.errors import ReportError, RunError, explain, os_error
from dtpt.methods import ResolvedMethod, resolve_method
from dtpt.methods.parse import STATIC
from dtpt.options import EvalOptions
from dtpt.runs.progress import Reporter, make_reporter

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.clip.model import Clip
    from dtpt.data import Dataset, Sample
    from dtpt.prediction.predictor import Predictor
    from dtpt.runs.worker import WorkerSpec

FORMAT = 1
FILE_NAME = "analysis.json"
WITHOUT_BASES = ("zero-shot", "tpt", "tps")  # figure 3b shows these without dominant dimensions
# Sensitivity costs images · C · D exponentials per chart; this many take about 20 s on one core.
KEPT_PRODUCTS = 2 * 10**8
FEWEST_KEPT, MOST_KEPT = 256, 2048


@dataclass(frozen=True)
class DatasetAnalysis:
    """Everything that was found for one data set and template."""

    dataset: str
    template: str
    classes: int
    images: int
    failures: int  # images that could not be read and did not enter
    dimensions: int  # D of the joint space
    text: ModalityAnalysis  # features of all classes, before tuning
    image: ModalityAnalysis  # features of all images (original view)
    gap: ModalityGap
    sensitivity: tuple[Sensitivity, ...]  # "product", "text", "image"
    scores: tuple[MethodScore, ...]  # every method in order, static variants and modifiers too
    geometry: tuple[MethodGeometry, ...]  # of methods without modifiers
    image_dependence: tuple[ImageDependence, ...]  # of tuned methods without modifiers
    temperatures: tuple[TemperatureControl, ...] = ()  # instead of no TDD, no IDD

    def score(self, label: str) -> MethodScore:
        return next(score for score in self.scores if score.label == label)


@dataclass(frozen=True)
class Analysis:
    """The content of analysis.json: fractions, angles in radians, divergences in nats."""

    format: int
    code_version: str
    model: str
    fingerprint: str
    seed: int
    views: int
    datasets: tuple[DatasetAnalysis, ...]  # one entry per data set and template
    dispersion: DispersionScatter  # over all entries


def save_analysis(analysis: Analysis, folder: Path) -> Path:
    """Write analysis.json into a folder, which is made when it is missing; return its path."""
    return save_json(analysis, folder / FILE_NAME)


def load_analysis(path: Path | str) -> Analysis:
    """Read analysis.json, given the file or its folder.

    Raises:
        ReportError: It is missing, damaged, or of another version.
    """
    from pydantic import TypeAdapter, ValidationError

    file = Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)
    try:
        analysis = TypeAdapter(Analysis).validate_json(file.read_bytes())
    except OSError as error:
        reason = os_error(error)
        raise ReportError(f"Cannot read {file}: {reason}. `dtpt analyze` writes it.") from error
    except ValidationError as error:
        raise ReportError(f"{file} is not an analysis: {explain(error)}.") from error
    if analysis.format != FORMAT:
        raise ReportError(
            f"{file} has format {analysis.format}, expected {FORMAT}: run `dtpt analyze` again."
        )
    return analysis


def analyse(
    options: EvalOptions,
    *,
    templates: Sequence[str] = (),
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
) -> Analysis:
    """Analyse a model on data sets.

    Zero-shot, the static variant of every regularised method, and zero-shot and TPT without
    dominant dimensions are added to the methods.

    Args:
        options: Model, data sets, methods and settings, as for an evaluation, with one seed.
        templates: Prompts to go through; the one of `options` when not given.
        model: Used instead of loading `options.model`.
        datasets: Used instead of loading `options.dataset`.
    """
    from dtpt.runs.worker import torch_threads

    if templates and options.context is not None:
        raise RunError("A trained context replaces the template: drop one of the two.")
    prepared = prepare_pass(options, model=model, datasets=datasets)
    here = replace(prepared, is_shippable=False)  # one process
    resources = here.resources(options, images=sum(map(len, prepared.datasets)))
    spec = prepared.with_resources(resources)
    entries = []
    with ExitStack() as stack:
        reporter = make_reporter(quiet=options.quiet)
        stack.callback(reporter.close)
        stack.enter_context(torch_threads(resources.threads))
        for template in dict.fromkeys(templates or (spec.template,)):
            for entry, dataset in zip(spec.datasets, prepared.datasets, strict=True):
                one_set = replace(spec, template=template, datasets=(entry,))
                collector = Collector(one_set.predictor(prepared.model, 0), entry.methods)
                collector.add_all(dataset, spec=one_set, options=options, reporter=reporter)
                entries.append(collector.result(dataset, template))
    return Analysis(
        format=FORMAT,
        code_version=prepared.spec.code_version,
        model=prepared.spec.model.name,
        fingerprint=prepared.spec.model.fingerprint,
        seed=options.seed[0],
        views=options.views,
        datasets=tuple(entries),
        dispersion=dispersion_scatter(
            DispersionPoint(e.dataset, e.template, g.label, g.after.atfd, e.score(g.label).ece)
            for e in entries
            for g in e.geometry
        ),
    )


def with_controls(methods: Sequence[ResolvedMethod]) -> list[ResolvedMethod]:
    """Add what the methods are compared with: zero-shot, static variants, no TDD, no IDD."""
    all_methods = [resolve_method("zero-shot")]
    for method in methods:
        all_methods.append(method)
        if method.method.is_regularised and not method.method.static:
            all_methods.append(_as_in(method, method.method.name + STATIC))
    for base in (m for name in WITHOUT_BASES for m in tuple(all_methods) if m.name == name):
        all_methods += [_as_in(base, name) for name in without_labels(base.name)]
    unique: dict[str, ResolvedMethod] = {}
    for method in all_methods:
        unique.setdefault(method.label, method)
    return list(unique.values())


def _as_in(method: ResolvedMethod, name: str) -> ResolvedMethod:
    """Return a variant with the learning rate that a method has on this data set."""
    return replace(resolve_method(name), learning_rate=method.learning_rate)


def kept_images(classes: int, dimensions: int) -> int:
    """Return how many images to keep for quantiles and sensitivity: fewer for long class lists."""
    return max(FEWEST_KEPT, min(MOST_KEPT, KEPT_PRODUCTS // (classes * dimensions)))


class Collector:
    """Runs methods on the images of one class list and sums up what every analysis needs."""

    def __init__(self, predictor: "Predictor", methods: Sequence[ResolvedMethod]) -> None:
        tuner = predictor.tuner
        self._predictor, self._methods = predictor, with_controls(methods)
        self.text = tuner.initial_text_features  # (C, D)
        self._profile = RunningProfile(self.text.shape[1])
        self._matched = 0.0
        # of each image: id, label, and (class, confidence) of every method
        self._rows: list[tuple[str, int, list[tuple[int, float]]]] = []
        # (id, confidences at all temperatures) of methods that also run without dimensions
        self._tempered: dict[str, list[tuple[str, Floats]]] = {
            method.label: [] for method in self._methods if self._is_modified_too(method)
        }
        plain = [m for m in self._methods if not m.modifiers]  # modifiers change no tuning
        self._geometry: dict[str, Any] = {method.label: 0.0 for method in plain}
        self._signs = {}
        for method in plain:
            if method.method.tunes_on_views:
                is_regularised = method.method.is_regularised
                gradient = tuner.regulariser_gradient(method.method) if is_regularised else None
                self._signs[method.label] = SignTally(gradient, method.lambda_ or 0.0)

    def add_all(
        self, dataset: "Dataset", *, spec: "WorkerSpec", options: EvalOptions, reporter: Reporter
    ) -> None:
        """Run all methods on the images of a data set; some are kept for the quantiles."""
        title = f"{dataset.name} {spec.template!r}"
        reporter.start(title, len(dataset), done=0)
        kept = {s.id for s in dataset.limited(kept_images(*self.text.shape)).samples}
        model, seed = self._predictor.model, options.seed[0]
        worker = partial(ImageWorker, spec, model=model, seed=seed, answer=lambda _, views: views)
        advance = partial(reporter.advance, title)
        for sample, views in answers(
            [worker], dataset, spec=spec, workers=1, options=options, advance=advance
        ):
            self.add(sample, views, keep=sample.id in kept)

    def add(self, sample: "Sample", views: "Tensor", *, keep: bool) -> None:
        """Run all methods on the (N, D) views of one image; `keep` it for the quantiles."""
        from dtpt.tuning import Episode

        tuner, label, image = self._predictor.tuner, sample.label, views[0].to(self.text)
        self._profile.add(image[None].cpu().numpy(), keep=keep)
        self._matched += float(image @ self.text[label])
        episode, predictions = Episode(tuner, views), []
        for outcome in self._predictor.answer(views, self._methods):
            method, best = outcome.method, int(outcome.probabilities.argmax())
            predictions.append((best, float(outcome.probabilities[best])))
            if method.label in self._tempered:
                scaled = outcome.logits.cpu().double().numpy() / TEMPERATURES[:, None]  # (T, C)
                shifted = np.exp(scaled - scaled.max(axis=1, keepdims=True))
                self._tempered[method.label].append((sample.id, 1 / shifted.sum(axis=1)))
            if method.label in self._geometry:
                self._geometry[method.label] += geometry_sums(
                    self.text,
                    outcome.text_features,
                    image=image,
                    label=label,
                    logit_scale=tuner.logit_scale,
                )
            if method.label in self._signs:
                self._signs[method.label].add(episode.entropy_gradient(method.method))
        self._rows.append((sample.id, label, predictions))

    def result(self, dataset: "Dataset", template: str) -> DatasetAnalysis:
        """Return the analysis of the images so far."""
        import torch

        images, scale = len(self._rows), self._predictor.tuner.logit_scale
        text, kept = self.text.detach().cpu().double(), torch.from_numpy(self._profile.kept)
        of_text = RunningProfile(text.shape[1])
        of_text.add(text.numpy())
        return DatasetAnalysis(
            dataset=dataset.name,
            template=template,
            classes=len(text),
            images=images,
            failures=len(dataset) - images,
            dimensions=text.shape[1],
            text=of_text.result(),
            image=self._profile.result(),
            gap=modality_gap(
                text.numpy().mean(axis=0),
                self._profile.mean,
                matched_cosine=self._matched / images,
            ),
            sensitivity=tuple(
                sensitivity(text, kept, logit_scale=scale, masked=masked) for masked in MASKED
            ),
            scores=tuple(self._scores()),
            geometry=tuple(
                mean_geometry(label, sums, images=images) for label, sums in self._geometry.items()
            ),
            image_dependence=tuple(self._dependence()),
            temperatures=tuple(self._temperatures()),
        )

    def _predictions(self) -> dict[str, tuple[Floats, Floats]]:
        """Return classes and confidences of every method, ordered by sample id."""
        table = np.array([predictions for _, _, predictions in sorted(self._rows)])  # (n, M, 2)
        columns = np.ascontiguousarray(table.transpose(1, 2, 0))  # (M, 2, n)
        labels = (method.label for method in self._methods)
        return {label: (pair[0], pair[1]) for label, pair in zip(labels, columns, strict=True)}

    def _scores(self) -> Iterator[MethodScore]:
        truth = np.array([label for _, label, _ in sorted(self._rows)])
        scores = [
            score_method(label, confidence=confidence, correct=classes == truth)
            for label, (classes, confidence) in self._predictions().items()
        ]
        points = [score for score in scores if score.label in self._geometry]
        flags = efficient([point.accuracy for point in points], [point.ece for point in points])
        by_label = {point.label: flag for point, flag in zip(points, flags, strict=True)}
        return (replace(score, efficient=by_label.get(score.label)) for score in scores)

    def _temperatures(self) -> Iterator[TemperatureControl]:
        truth = np.array([label for _, label, _ in sorted(self._rows)])
        predictions = self._predictions()
        for base, rows in self._tempered.items():
            curves = np.array([curve for _, curve in sorted(rows, key=lambda row: row[0])])
            correct = predictions[base][0] == truth
            for label in without_labels(base):
                target = float(predictions[label][1].mean())
                yield match_confidence(label, target, curves=curves, correct=correct)

    def _is_modified_too(self, method: ResolvedMethod) -> bool:
        labels = {other.label for other in self._methods}
        return labels.issuperset(without_labels(method.label))

    def _dependence(self) -> Iterator[ImageDependence]:
        predictions = self._predictions()
        for method in self._methods:
            if method.label not in self._signs:
                continue
            dependence = self._signs[method.label].result(method.label)
            static = method.method.name + STATIC
            if static in predictions:
                same = float(np.mean(predictions[method.label][0] == predictions[static][0]))
                dependence = replace(dependence, static=static, same_prediction=same)
            yield dependence
