"""What a rotation of the joint space changes: D-TPT, and with it the dominant dimension.

The space is rotated exactly. Methods that see cosines alone answer as before, up to rounding; D-TPT
does not. Finished data sets are kept under the study's folder, under a name that says what decides
their numbers, so that the same command again computes only what is missing.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from dtpt.analysis.basis import basis_names
from dtpt.analysis.basis_answers import BasisAnswers, BasisOrder, Floats, answer_pictures
from dtpt.analysis.basis_crew import answer_in_processes
from dtpt.analysis.basis_options import BasisOptions
from dtpt.analysis.estimates import differences
from dtpt.analysis.files import prepare_folder
from dtpt.analysis.study_runs import StudyOrigin, check_weights, origin_of
from dtpt.data.catalog import family_title
from dtpt.errors import RunError
from dtpt.files import open_regular, write_atomically
from dtpt.methods import ResolvedMethod, resolve_method
from dtpt.metrics import Comparison, Estimate, PooledPredictions, Predictions, pool
from dtpt.metrics.comparison import estimates
from dtpt.runs.evaluation import Setup, Task, needed_resources, prepare, work_order
from dtpt.runs.progress import Reporter, make_reporter
from dtpt.runs.replica import Replica, torch_threads
from dtpt.runs.spec import canonical_json
from dtpt.runs.workers import Job

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset

METRICS = ("accuracy", "signed_gap", "ece", "ece_above_floor", "brier", "aurc")
OWN = "own"
EXAMPLES = 64  # pictures behind the mean image feature


@dataclass(frozen=True)
class BasisFacts:
    """What a basis looks like to D-TPT on one class list.

    Attributes:
        basis: its name.
        dominant_share: of the text features' energy in their largest dimension.
        gradient_norm: of DEM at the initial context.
        signs_won: share of the first step's signs that DEM wins, for each weight.
    """

    basis: str
    dominant_share: float
    gradient_norm: float
    signs_won: tuple[float, ...]


@dataclass(frozen=True)
class Invariance:
    """How far a method's answers moved in any other basis.

    Attributes:
        method: its label.
        largest_move: of a probability, over all pictures, classes and bases.
        mean_move: over pictures and bases of the largest move of a probability.
        same_answers: share of the answers that stayed.
    """

    method: str
    largest_move: float
    mean_move: float
    same_answers: float


@dataclass(frozen=True)
class DatasetBases:
    """One data set: what its class list looks like in every basis, and what did not change."""

    dataset: str
    family: str
    classes: int
    pictures: int
    bases: tuple[BasisFacts, ...]
    invariance: tuple[Invariance, ...]


@dataclass(frozen=True)
class BasisRow:
    """D-TPT with one weight in one basis, on the pictures of one family.

    Attributes:
        basis: its name.
        weight: λ.
        signs_won: mean share of the first step's signs that DEM wins.
        estimates: metrics by key.
        to_own: differences to the model's own basis with the same weight; empty there.
    """

    basis: str
    weight: float
    signs_won: float
    estimates: dict[str, Estimate]
    to_own: tuple[Comparison, ...]


@dataclass(frozen=True)
class FamilyBases:
    """D-TPT in all bases on the pictures of one family."""

    family: str
    sets: tuple[tuple[str, int], ...]
    rows: tuple[BasisRow, ...]


@dataclass(frozen=True)
class BasisStudy:
    """What depends on the basis of the joint space, and what does not."""

    origin: StudyOrigin
    weights: tuple[float, ...]
    datasets: tuple[DatasetBases, ...]
    families: tuple[FamilyBases, ...]


def study_basis(
    options: BasisOptions,
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
) -> BasisStudy:
    """Answer all pictures in the model's own basis, in random ones and in aligned ones.

    Args:
        options: what to rotate, and where to keep finished data sets.
        model: used instead of loading `options.model`.
        datasets: used instead of loading `options.dataset`.
    """
    if len(options.seed) != 1:
        raise RunError(f"This study has one seed, not {len(options.seed)}: run it once for each.")
    folder = options.output / "answers"
    prepare_folder(folder)
    setup = prepare(_without_weights(options), model=model, datasets=datasets)
    check_weights(setup.tasks)
    found = []
    with ExitStack() as stack:
        told = make_reporter(quiet=options.quiet)
        stack.callback(told.close)
        for task in setup.tasks:
            own = replace(setup, tasks=(_with_dem(task, options.weights),))
            found.append((own.tasks[0], _answers(own, options, folder=folder, told=told)))
    return _summarise(found, setup, options)


def _without_weights(options: BasisOptions) -> BasisOptions:
    return options.model_copy(update={"lambda_": ()})


def _with_dem(task: Task, weights: Sequence[float]) -> Task:
    """Put D-TPT with every weight behind the methods that should not change."""
    dem = tuple(resolve_method("d-tpt", lambda_=weight) for weight in dict.fromkeys(weights))
    return replace(task, methods=(*task.methods, *dem))


def _answers(setup: Setup, options: BasisOptions, *, folder: Path, told: Reporter) -> BasisAnswers:
    """Return the answers on one data set, from the folder where they are kept."""
    (task,) = setup.tasks
    path = folder / f"{_digest(setup, options)}.npz"
    title, count = task.dataset.name, len(task.dataset)
    kept = _load(path)
    told.start(title, count, done=0 if kept is None else count)
    if kept is not None:
        return kept
    answers = _compute(setup, options, advance=lambda: told.advance(title))
    if len(answers.samples) == 0:
        raise RunError(f"{title}: no picture could be read, so nothing was studied.")
    stream = BytesIO()
    np.savez_compressed(stream, **{f.name: getattr(answers, f.name) for f in fields(answers)})
    write_atomically(path, stream.getvalue())
    return answers


def _digest(setup: Setup, options: BasisOptions) -> str:
    """Name what decides the numbers of one data set."""
    (task,) = setup.tasks
    labels = [method.label for method in task.methods]
    (spec,) = (entry for entry in setup.spec.datasets if entry.name == task.dataset.name)
    only = setup.spec.model_copy(update={"datasets": (spec,)})
    content = [only.hash, labels, basis_names(), options.threads or 1]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:32]


def _load(path: Path) -> BasisAnswers | None:
    if not path.is_file():
        return None
    try:
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as arrays:
            return BasisAnswers(**{name: arrays[name] for name in arrays.files})
    except (OSError, ValueError, TypeError, KeyError, BadZipFile) as error:
        raise RunError(f"{path} is damaged: delete it, and it is computed again.") from error


def _compute(setup: Setup, options: BasisOptions, *, advance: Callable[[], None]) -> BasisAnswers:
    """Answer the pictures of one data set here, or in several processes."""
    (task,) = setup.tasks
    resources = needed_resources(setup, options, pictures=len(task.dataset))
    work, count = work_order(setup, options, resources=resources), resources.replicas
    with torch_threads(resources.threads), closing(Replica(work, model=setup.model)) as replica:
        order = BasisOrder(
            work=work,
            samples=tuple(task.dataset.samples),
            seed=options.seed[0],
            image_mean=mean_feature(replica, task, seed=options.seed[0]),
            weights=len(dict.fromkeys(options.weights)),
        )
        if count == 1:
            return answer_pictures(order, replica=replica, advance=advance)
    parts = [replace(order, samples=order.samples[first::count]) for first in range(count)]
    return answer_in_processes(parts, advance=advance)


def mean_feature(replica: Replica, task: Task, *, seed: int) -> Floats:
    """Return the mean feature (D,) of some pictures' original views, always the same ones."""
    chosen = task.dataset.limited(EXAMPLES).samples
    seen = replica.pipeline.stream([Job(sample, seed, task.recipe) for sample in chosen])
    found = {one.job.sample.id: one.features[0] for one in seen if one.features is not None}
    if not found:
        raise RunError(f"{task.dataset.name}: no picture could be read, so nothing was studied.")
    ordered = [found[name] for name in sorted(found)]  # sums depend on the order
    mean: Floats = np.stack(ordered).astype(np.float64).mean(axis=0)
    return mean


