"""Feature packs and runs: how packs are made, and what a pack fixes for a run on it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dtpt.data.dataset import Dataset, Sample
from dtpt.data.loading import load_dataset
from dtpt.data.pack import (
    Array,
    CarriedFeatures,
    DType,
    Manifest,
    Pack,
    PackSamples,
    PackWriter,
    ViewGroup,
    pack_dataset,
)
from dtpt.errors import DatasetError, OptionError, RunError
from dtpt.executors.cluster import MOST_VIEW_WORKERS
from dtpt.files import AnyPath, as_path
from dtpt.machine import package_version, usable_cores
from dtpt.options import EvalOptions
from dtpt.runs.progress import Reporter
from dtpt.runs.resources import SECONDS_TO_START
from dtpt.views.recipe import ViewRecipe

if TYPE_CHECKING:
    from dtpt.clip.loading.features import FeatureModel
    from dtpt.clip.model import Clip
    from dtpt.runs.evaluation import Prepared
    from dtpt.runs.reading import Run
    from dtpt.runs.spec import DatasetSpec
    from dtpt.runs.worker import EvaluatedSet

OWN_METHODS = ("zero-shot", "mean-views", "d-tps")  # where neither methods nor model are given
KEPT = 1e-6  # by which the length of a feature may differ from 1 to keep its bits


def with_pack_defaults(options: EvalOptions, datasets: Sequence[Dataset]) -> EvalOptions:
    """Return options in which what was not given comes from the packs among some data sets.

    Raises:
        OptionError: They were made in different ways, so that one option does not fit all.
    """
    if all(dataset.pack is None for dataset in datasets):
        return options
    update = {}
    for name in ("model", "template", "views", "seed"):
        if name in options.model_fields_set:
            continue
        usual = getattr(options, name)
        values = [_defaults(dataset.pack).get(name) or usual for dataset in datasets]
        if len(set(values)) > 1:
            raise OptionError(
                f"The data sets were made with different values of {name} "
                f"({', '.join(map(str, dict.fromkeys(values)))}): give `{name}={values[0]}`, or "
                "evaluate them one by one."
            )
        update[name] = values[0]
    is_own = "model" in update and str(update["model"]).startswith("features:")
    if is_own and "method" not in options.model_fields_set:
        update["method"] = OWN_METHODS
    return options.model_copy(update=update)


def _defaults(pack: Pack | None) -> dict[str, Any]:
    if pack is None:
        return {}
    made, first = pack.manifest, pack.manifest.views[0]
    values: dict[str, Any] = {"template": made.template, "views": first.views, "model": made.model}
    values["seed"] = tuple(dict.fromkeys(group.seed for group in made.views))
    if made.text is not None:  # no other model is needed
        values["model"] = f"features:{pack.folder.absolute()}"
    return values


def pack_recipe(pack: Pack, *, views: int) -> ViewRecipe:
    """Return the recipe of a pack's first views, with another number of them."""
    recipe = pack.manifest.views[0].recipe or ViewRecipe(augmix=False)
    return recipe.model_copy(update={"count": views})


def check_packs(
    datasets: Sequence[Dataset],
    entries: "Sequence[EvaluatedSet]",
    *,
    model: "Clip",
    seeds: Sequence[int],
) -> None:
    """Refuse packs of another model, or without the views that the methods need.

    Raises:
        RunError: A pack's features are those of another image tower.
        DatasetError: A pack lacks views.
    """
    for dataset, entry in zip(datasets, entries, strict=True):
        if dataset.pack is None:
            continue
        made = dataset.pack.manifest
        theirs, ours = made.fingerprint, model.image_fingerprint
        if theirs and ours and theirs != ours:  # text features by themselves have none
            raise RunError(
                f"The features of {dataset.name} were made by {made.model or 'another model'} "
                f"(fingerprint {theirs[:12]}…), not by {model.name or 'this one'} ({ours[:12]}…): "
                "give the model that made them."
            )
        if made.dimensions != model.config.embed_dim:
            raise RunError(
                f"The features of {dataset.name} have {made.dimensions} dimensions, those of "
                f"{model.name or 'the model'} {model.config.embed_dim}."
            )
        dataset.pack.check_text()
        for seed in seeds:
            for members in entry.groups.values():
                dataset.pack.group(entry.recipe_for(members), seed)


