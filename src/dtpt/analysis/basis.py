"""What depends on the basis of the joint space: D-TPT, and with it the dominant dimension.

Multiply the outputs of both towers by one orthogonal matrix: every cosine stays, so zero-shot, TPT,
C-TPT and O-TPT predict as before, up to rounding. D-TPT does not, because a softmax over
coordinates sees the basis. So does the notion of a dominant dimension: in a basis whose first axis
is the mean text feature, that axis carries most of every text feature; in a random basis no
dimension dominates.

The text tower's projection is multiplied in a copy of the model, the image features as they come;
everything else is computed anew in every basis. Finished data sets are kept under the study's
folder, under a digest of what decides their numbers, so that the same command again computes only
what is missing.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dtpt.analysis.images import ImageWorker, answers, prepare_pass
from dtpt.analysis.study import (
    LEGEND,
    MEASURED,
    Facts,
    Folder,
    Names,
    Study,
    StudyFamily,
    Variant,
    fact_text,
    make_folder,
    measure,
    origin_of,
    study_tables,
)
from dtpt.data.catalog import family_title
from dtpt.errors import MethodError, RunError
from dtpt.executors.pool import Announce
from dtpt.files import digest, open_regular, write_atomically
from dtpt.methods import resolve_method
from dtpt.metrics import Predictions, pool
from dtpt.options import EvalOptions, Lambda, Listed
from dtpt.runs.progress import make_reporter
from dtpt.tables import Table, text_table

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.clip.model import Clip
    from dtpt.data import Dataset, Sample
    from dtpt.runs.evaluation import Prepared
    from dtpt.runs.worker import WorkerSpec

METRICS = ("ece", *MEASURED)
OWN = "own"
RANDOM_SEEDS = (0, 1)
BASES = (OWN, *(f"random {seed}" for seed in RANDOM_SEEDS), "gap", "mean text")
EXAMPLES = 64  # images behind the mean image feature
HEADS = {"basis": "basis", "signs_won": "signs"}
TITLES = {
    "bases": "Energy of the largest dimension, DEM's gradient, signs won with each λ",
    "invariance": "Probabilities in the other bases against the own, which should be equal",
}

# One data set, n images in B bases with M methods, the last L of which are D-TPT's:
#   sample (n,); confidence, correct, p_label, sum_squares (n, B, M); against the own basis: moved,
#   the largest change of a probability, and same, whether the prediction is (n, B, M); signs_won
#   (n, B, L), the fraction of the first step's signs that DEM wins; of the class list: dominant,
#   the fraction of energy in the largest dimension, and gradient, the norm of DEM's (B,).
Columns = dict[str, npt.NDArray[Any]]


class BasisOptions(EvalOptions):
    """The options of `dtpt analyze basis`."""

    method: Annotated[
        Names, Field(description="Methods that no basis should change, comma-separated.")
    ] = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt:aligned")
    lambdas: Annotated[
        tuple[Lambda, ...],
        Listed,
        Field(min_length=1, description="λ of D-TPT, which every basis changes."),
    ] = (1e4, 3e4, 1e5, 3e5, 1e6)
    output: Folder = Path("runs/basis")


def first_axis_along(direction: "Tensor") -> "Tensor":
    """Return the reflection (D, D) after which the first coordinate is the part along a direction.

    Example:
        >>> import torch
        >>> turned = torch.tensor([[3.0, 4.0]]) @ first_axis_along(torch.tensor([3.0, 4.0]))
        >>> turned.abs().round(decimals=5).tolist()
        [[5.0, 0.0]]
    """
    length = float(direction.norm())
    if length < 1e-9:
        raise MethodError("A direction of length zero gives no axis.")
    unit = direction / length
    identity = unit.new_zeros(len(unit), len(unit)).fill_diagonal_(1.0)
    normal = identity[0] - unit
    length = float(normal.norm())
    if length < 1e-9:  # the direction is the first axis already
        return identity
    normal = normal / length
    return identity - 2 * normal.outer(normal)


def random_rotation(dimensions: int, *, seed: int) -> "Tensor":
    """Return a uniformly random orthogonal matrix (D, D), in float64."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(dimensions, dimensions, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(drawn)
    rotation: Tensor = q * r.diagonal().sign()  # which makes the distribution uniform
    return rotation