def _summarise(
    found: Sequence[tuple[Task, BasisAnswers]], setup: Setup, options: BasisOptions
) -> BasisStudy:
    weights = tuple(dict.fromkeys(options.weights))
    of_sets = (text for task in setup.tasks for text in task.dataset.notes)
    families: dict[str, list[tuple[Task, BasisAnswers]]] = {}
    for task, answers in found:
        families.setdefault(task.dataset.family, []).append((task, answers))
    return BasisStudy(
        origin=origin_of(setup.spec, [*setup.model.notes, *of_sets]),
        weights=weights,
        datasets=tuple(_facts(task, answers, count=len(weights)) for task, answers in found),
        families=tuple(
            _family(family_title(name), members, weights=weights)
            for name, members in families.items()
        ),
    )


def _facts(task: Task, answers: BasisAnswers, *, count: int) -> DatasetBases:
    steady = task.methods[: len(task.methods) - count]
    return DatasetBases(
        dataset=task.dataset.name,
        family=family_title(task.dataset.family),
        classes=len(task.dataset.classes),
        pictures=len(answers.samples),
        bases=tuple(
            BasisFacts(
                basis=name,
                dominant_share=float(answers.dominant[index]),
                gradient_norm=float(answers.gradient[index]),
                signs_won=tuple(answers.signs_won[:, index].mean(axis=0).tolist()),
            )
            for index, name in enumerate(basis_names())
        ),
        invariance=tuple(_invariance(m, answers, place=place) for place, m in enumerate(steady)),
    )


