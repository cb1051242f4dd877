"""What depends on the basis of the joint space: D-TPT, and with it the dominant dimension.

With `shift` it is D-TPS, whose signed step stays in the model's own basis in all of them.

In every basis of `bases.py` all cosines are the same, so zero-shot, TPT, C-TPT and O-TPT predict as
before, up to rounding. D-TPT does not, because a softmax over coordinates sees the basis. It is run
in each of them, at equal λ and at the λ that wins an equal fraction of signs. Random rotations show
what a basis without any meaning gives.

Finished data sets are kept under the study's folder, under a digest of what decides their numbers,
so that the same command again computes only what is missing.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dtpt.analysis.bases import (
    FLIPPED,
    NAMED,
    OWN,
    common_bases,
    describe_basis,
    gradient_changes,
    in_basis,
)
from dtpt.analysis.images import ImageWorker, answers, prepare_pass
from dtpt.analysis.study import (
    LEGEND,
    Facts,
    Folder,
    Fractions,
    Names,
    Study,
    StudyFamily,
    StudyOptions,
    Variant,
    fact_text,
    make_folder,
    measure,
    origin_of,
    study_tables,
    with_shift,
)
from dtpt.data.catalog import family_title
from dtpt.errors import RunError
from dtpt.executors.pool import Announce
from dtpt.files import digest, open_regular, write_atomically
from dtpt.methods import METHODS, Method, ResolvedMethod, resolve_method
from dtpt.methods.base import AutoLambda, lambda_word
from dtpt.metrics import METRICS, Conventions, PooledPredictions, Predictions, pool
from dtpt.options import Lambda, Listed
from dtpt.runs.progress import make_reporter
from dtpt.tables import Table, signed_text, text_table

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.clip.model import Clip
    from dtpt.data import Dataset, Sample
    from dtpt.runs.evaluation import Prepared
    from dtpt.runs.worker import WorkerSpec
    from dtpt.tuning import Tuner

NULL = ("accuracy", "signed_gap", "ece", "brier")
SHIFT_LAMBDAS = (1e5, 1e6, 1e7)  # a shift needs larger ones (see `dtpt.methods.tps`)
EXAMPLES = 32  # images behind the mean image feature and the λ at matched strength
HEADS = {"basis": "basis", "signs_won": "signs"}
TITLES = {
    "bases": "What DEM sees of the text features in each basis, before any image",
    "invariance": "Gradients of regularisers in the other bases against the own",
    "null": "Bases against random rotations, on the same images",
}

# One data set, n images, M methods: sample, cluster (n,); confidence, correct, p_label,
#   sum_squares (n, M); the first two methods are zero-shot and TPT, then basis by basis D-TPT at
#   each strength; facts: JSON text with lists of `Facts` by kind.
Columns = dict[str, npt.NDArray[Any]]


class BasisOptions(StudyOptions):
    """The options of `dtpt analyze basis`."""

    method: Annotated[
        Names,
        Field(description="Methods with a regulariser, whose gradients are compared in all bases."),
    ] = ("c-tpt", "o-tpt", "a-tpt", "d-tpt:aligned", "d-tpt")
    lambdas: Annotated[
        tuple[Lambda, ...], Listed, Field(description="λ of D-TPT, the same in every basis.")
    ] = (1e4, 1e5, 1e6)
    quantiles: Annotated[
        Fractions,
        Field(description="Fractions of the first step's signs to win; λ is selected per basis."),
    ] = (0.9,)
    rotations: Annotated[
        int, Field(ge=0, le=1000, description="Random rotations: the null distribution.")
    ] = 2
    output: Folder = Path("runs/basis")

    @property
    def strengths(self) -> tuple[float | AutoLambda, ...]:
        """What is set alike in every basis: λ, or the fraction of signs won."""
        matched = (AutoLambda(quantile) for quantile in dict.fromkeys(self.quantiles))
        is_default = self.shift and "lambdas" not in self.model_fields_set
        return (*dict.fromkeys(SHIFT_LAMBDAS if is_default else self.lambdas), *matched)

    @property
    def untuned(self) -> tuple[str, str]:
        """What has no basis, for reference."""
        return ("zero-shot", self.plain)

    @property
    def subject(self) -> str:
        """The method that sees the basis."""
        return f"d-{self.plain}"


@dataclass(frozen=True)
class BasisPlan:
    """What is done with each image of a data set, for a worker in any process."""

    image_mean: npt.NDArray[np.float64]  # (D,)
    rotations: int
    lambdas: npt.NDArray[np.float64]  # (bases, strengths)
    untuned: tuple[str, str]
    subject: str
    protocol: str  # of the data set: decides the learning rate of a shift

    def methods(self, tuner: "Tuner") -> list[ResolvedMethod]:
        """Return the methods without a basis, then D-TPT basis by basis at each strength."""
        subject = METHODS[self.subject]
        losses = dem_losses(tuner, self.image_mean, subject=subject, rotations=self.rotations)
        tuned = [
            resolve_method(loss, lambda_=value, protocol=self.protocol)
            for (loss, _), row in zip(losses.values(), self.lambdas.tolist(), strict=True)
            for value in row
        ]
        untuned = [resolve_method(name, protocol=self.protocol) for name in self.untuned]
        return [*untuned, *tuned]


def dem_losses(
    tuner: "Tuner", image_mean: npt.NDArray[np.float64], *, subject: Method, rotations: int
) -> "dict[str, tuple[Method, Tensor]]":
    """Return the subject (D-TPT) in every basis, with the rotation."""
    import torch

    text = tuner.initial_text_features
    bases = common_bases(text, torch.from_numpy(image_mean), rotations=rotations)
    return {name: (in_basis(subject, q, name=name), q) for name, q in bases.items()}


def basis_worker(
    announce: Announce,
    *,
    spec: "WorkerSpec",
    plan: BasisPlan,
    seed: int,
    model: "Clip | None" = None,
) -> ImageWorker:
    """Return a worker that predicts images of the spec's only data set in all bases."""
    import torch

    if model is None:  # in a process of its own
        torch.set_num_threads(spec.threads)
        model = spec.load_model()
    tuner = spec.predictor(model, 0).tuner
    answer = partial(_answer, tuner=tuner, methods=plan.methods(tuner))
    return ImageWorker(spec, announce, model=model, seed=seed, answer=answer)