def common_bases(text: "Tensor", image_mean: "Tensor") -> "dict[str, Tensor]":
    """Return the rotations (D, D) of all bases, for (C, D) text features and a (D,) image mean.

    The model's own; random ones; the first axis along the mean text feature; and along the gap, the
    mean text feature minus the mean image feature. Features in a basis are `features @ rotation`,
    all in float64 on the CPU.
    """
    words, image = text.detach().cpu().double(), image_mean.detach().cpu().double()
    centre, dimensions = words.mean(dim=0), words.shape[1]
    rotations = [
        words.new_zeros(dimensions, dimensions).fill_diagonal_(1.0),
        *(random_rotation(dimensions, seed=seed) for seed in RANDOM_SEEDS),
        first_axis_along(centre - image),
        first_axis_along(centre),
    ]
    return dict(zip(BASES, rotations, strict=True))


def rotated(model: "Clip", rotation: "Tensor") -> "Clip":
    """Return a model whose text features are rotated; all other weights are shared.

    Image features are rotated by the caller (`features @ rotation`): they come from a cache.
    """
    from torch import nn

    tower = model.require_text()
    turned, text = copy.copy(model), copy.copy(tower)
    turned._modules = dict(model._modules)
    text._parameters = dict(tower._parameters)
    projection = tower.text_projection.detach()
    matrix = rotation.to(projection.dtype).to(projection.device)
    text.text_projection = nn.Parameter(projection @ matrix, requires_grad=False)
    turned.text = text
    return turned


def dominant_fraction(features: "Tensor") -> float:
    """Return the fraction of (n, D) unit features' energy in their largest dimension."""
    return float(features.square().mean(dim=0).max())


def basis_worker(
    announce: Announce,
    *,
    spec: "WorkerSpec",
    options: BasisOptions,
    image_mean: "Tensor",
    model: "Clip | None" = None,
) -> ImageWorker:
    """Return a worker that predicts images of the spec's only data set in all bases."""
    import torch

    if model is None:  # in a process of its own
        torch.set_num_threads(spec.threads)
        model = spec.load_model()
    answer = RotatedPredictors(spec, model, image_mean=image_mean, lambdas=len(options.lambdas))
    return ImageWorker(spec, announce, model=model, seed=options.seed[0], answer=answer)


class RotatedPredictors:
    """One predictor for every basis; an image is answered by its `Columns`.

    The gap is measured from `image_mean` (D,); the last `lambdas` methods are D-TPT's.
    """

    def __init__(
        self, spec: "WorkerSpec", model: "Clip", *, image_mean: "Tensor", lambdas: int
    ) -> None:
        from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES

        text = spec.predictor(model, 0).tuner.initial_text_features
        self._rotations = list(common_bases(text, image_mean).values())
        self._methods = spec.datasets[0].methods
        self._dem = self._methods[-lambdas:]
        budget, dem = DEFAULT_BUDGET_BYTES // len(BASES), self._dem[0].method
        self._predictors = [
            spec.predictor(rotated(model, rotation), 0, budget_bytes=budget)
            for rotation in self._rotations
        ]
        tuners = [predictor.tuner for predictor in self._predictors]
        self._of_list = {
            "dominant": np.array([dominant_fraction(t.initial_text_features) for t in tuners]),
            "gradient": np.array([float(t.regulariser_gradient(dem).norm()) for t in tuners]),
        }

    def __call__(self, sample: "Sample", views: "Tensor") -> Columns:
        """Predict one image with (N, D) views in every basis."""
        from dtpt.tuning.engine import Episode, fraction_won

        rows, signs = [], []
        for rotation, predictor in zip(self._rotations, self._predictors, strict=True):
            turned = (views.cpu().double() @ rotation).to(views)
            outcomes = predictor.answer(turned, self._methods)
            rows.append([outcome.probabilities.cpu().double().numpy() for outcome in outcomes])
            thresholds = Episode(predictor.tuner, turned).thresholds(self._dem[0])
            signs.append([fraction_won(thresholds, method.lambda_ or 0.0) for method in self._dem])
        probabilities = np.array(rows)  # (B, M, C)
        best = probabilities.argmax(axis=-1)  # (B, M)
        return {
            "confidence": probabilities.max(axis=-1),
            "correct": best == sample.label,
            "p_label": probabilities[..., sample.label],
            "sum_squares": (probabilities**2).sum(axis=-1),
            "moved": np.abs(probabilities - probabilities[:1]).max(axis=-1),
            "same": best == best[:1],
            "signs_won": np.array(signs),
            **self._of_list,
        }