def export_pack(
    run: "Run",
    folder: Path,
    *,
    model: "Clip | None" = None,
    dataset: str | None = None,
    dtype: DType = "float16",
    text: bool = False,
    data_root: Path | None = None,
    device: str = "auto",
    licence: str = "",
    source: str = "",
    reporter: Reporter | None = None,
) -> Pack:
    """Write the features of a run's images to a pack; the same call again resumes.

    Features come from the cache; those that are not there are encoded.

    Args:
        run: Whose model, images, views and seeds are taken. Images that failed are left out.
        folder: Of the pack.
        model: The run's model, if it is in memory.
        dataset: Of the run, if it has several.
        dtype: Of the stored features; float32 gives rows of the same bits as the images do.
        text: Also store the text features of the run's prompts.
        data_root: Folder that holds the paper's sets.
        device: Where features are encoded that the cache lacks.
        licence: Of images and model, in words.
        source: Of images and model, in words.
        reporter: Shows progress.

    Raises:
        RunError: The images or the model are not those of the run.
        DatasetError: The folder holds another pack, or cannot be written.
    """
    entry = _one_dataset(run, dataset)
    data = _same_dataset(run, entry, data_root=data_root)
    prepared = _prepared(run, entry, dataset=data, model=model, device=device)
    samples, keys = _samples(run, data)
    manifest = _manifest(prepared, data, images=len(samples)).model_copy(
        update={"dtype": dtype, "licence": licence, "source": source}
    )
    writer = PackWriter(folder, manifest, samples=PackSamples.of(samples, keys))
    if text:
        _write_text(writer, _text_model(prepared))
    _write_shards(
        writer,
        prepared,
        samples=list(zip(samples, keys, strict=True)),
        groups=manifest.views,
        reporter=reporter or Reporter(),
    )
    return writer.finish()


def write_pack(
    folder: AnyPath,
    features: npt.ArrayLike,
    *,
    classes: Sequence[str],
    labels: Sequence[int],
    ids: Sequence[str] | None = None,
    clusters: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    model: "Clip | None" = None,
    text: "FeatureModel | None" = None,
    dtype: DType = "float16",
    licence: str = "",
    source: str = "",
) -> Dataset:
    """Write features that were computed elsewhere to a pack, and return its data set.

    Args:
        folder: Of the pack; what a killed call finished is kept.
        features: (n, D), or (n, views, D) with the original view first; rows of any length, which
            are divided by it. An array that is mapped into memory is read piece by piece.
        classes: Class names.
        labels: (n,) indices into the classes.
        ids: (n,) names of the samples; numbers when not given.
        clusters: (n,) samples of one cluster are not independent; none are when not given.
        keys: (n,) content keys: equal keys, equal images; hashes of the features when not given.
        model: Whose image features they are; another model is then refused.
        text: The text features of the classes; with them the pack is evaluated without a model.
        dtype: Of the stored features.
        licence: Of the data, in words.
        source: Of the data, in words.

    Raises:
        DatasetError: The arrays do not fit each other, a feature is zero or not finite, or the
            folder holds another pack.

    Example:
        >>> rows = np.eye(6, 16)
        >>> birds = write_pack("birds", rows, classes=["owl", "gull"], labels=[0, 1] * 3)
        >>> len(birds), birds.pack.manifest.dimensions
        (6, 16)
    """
    values, home = _view_array(features), as_path(folder, "folder")
    columns = {"labels": labels, "ids": ids, "clusters": clusters, "keys": keys}
    samples, content = _array_samples(values, columns)
    Dataset(home.name, tuple(classes), samples)  # refuses labels and ids that no data set has
    made = _array_manifest(values, home.name, classes=classes, model=model, text=text)
    manifest = made.model_copy(update={"dtype": dtype, "licence": licence, "source": source})
    writer = PackWriter(home, manifest, samples=PackSamples.of(samples, content))
    for group, images in writer.missing:
        writer.write(group, images=images, features=_unit(values[images.start : images.stop]))
    if text is not None:
        _write_text(writer, text)
    return pack_dataset(writer.finish())