def _answer(
    sample: "Sample", views: "Tensor", *, tuner: "Tuner", methods: Sequence[ResolvedMethod]
) -> Columns:
    """Predict one image with (N, D) views in every basis: the columns (M,) of one row."""
    outcomes = tuner.predict(views, methods)
    probabilities = np.array([o.probabilities.cpu().double().numpy() for o in outcomes])  # (M, C)
    return {
        "confidence": probabilities.max(axis=-1),
        "correct": probabilities.argmax(axis=-1) == sample.label,
        "p_label": probabilities[:, sample.label],
        "sum_squares": (probabilities**2).sum(axis=-1),
    }


def study_basis(
    options: BasisOptions,
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
) -> Study:
    """Predict all images in the model's own basis, and in others with the same cosines."""
    make_folder(options.output / "predictions")
    options = with_shift(options, model).model_copy(update={"lambda_": ()})
    prepared = prepare_pass(options, model=model, datasets=datasets)
    families: dict[str, dict[str, Columns]] = {}
    with closing(make_reporter(quiet=options.quiet)) as reporter:
        for index, dataset in enumerate(prepared.datasets):
            worker = replace(prepared.worker, datasets=(prepared.worker.datasets[index],))
            spec = prepared.spec.model_copy(update={"datasets": (prepared.spec.datasets[index],)})
            one_set = replace(prepared, worker=worker, spec=spec, datasets=(dataset,))
            path = _path(one_set, options)
            kept = _load(path)
            reporter.start(dataset.name, len(dataset), done=len(dataset) if kept else 0)
            columns = kept or _compute(
                one_set, options, path=path, advance=partial(reporter.advance, dataset.name)
            )
            families.setdefault(dataset.family, {})[dataset.name] = columns
    notes = (*prepared.model.notes, *(note for d in prepared.datasets for note in d.notes))
    nouns = {dataset.family: dataset.cluster_noun for dataset in prepared.datasets}
    facts: dict[str, list[Facts]] = {kind: [] for kind in TITLES}
    rows = []
    for family, sets in families.items():
        found = _found(sets)
        for kind in ("bases", "invariance"):
            facts[kind] += found[kind]
        pooled = _pooled(sets, options)
        facts["null"] += _null(family_title(family), pooled, options=options)
        rows.append(_family(family, pooled, options=options, facts=found, noun=nouns[family]))
    return Study("basis", origin_of(prepared.spec, notes), tuple(rows), facts)