def study_basis(
    options: BasisOptions,
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
) -> Study:
    """Predict all images in the model's own basis, in random ones and in aligned ones."""
    make_folder(options.output / "predictions")
    lambdas = tuple(dict.fromkeys(options.lambdas))
    options = options.model_copy(update={"lambdas": lambdas, "lambda_": ()})
    prepared = prepare_pass(options, model=model, datasets=datasets)
    dem = tuple(resolve_method("d-tpt", lambda_=value) for value in lambdas)
    facts: dict[str, list[Facts]] = {"bases": [], "invariance": []}
    families: dict[str, dict[str, Columns]] = {}
    with closing(make_reporter(quiet=options.quiet)) as reporter:
        for index, dataset in enumerate(prepared.datasets):
            entry = prepared.worker.datasets[index]
            worker = replace(
                prepared.worker, datasets=(replace(entry, methods=(*entry.methods, *dem)),)
            )
            spec = prepared.spec.model_copy(update={"datasets": (prepared.spec.datasets[index],)})
            one_set = replace(prepared, worker=worker, spec=spec, datasets=(dataset,))
            path = _path(one_set, options)
            kept = _load(path)
            reporter.start(dataset.name, len(dataset), done=len(dataset) if kept else 0)
            columns = kept or _compute(
                one_set, options, path=path, advance=partial(reporter.advance, dataset.name)
            )
            facts["bases"] += _bases(dataset, columns, lambdas=lambdas)
            facts["invariance"] += _invariance(
                dataset.name, [method.label for method in entry.methods], columns=columns
            )
            families.setdefault(dataset.family, {})[dataset.name] = columns
    notes = (*prepared.model.notes, *(note for d in prepared.datasets for note in d.notes))
    rows = tuple(_family(family_title(k), sets, lambdas=lambdas) for k, sets in families.items())
    return Study("basis", origin_of(prepared.spec, notes), rows, facts)


def _path(prepared: "Prepared", options: BasisOptions) -> Path:
    """Return the file of one data set, named after everything that decides its numbers."""
    labels = [method.label for method in prepared.worker.datasets[0].methods]
    name = digest([prepared.spec.hash, labels, BASES, options.threads or 1])[:32]
    return options.output / "predictions" / f"{name}.npz"


def _load(path: Path) -> Columns | None:
    if not path.is_file():
        return None
    try:
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise RunError(f"{path} is damaged: delete it, and it is computed again.") from error


def _compute(
    prepared: "Prepared", options: BasisOptions, *, path: Path, advance: Callable[[], None]
) -> Columns:
    """Predict the images of one data set here or in several processes, and store the columns."""
    from dtpt.runs.worker import torch_threads

    (dataset,) = prepared.datasets
    resources = prepared.resources(options, images=len(dataset))
    spec, workers = prepared.with_resources(resources), resources.workers
    with torch_threads(resources.threads):
        mean = _mean_feature(spec, dataset, model=prepared.model, seed=options.seed[0])
        factory = partial(basis_worker, spec=spec, options=options, image_mean=mean)
        if workers == 1:
            factory = partial(factory, model=prepared.model)
        images = answers(
            factory, dataset, spec=spec, workers=workers, options=options, advance=advance
        )
        rows = {sample.id: columns for sample, columns in images}
    columns = {"sample": np.array(list(rows), dtype=np.str_)}
    for key, value in next(iter(rows.values())).items():
        is_per_image = value.ndim > 1
        columns[key] = np.stack([row[key] for row in rows.values()]) if is_per_image else value
    stream = BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **columns)
    write_atomically(path, stream.getvalue())
    return columns