def _array_manifest(
    values: npt.NDArray[Any],
    name: str,
    *,
    classes: Sequence[str],
    model: "Clip | None",
    text: "FeatureModel | None",
) -> Manifest:
    if text is not None:
        text.fixed_text.of(classes)  # refuses other classes
    return Manifest(
        dtpt=package_version("dtpt"),
        dataset=name,
        classes=tuple(classes),
        images=len(values),
        dimensions=values.shape[2],
        model="" if model is None else model.name,
        fingerprint="" if model is None else model.image_fingerprint,
        template=None if text is None else text.fixed_text.prompt or None,
        views=(ViewGroup(views=values.shape[1]),),
    )


def _view_array(features: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return features as (n, views, D), without a copy of an array."""
    values = np.asanyarray(features)
    if values.ndim == 2:
        values = values[:, None]  # (n, D) -> (n, 1, D)
    if values.ndim != 3 or 0 in values.shape or values.dtype.kind not in "fiu":
        raise DatasetError(
            f"Features must be numbers (n, D) or (n, views, D), got {values.dtype} {values.shape}."
        )
    return values


def _array_samples(
    values: npt.NDArray[Any], columns: Mapping[str, Sequence[Any] | None]
) -> tuple[list[Sample], list[str]]:
    """Return samples and content keys; columns that are not given follow from the features."""
    n, given = len(values), {k: list(v) for k, v in columns.items() if v is not None}
    for column, entries in given.items():
        if len(entries) != n:
            raise DatasetError(f"{len(entries):,} {column} for features of {n:,} samples.")
    ids = given.get("ids") or [f"{k:0{len(str(n - 1))}d}" for k in range(n)]
    clusters = given.get("clusters") or ids
    keys = given.get("keys") or [hashlib.sha256(each.tobytes()).hexdigest() for each in values]
    images = [CarriedFeatures(values[k], str(keys[k]), digest="") for k in range(n)]
    samples = [
        Sample(str(ids[k]), int(given["labels"][k]), images[k], cluster=str(clusters[k]))
        for k in range(n)
    ]
    return samples, [image.key() for image in images]


def _unit(values: npt.NDArray[Any]) -> Array:
    """Divide features (n, views, D) by their lengths; those of length 1 keep their bits."""
    with np.errstate(all="ignore"):  # what is not finite is refused below
        values = np.asarray(values, dtype=np.float32)
        lengths = np.linalg.norm(values, axis=-1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise DatasetError("Features contain a row that is zero or not finite.")
    return np.where(np.abs(lengths - 1) < KEPT, values, values / lengths)


def _one_dataset(run: "Run", name: str | None) -> "DatasetSpec":
    chosen = run.datasets if name is None else [each for each in run.datasets if each == name]
    if len(chosen) != 1:
        raise RunError(f"{run.path}: choose one data set: {', '.join(run.datasets)}.")
    return run.spec.dataset(chosen[0])


def _same_dataset(run: "Run", entry: "DatasetSpec", *, data_root: Path | None) -> Dataset:
    """Load the data set of a run, without the images that failed."""
    full = load_dataset(
        entry.name,
        data_root=data_root,
        presentation=entry.presentation,
        cluster_level=entry.cluster_level,
        partial=True,
    )
    if full.fingerprint != entry.fingerprint:
        raise RunError(f"{entry.name} has other samples or classes here than in {run.path}.")
    return full if entry.limit is None else full.limited(entry.limit)


def _samples(run: "Run", dataset: Dataset) -> tuple[list[Sample], list[str]]:
    """Return the samples that can be read, with their content keys."""
    failed = {each.sample for each in run.failures() if each.dataset == dataset.name}
    stored = run.samples(dataset.name)
    samples = [sample for sample in dataset.samples if sample.id not in failed]
    if not samples:
        raise RunError(f"{run.path}: no image of {dataset.name} could be read.")
    known = (stored[s.id].image_key if s.id in stored else None for s in samples)
    return samples, [key or s.image.key() for s, key in zip(samples, known, strict=True)]


def _prepared(
    run: "Run",
    entry: "DatasetSpec",
    *,
    dataset: Dataset,
    model: "Clip | None",
    device: str,
) -> "Prepared":
    from dtpt.runs.evaluation import prepare

    spec, sessions = run.spec, run.sessions()
    environment = sessions[-1].get("environment", {}) if sessions else {}
    options = EvalOptions.parse(
        {
            "model": spec.model.name,
            "dataset": (entry.name,),
            "method": tuple(method.label for method in entry.methods),
            "seed": spec.seeds,
            "views": entry.views["count"],
            "precision": spec.precision,
            "device": device,
            "threads": environment.get("threads"),
            **({"template": spec.template} if spec.context is None else {}),
        }
    )
    prepared = prepare(options, model=model, datasets=[dataset])
    if prepared.model.fingerprint != spec.model.fingerprint:
        raise RunError(
            f"{spec.model.name} is another model here than in {run.path}: fingerprint "
            f"{prepared.model.fingerprint[:12]}… instead of {spec.model.fingerprint[:12]}…"
        )
    return prepared


def _manifest(prepared: "Prepared", dataset: Dataset, *, images: int) -> Manifest:
    model, spec = prepared.model, prepared.spec
    return Manifest(
        dtpt=package_version("dtpt"),
        dataset=dataset.name,
        classes=dataset.classes,
        protocol=dataset.protocol,
        whole=dataset.whole,
        cluster_noun=dataset.cluster_noun,
        images=images,
        dimensions=model.config.embed_dim,
        model=model.name,
        fingerprint=model.image_fingerprint,
        precision=model.precision,
        preprocessing=model.preprocessing.model_dump(mode="json"),
        template=spec.template if spec.context is None else None,
        views=tuple(_groups(prepared)),
    )


def _groups(prepared: "Prepared") -> Iterator[ViewGroup]:
    """Yield the views of every seed, and of methods that have views of their own."""
    from dtpt.clip.model import view_batches, views_per_batch

    (entry,), visual = prepared.worker.datasets, prepared.model.visual
    for seed in prepared.spec.seeds:
        for members in entry.groups.values():
            recipe = entry.recipe_for(members)
            batches = view_batches(recipe.count, size=views_per_batch(visual))
            ends = [batch.stop for batch in batches]
            if prepared.model.device.type != "cpu":  # one pass; the original view is always served
                ends = sorted({1, recipe.count})
            yield ViewGroup(recipe=recipe, seed=seed, views=recipe.count, prefixes=tuple(ends))


def _write_text(writer: PackWriter, model: "FeatureModel") -> None:
    """Store text features; with them the folder is a model of parts, too."""
    from dtpt.clip.loading.features import TEXT_FILE

    model.save(writer.folder)
    writer.add_text(TEXT_FILE)


def _text_model(prepared: "Prepared") -> "FeatureModel":
    from dtpt.clip.loading.features import FeatureModel

    if prepared.spec.context is not None:
        raise OptionError("Text features of a trained context are not stored: drop `text=True`.")
    tuner, classes = (
        prepared.worker.predictor(prepared.model, 0).tuner,
        prepared.datasets[0].classes,
    )
    features, prompt = tuner.initial_text_features, prepared.spec.template
    return FeatureModel(classes, features, prompt=prompt, logit_scale=tuner.logit_scale)


def _write_shards(
    writer: PackWriter,
    prepared: "Prepared",
    *,
    samples: Sequence[tuple[Sample, str]],
    groups: Sequence[ViewGroup],
    reporter: Reporter,
) -> None:
    """Write the shards that are missing, in order; samples come with their content keys."""
    from dtpt.runs.worker import torch_threads

    missing = writer.missing
    images = sum(len(shard) for _, shard in missing)
    if not missing:
        return
    is_little = images * prepared.work(images).image_seconds < SECONDS_TO_START
    view_workers = 0 if is_little else max(usable_cores() - prepared.worker.threads, 0)
    worker = replace(prepared.worker, view_workers=min(view_workers, MOST_VIEW_WORKERS))
    source = worker.feature_source(prepared.model, lambda _: None)
    with torch_threads(worker.threads), closing(source), closing(reporter):
        reporter.start(str(writer.folder), images, done=0)
        for number, shard in missing:
            group = groups[number]
            recipe = group.recipe or ViewRecipe(count=group.views)
            for index in shard:
                image = samples[index][0].image
                source.add(index, image, recipe=recipe, seed=group.seed)
            values: dict[int, Array] = {}
            while source.pending:
                index, features = source.next()
                sample, key = samples[index]
                if features.values is None or features.image_key != key:
                    reason = features.failure or "it has changed since the run."
                    raise RunError(f"{sample.id} cannot be exported: {reason}")
                values[index] = features.values
                reporter.advance(str(writer.folder))
            stacked = np.stack([values[index] for index in shard])  # (n, N, D)
            writer.write(number, images=shard, features=stacked)