def _path(prepared: "Prepared", options: BasisOptions) -> Path:
    """Return the file of one data set, named after everything that decides its numbers."""
    strengths = [str(strength) for strength in options.strengths]
    content = [prepared.spec.hash, strengths, NAMED, options.rotations, options.threads or 1]
    content += [options.subject, "weighted signs"] * options.shift
    return options.output / "predictions" / f"{digest(content)[:32]}.npz"


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
        plan, facts = _prepare(prepared, spec, options=options)
        make = partial(basis_worker, plan=plan, seed=options.seed[0])
        specs = [replace(spec, device=device) for device in prepared.devices(options)]
        factories = [partial(make, spec=own) for own in specs]
        if workers == 1:
            factories = [partial(make, spec=spec, model=prepared.model)]
        images = answers(
            factories, dataset, spec=spec, workers=workers, options=options, advance=advance
        )
        rows = dict(images)
    columns = {
        "sample": np.array([sample.id for sample in rows], dtype=np.str_),
        "cluster": np.array([sample.cluster for sample in rows], dtype=np.str_),
        "facts": np.array(json.dumps(facts)),
    }
    for key in next(iter(rows.values())):
        columns[key] = np.stack([row[key] for row in rows.values()])  # (n, M)
    stream = BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **columns)
    write_atomically(path, stream.getvalue())
    return columns


def _prepare(
    prepared: "Prepared", spec: "WorkerSpec", *, options: BasisOptions
) -> tuple[BasisPlan, dict[str, list[Facts]]]:
    """Select λ where the strength is matched, and describe all bases of one class list."""
    (dataset,), tuner = prepared.datasets, spec.predictor(prepared.model, 0).tuner
    views = list(_examples(spec, dataset, model=prepared.model, seed=options.seed[0]))
    mean = np.stack([each[0].cpu().double().numpy() for each in views]).mean(axis=0)
    subject = METHODS[options.subject]
    losses = dem_losses(tuner, mean, subject=subject, rotations=options.rotations)
    lambdas, bases = [], []
    for basis, (loss, rotation) in losses.items():
        row, facts = _strengths(tuner, loss, views=views, strengths=options.strengths)
        lambdas.append(row)
        where = {"dataset": dataset.name, "basis": basis, "classes": len(dataset.classes)}
        bases.append(where | describe_basis(tuner, loss, rotation=rotation) | facts)
    rotations = {basis: rotation for basis, (_, rotation) in losses.items()}
    methods = [resolve_method(name).method for name in options.method]
    invariance = [
        {"dataset": dataset.name, **fact} for fact in gradient_changes(tuner, methods, rotations)
    ]
    plan = BasisPlan(
        mean,
        rotations=options.rotations,
        lambdas=np.array(lambdas),
        untuned=options.untuned,
        subject=options.subject,
        protocol=dataset.protocol,
    )
    return plan, {"bases": bases, "invariance": invariance}


def _examples(
    worker: "WorkerSpec", dataset: "Dataset", *, model: "Clip", seed: int
) -> "Iterator[Tensor]":
    """Yield the view features (N, D) of some images, always the same ones."""
    recipe, count = worker.datasets[0].recipe, 0
    chosen = sorted(dataset.limited(EXAMPLES).samples, key=lambda sample: sample.id)
    with closing(worker.feature_source(model, lambda _: None)) as source:
        for sample in chosen:
            features = source.get(sample.id, sample.image, recipe=recipe, seed=seed)
            if features.values is not None:
                count += 1
                yield features.tensor(model.device)
    if not count:
        raise RunError(f"{dataset.name}: no image could be read, so there is nothing to study.")


def _strengths(
    tuner: "Tuner",
    loss: Method,
    *,
    views: "Sequence[Tensor]",
    strengths: Sequence[float | AutoLambda],
) -> tuple[list[float], Facts]:
    """Return λ at each strength, and the fraction of the first step's signs that it wins."""
    import torch

    from dtpt.tuning.engine import Episode, fraction_won, lambda_for_quantile

    method = resolve_method(loss)
    signs = [Episode(tuner, each).signs(method) for each in views]
    thresholds, weights = (torch.cat(parts) for parts in zip(*signs, strict=True))
    lambdas, facts = [], {}
    for strength in strengths:
        if isinstance(strength, AutoLambda):
            value = lambda_for_quantile(thresholds, strength.quantile, weights=weights)
            facts[f"lambda@{strength}"] = value
        else:
            value = strength
        lambdas.append(value)
        facts[f"signs_won@{_text(strength)}"] = fraction_won(thresholds, value, weights=weights)
    return lambdas, facts


def _text(strength: float | AutoLambda) -> str:
    return str(strength) if isinstance(strength, AutoLambda) else lambda_word(strength)


def _found(sets: Mapping[str, Columns]) -> dict[str, list[Facts]]:
    """Return the facts of several data sets, by kind."""
    read = [json.loads(str(columns["facts"])) for columns in sets.values()]
    return {kind: [fact for found in read for fact in found[kind]] for kind in read[0]}


def _pooled(
    sets: Mapping[str, Columns], options: BasisOptions
) -> dict[tuple[str, str], PooledPredictions]:
    """Pool the images of a family, by basis and strength; TPT and zero-shot have none."""
    random = (f"random {k}" for k in range(options.rotations))
    keys = [(name, "") for name in options.untuned]
    keys += [(b, _text(s)) for b in (*NAMED, *random) for s in options.strengths]
    return {
        key: pool({name: [_predictions(c, method=index)] for name, c in sets.items()})
        for index, key in enumerate(keys)
    }


