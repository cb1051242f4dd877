"""Runs on feature packs: their rows are those of the images, and nothing else is accepted."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_runs import draw_images, named_options, tiny_clip

import dtpt
from dtpt.clip.loading import load_model
from dtpt.data import pack as module
from dtpt.data.pack import open_pack
from dtpt.errors import DatasetError, MethodError, OptionError, PromptError, RunError
from dtpt.executors.pool import InlineExecutor
from dtpt.runs import EvalOptions, run_options
from dtpt.runs.cluster import NodeWorker, RunDeployment, probe_images
from dtpt.runs.evaluation import prepare
from dtpt.runs.packing import export_pack, write_pack
from dtpt.runs.reading import open_run
from dtpt.runs.worker import ImageTask, RunWorker

METHODS = ("zero-shot", "tpt", "d-tpt", "mean-views", "zero:published")


@pytest.fixture(scope="module")
def model(home):
    return load_model(f"local-dir:{home / 'tiny'}", device="cpu")


@pytest.fixture(scope="module")
def source(home, model, tmp_path_factory):
    """A run on images, with two seeds and two kinds of views."""
    folder = tmp_path_factory.mktemp("source") / "run"
    options = named_options(home, folder, method=METHODS, views=8, seed=(3, 4), limit=10)
    run_options(options, model=model).close()
    return folder


@pytest.fixture
def exported(source, model, tmp_path):
    def export(**changes):
        with open_run(source) as run:
            given = {"dtype": "float32", "model": model}
            return export_pack(run, tmp_path / "pack", **given | changes)

    return export


def on_pack(pack, output, *, model=None, **changes):
    """Evaluate a pack with a model in memory, or with the one that it names."""
    given = {"dataset": (f"pack:{pack.folder}",), "method": METHODS, "rho": 0.5, "quiet": True}
    return run_options(EvalOptions(**(given | {"output": output} | changes)), model=model)


def rows(run):
    return [
        (cell.method, cell.lambda_, cell.seed, row)
        for cell in run.cells
        for row in run.stored_rows(cell)
    ] + [run.probabilities(cell)[1].tobytes() for cell in run.cells]


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_of_a_pack_are_those_of_the_images(source, exported, tmp_path, workers):
    with on_pack(exported(), tmp_path / "run", workers=workers) as run, open_run(source) as images:
        assert rows(run) == rows(images)
        assert run.spec.seeds == (3, 4)
        assert run.spec.model == images.spec.model
        assert run.spec.datasets[0].views == images.spec.datasets[0].views
        keys = [
            {name: sample.image_key for name, sample in each.samples(each.datasets[0]).items()}
            for each in (run, images)
        ]
        assert keys[0] == keys[1]
        assert run.sessions()[0]["encoded_images"] == 0


def test_fewer_views_are_the_first_ones(home, model, exported, tmp_path):
    options = named_options(home, tmp_path / "one", method=("zero-shot",), seed=(3,), limit=10)
    with run_options(options, model=model) as images:
        method = {"method": ("zero-shot",), "seed": (3,), "views": 1, "model": model}
        with on_pack(exported(), tmp_path / "run", **method) as run:
            assert rows(run) == rows(images)


def test_pack_of_half_the_bytes_has_nearly_the_same_rows(source, model, exported, tmp_path):
    with (
        on_pack(exported(dtype="float16"), tmp_path / "run", model=model) as run,
        open_run(source) as images,
    ):
        ours, theirs = run.rows(), images.rows()
        assert (ours.sample == theirs.sample).all()
        assert abs(ours.p_label - theirs.p_label).max() < 0.05


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"views": 16}, DatasetError),
        ({"views": 4}, DatasetError),
        ({"seed": (0,)}, DatasetError),
        ({"model": tiny_clip(seed=1)}, RunError),
        ({"presentation": "full"}, DatasetError),
    ],
)
def test_what_the_pack_lacks_is_refused_before_any_work(model, exported, tmp_path, changes, error):
    pack = exported()
    with pytest.raises(error):
        on_pack(pack, tmp_path / "run", **{"model": model} | changes)
    assert not (tmp_path / "run").exists()


def test_another_pack_in_the_folder_does_not_continue_the_run(model, exported, tmp_path):
    pack = exported()
    on_pack(pack, tmp_path / "run", model=model, seed=(3,)).close()
    path = pack.folder / "pack.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"licence": "CC0"}))
    with pytest.raises(RunError):
        on_pack(pack, tmp_path / "run", model=model, seed=(3,))


def test_packs_of_different_seeds_need_a_seed(home, model, exported, tmp_path):
    pack = exported()
    options = named_options(home, tmp_path / "other", views=8, limit=4)
    with run_options(options, model=model) as run:
        second = export_pack(run, tmp_path / "second", model=model)
    both = {"dataset": tuple(f"pack:{each.folder}" for each in (pack, second))}
    with pytest.raises(OptionError):
        on_pack(pack, tmp_path / "run", model=model, **both)


def test_export_continues_and_adds_text_features(exported):
    pack = exported()
    shards = {path: path.stat().st_mtime_ns for path in pack.folder.glob("views-*")}
    assert len(shards) == 4  # two seeds, with and without AugMix
    more = exported(text=True)
    assert {path: path.stat().st_mtime_ns for path in shards} == shards
    assert load_model(f"features:{pack.folder}").fixed_text.features.shape == (3, 16)
    first = sorted(shards)[0]
    first.write_bytes(b"damaged")
    assert exported(text=True) == more
    assert list(more.verify()) == []


def test_pack_with_text_features_is_a_model(source, exported, tmp_path):
    pack = exported(text=True)
    with on_pack(pack, tmp_path / "run", method=("zero-shot", "mean-views")) as run:
        assert run.spec.model.name == f"features:{pack.folder}"
        with open_run(source) as images:
            for method in ("zero-shot", "mean-views"):
                ours, theirs = run.rows(method=method), images.rows(method=method)
                assert (ours.p_label == theirs.p_label).all()
                assert (ours.entropy == theirs.entropy).all()
    given = {"dataset": (f"pack:{pack.folder}",), "quiet": True, "output": tmp_path / "default"}
    with run_options(EvalOptions(**given)) as run:
        assert {cell.method for cell in run.cells} == {"zero-shot", "mean-views", "d-tps"}
    with pytest.raises(MethodError):
        on_pack(pack, tmp_path / "other", method=("tpt",))
    text = pack.folder / "text_features.safetensors"
    text.write_bytes(text.read_bytes()[:-1] + b"!")
    with pytest.raises(DatasetError):
        on_pack(pack, tmp_path / "other", method=("zero-shot",))


ARRAYS = np.random.default_rng(0).normal(size=(12, 5, 16)) * 7
NAMES = ("owl", "gull", "tern")


def test_arrays_are_evaluated_without_a_model(tmp_path):
    text = dtpt.FeatureModel(NAMES, torch.from_numpy(ARRAYS[:3, 0]), logit_scale=10.0)
    labels = [k % 3 for k in range(12)]
    given = {"classes": NAMES, "labels": labels, "text": text, "dtype": "float32"}
    data = dtpt.write_pack(tmp_path / "pack", ARRAYS, **given)
    views = ARRAYS / np.linalg.norm(ARRAYS, axis=-1, keepdims=True)
    logits = 10 * views[:, 0] @ views[:3, 0].T
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    with dtpt.evaluate(data, method="zero-shot", output=tmp_path / "run", quiet=True) as run:
        rows = run.rows()
        assert rows.label.tolist() == labels
        assert np.allclose(rows.p_label, wanted[np.arange(12), labels], atol=1e-6)
    methods = ("zero-shot", "mean-views", "vte", "zero", "zero:published", "mta", "d-tps")
    by_name = {"output": tmp_path / "named", "method": methods, "seed": 5, "quiet": True}
    with dtpt.evaluate(f"pack:{tmp_path / 'pack'}", **by_name) as run:
        assert {each[0] for each in run.counts().values()} == {12}
    with pytest.raises(DatasetError):
        dtpt.evaluate(data, views=6, output=tmp_path / "more", quiet=True)


def test_plain_features_have_one_view_and_content_keys(tmp_path, model):
    rows = np.concatenate([ARRAYS[:6, 0], ARRAYS[:1, 0]]).astype(np.float16)
    data = write_pack(tmp_path, rows, classes=NAMES, labels=[0] * 7, model=model)
    keys = [sample.image.key() for sample in data.samples]
    assert keys[0] == keys[6]
    assert len(set(keys)) == 6
    assert data.pack.manifest.fingerprint == model.image_fingerprint
    with pytest.raises(RunError):
        on_pack(data.pack, tmp_path / "run", model=tiny_clip(seed=1), method=("zero-shot",))


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": [0]},
        {"labels": [3] * 12},
        {"ids": ["a"] * 12},
        {"clusters": ["a"]},
        {"classes": ()},
        {"text": dtpt.FeatureModel(("owl",), torch.ones(1, 16))},
        {"features": ARRAYS[0, 0]},
        {"features": np.zeros((12, 16))},
        {"features": np.full((12, 16), np.nan)},
        {"features": np.full((12, 16), "a")},
    ],
)
def test_arrays_that_make_no_pack_are_refused(tmp_path, changes):
    given = {"features": ARRAYS, "classes": NAMES, "labels": [0] * 12} | changes
    with pytest.raises((DatasetError, PromptError)):
        write_pack(tmp_path / "pack", given.pop("features"), **given)
    with pytest.raises(DatasetError):
        open_pack(tmp_path / "pack")


def test_changed_image_or_model_is_not_exported(model, tmp_path, noise):
    draw_images(tmp_path / "images", per_class=2)
    with run_options(named_options(tmp_path, tmp_path / "run"), model=model) as run:
        with pytest.raises(RunError):
            export_pack(run, tmp_path / "pack", model=tiny_clip(seed=1))
        noise(tmp_path / "images" / "cat" / "000.png")
        with pytest.raises(RunError):
            export_pack(run, tmp_path / "pack", model=model)
    with pytest.raises(DatasetError):
        open_pack(tmp_path / "pack")


def test_damaged_pack_ends_the_run(model, exported, tmp_path):
    pack = exported()
    shard = next(pack.folder.glob("views-*"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    module._opened.cache_clear()
    with pytest.raises(DatasetError):
        on_pack(pack, tmp_path / "run", model=model)


def test_node_without_the_pack_receives_features_with_its_tasks(model, exported, tmp_path):
    pack = exported()
    dataset = (f"pack:{pack.folder}",)
    options = EvalOptions(dataset=dataset, method=METHODS, output=tmp_path / "run")
    prepared = prepare(options, model=model)
    spec = replace(prepared.worker, cache=False)
    deployment = RunDeployment(NodeWorker(spec, ["reference"]), lambda: {0})
    assert len(probe_images(prepared.datasets)[0]) == 10
    groups = prepared.worker.datasets[0].groups.values()
    tasks = [
        ImageTask(0, seed, sample, methods)
        for seed in (3, 4)
        for methods in groups
        for sample in prepared.datasets[0].samples[:2]
    ]
    sent = [deployment.localise(task, {0}) for task in tasks]
    here = [_answer(prepared, spec, task) for task in tasks]
    (pack.folder / "pack.json").unlink()
    module._opened.cache_clear()
    assert [_answer(prepared, spec, task) for task in sent] == here
    failed = _answer(prepared, spec, tasks[0])
    assert failed.failure


def _answer(prepared, spec, task):
    executor = InlineExecutor(lambda announce: RunWorker(spec, announce, model=prepared.model))
    executor.submit(task)
    (event,) = executor.collect()
    executor.close()
    return event.result