def _mean_feature(
    worker: "WorkerSpec", dataset: "Dataset", *, model: "Clip", seed: int
) -> "Tensor":
    """Return the mean feature (D,) of some images' original views, always the same ones."""
    import torch

    recipe = worker.datasets[0].recipe
    chosen = sorted(dataset.limited(EXAMPLES).samples, key=lambda sample: sample.id)
    with closing(worker.feature_source(model, lambda _: None)) as source:
        features = [source.get(s.id, s.image, recipe=recipe, seed=seed).values for s in chosen]
    rows = [values[0] for values in features if values is not None]
    if not rows:
        raise RunError(f"{dataset.name}: no image could be read, so there is nothing to study.")
    return torch.from_numpy(np.stack(rows).astype(np.float64).mean(axis=0))


def _bases(dataset: "Dataset", columns: Columns, *, lambdas: Sequence[float]) -> Iterator[Facts]:
    """Yield what each basis looks like to D-TPT."""
    signs = columns["signs_won"].mean(axis=0)  # (B, L)
    for index, basis in enumerate(BASES):
        yield {
            "dataset": dataset.name,
            "basis": basis,
            "classes": len(dataset.classes),
            "images": len(columns["sample"]),
            "dominant_fraction": float(columns["dominant"][index]),
            "gradient_norm": float(columns["gradient"][index]),
            **{f"signs_won@{k:g}": v for k, v in zip(lambdas, signs[index].tolist(), strict=True)},
        }


def _invariance(dataset: str, methods: Sequence[str], *, columns: Columns) -> Iterator[Facts]:
    """Yield how far the predictions moved of methods that no basis should change."""
    for index, method in enumerate(methods):
        moved = columns["moved"][:, 1:, index]  # (n, other bases)
        yield {
            "dataset": dataset,
            "method": method,
            "mean_move": float(moved.mean()),  # over images of the largest move
            "largest_move": float(moved.max()),  # of a probability
            "same_predictions": float(columns["same"][:, 1:, index].mean()),
        }


def _family(title: str, sets: Mapping[str, Columns], *, lambdas: Sequence[float]) -> StudyFamily:
    """Compare D-TPT in every basis with the own basis, for every λ."""
    variants = {}
    for column, value in enumerate(lambdas, start=-len(lambdas)):
        for index, basis in enumerate(BASES):
            predictions = {
                name: [_predictions(columns, basis=index, method=column)]
                for name, columns in sets.items()
            }
            signs = np.concatenate([c["signs_won"][:, index, column] for c in sets.values()])
            facts = {"basis": basis, "lambda": value, "signs_won": float(signs.mean())}
            reference = None if basis == OWN else f"{OWN}, λ {value:g}"
            group = f"D-TPT, λ {value:g}"
            variants[f"{basis}, λ {value:g}"] = Variant(group, facts, pool(predictions), reference)
    return measure(title, variants, metrics=METRICS)


def _predictions(columns: Columns, *, basis: int, method: int) -> Predictions:
    names = ("confidence", "correct", "p_label", "sum_squares")
    confidence, correct, p_label, squares = (columns[k][:, basis, method] for k in names)
    further = {"p_label": p_label, "sum_squares": squares, "samples": columns["sample"]}
    return Predictions.from_confidence(confidence, correct, **further)


def basis_tables(study: Study) -> Iterator[Table | str]:
    """Yield the tables of a study of bases."""
    for kind, facts in study.facts.items():
        heads = [name.replace("_", " ") for name in facts[0]]
        rows = [[fact_text(value) for value in fact.values()] for fact in facts]
        yield text_table(TITLES[kind], heads, rows=rows)
    yield from study_tables(study, HEADS)
    yield f"Other bases are shown as differences from the own one. {LEGEND}"