def _predictions(columns: Columns, *, method: int) -> Predictions:
    names = ("confidence", "correct", "p_label", "sum_squares")
    confidence, correct, p_label, squares = (columns[name][:, method] for name in names)
    return Predictions.from_confidence(
        confidence,
        correct,
        p_label=p_label,
        sum_squares=squares,
        samples=columns["sample"],
        clusters=columns["cluster"],
    )


def _family(
    family: str,
    pooled: Mapping[tuple[str, str], PooledPredictions],
    *,
    options: BasisOptions,
    facts: Mapping[str, Sequence[Facts]],
    noun: str,
) -> StudyFamily:
    """Compare D-TPT in every named basis with the own one, and flipped axes with unflipped."""
    variants = {
        name: Variant("without a regulariser", {"basis": name}, pooled[name, ""])
        for name in options.untuned
    }
    for strength in options.strengths:
        text = _text(strength)
        for basis in NAMED:
            of_basis = [fact for fact in facts["bases"] if fact["basis"] == basis]
            signs = float(np.mean([fact[f"signs_won@{text}"] for fact in of_basis]))
            value = None if isinstance(strength, AutoLambda) else strength
            unflipped = basis.removesuffix(FLIPPED)
            variants[f"{basis}, @{text}"] = Variant(
                f"{options.subject.upper()}@{text}",
                {"basis": basis, "lambda": value, "signs_won": signs},
                pooled[basis, text],
                None if basis == OWN else f"{OWN}, @{text}",
                () if unflipped in (basis, OWN) else (f"{unflipped}, @{text}",),
            )
    return measure(family_title(family), variants, noun=noun)


def _null(
    family: str,
    pooled: Mapping[tuple[str, str], PooledPredictions],
    *,
    options: BasisOptions,
) -> Iterator[Facts]:
    """Yield each named basis beside the random ones, on the same images.

    p is the fraction of all rotations, this one included, that are as far from their mean: a
    permutation test of "this basis is a random one", with images and labels fixed.
    """
    for text in map(_text, options.strengths):
        for metric in NULL if options.rotations else ():
            values = {basis: _value(metric, pooled[basis, text]) for basis in NAMED}
            random = [_value(metric, pooled[f"random {k}", text]) for k in range(options.rotations)]
            for basis, value in values.items():
                drawn = np.array([value, *random])
                far = np.abs(drawn - drawn.mean())
                yield {
                    "family": family,
                    "strength": text,
                    "metric": metric,
                    "basis": basis,
                    "value": value,
                    "random": random,
                    "p": float((far >= far[0] - 1e-12).mean()),
                }


def _value(metric: str, predictions: PooledPredictions) -> float:
    return float(METRICS[metric].value(predictions.seeds[0], Conventions()))


def basis_tables(study: Study) -> Iterator[Table | str]:
    """Yield the tables of a study of bases."""
    for kind in ("bases", "invariance"):
        facts = [f for f in study.facts[kind] if not f.get("basis", "").startswith("random")]
        heads = [name.replace("_", " ") for name in facts[0]]
        rows = [[_fact(name, value) for name, value in fact.items()] for fact in facts]
        yield text_table(TITLES[kind], heads, rows=rows)
    if study.facts["null"]:
        yield _null_table(study.facts["null"])
    yield from study_tables(study, HEADS)
    yield f"Other bases are shown as differences from the own one. {LEGEND}"


def _fact(name: str, value: Any) -> str:
    signed = ("cosine", "prompt_cosine", "dominant_mean")
    return signed_text(value, 3) if name in signed else fact_text(value)


def _null_table(facts: Sequence[Facts]) -> Table:
    """Return the range of random bases, and every other basis with its p-value."""
    rows: dict[tuple[str, str], dict[str, list[str]]] = {}
    for fact in facts:
        metric = METRICS[fact["metric"]]
        by_basis = rows.setdefault((fact["family"], f"@{fact['strength']}"), {})
        if fact["basis"] == OWN:
            ends = (metric.text(end) for end in (min(fact["random"]), max(fact["random"])))
            name = f"{len(fact['random'])} random"
            by_basis.setdefault(name, []).append(" to ".join(ends))
        text = f"{metric.text(fact['value'])} (p {fact['p']:.2g})"
        by_basis.setdefault(fact["basis"], []).append(text)
    heads = ("family", "DEM", "basis", *(METRICS[key].title for key in NULL))
    lines = [(*key, name, *texts) for key, by in rows.items() for name, texts in by.items()]
    return text_table(TITLES["null"], heads, rows=lines)