def _invariance(method: ResolvedMethod, answers: BasisAnswers, *, place: int) -> Invariance:
    moved, same = answers.moved[:, 1:, place], answers.same[:, 1:, place]  # (n, other bases)
    return Invariance(
        method=method.label,
        largest_move=float(moved.max()),
        mean_move=float(moved.mean()),
        same_answers=float(same.mean()),
    )


def _family(
    title: str, members: Sequence[tuple[Task, BasisAnswers]], *, weights: Sequence[float]
) -> FamilyBases:
    answers = dict(_pooled(members, weights))
    rows = []
    for index, weight in enumerate(weights):
        named = {name: answers[name, weight] for name in basis_names()}
        pairs = [(name, OWN) for name in named if name != OWN]
        to_own = differences(named, pairs, metrics=METRICS)
        for place, (name, found) in enumerate(named.items()):
            signs = np.concatenate([one.signs_won[:, place, index] for _, one in members])
            rows.append(
                BasisRow(
                    basis=name,
                    weight=weight,
                    signs_won=float(signs.mean()),
                    estimates=estimates(found, METRICS),
                    to_own=to_own.get((name, OWN), ()),
                )
            )
    return FamilyBases(title, next(iter(answers.values())).sets, tuple(rows))


def _pooled(
    members: Sequence[tuple[Task, BasisAnswers]], weights: Sequence[float]
) -> Iterator[tuple[tuple[str, float], PooledPredictions]]:
    """Yield D-TPT's answers in every basis with every weight, on all data sets of a family."""
    for place, name in enumerate(basis_names()):
        for index, weight in enumerate(weights):
            sets = {}
            for task, answers in members:
                column = len(task.methods) - len(weights) + index
                sets[task.dataset.name] = [_predictions(answers, place, column=column)]
            yield (name, weight), pool(sets)


def _predictions(answers: BasisAnswers, place: int, *, column: int) -> Predictions:
    return Predictions.from_confidence(
        answers.confidence[:, place, column],
        answers.correct[:, place, column],
        p_label=answers.p_label[:, place, column],
        sum_squares=answers.sum_squares[:, place, column],
        samples=answers.samples,
    )
