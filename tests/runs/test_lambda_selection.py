"""λ that are selected without labels (`@auto`): once, stored, shared, the same everywhere."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_runs import exported, named_options

from dtpt.errors import RunError, WorkerError
from dtpt.executors.pool import Done, Failed
from dtpt.prediction.predictor import IMAGES_FOR_LAMBDA
from dtpt.runs import merge, open_run, results_of, run_options
from dtpt.runs.evaluation import prepare
from dtpt.runs.plan import Plan
from dtpt.runs.progress import Silent
from dtpt.runs.results import sample_records
from dtpt.runs.schedule import Scheduler
from dtpt.runs.shards import Shard
from dtpt.runs.store import SelectedLambda, Store
from dtpt.runs.worker import ImageResult, LambdaResult, LambdaTask, RunWorker

AUTO = ("tpt", "d-tpt@auto=0.8", "c-tpt@auto")


def auto_options(home, output, **changes):
    return named_options(home, output, **{"method": AUTO, "seed": (0, 1), **changes})


@pytest.fixture(scope="module")
def whole(home, tmp_path_factory):
    """What a run in one process exports, and the λ that it selected."""
    with run_options(auto_options(home, tmp_path_factory.mktemp("whole"))) as run:
        return exported(run), run.lambdas()


@pytest.fixture
def no_selection(monkeypatch):
    """Makes the selection of λ an error from the moment it is called."""

    def forbid():
        monkeypatch.setattr(
            RunWorker, "_select_lambdas", lambda *_: pytest.fail("λ were selected again")
        )

    return forbid


class Interrupter(Silent):
    """Interrupts a run when the first image is about to be tuned on."""

    def start(self, title, total, *, done):
        raise KeyboardInterrupt


def test_lambdas_are_selected_once_and_used_by_every_row(whole, home, tmp_path):
    with run_options(auto_options(home, tmp_path)) as run:
        lambdas = run.lambdas()
        assert [(cell.method, cell.seed) for cell in lambdas] == [
            (name, seed) for seed in (0, 1) for name in ("d-tpt@auto=0.8", "c-tpt@auto=0.9")
        ]
        assert {selected.images for selected in lambdas.values()} == {IMAGES_FOR_LAMBDA}
        for cell, selected in lambdas.items():
            assert selected.value > 0
            assert {row["lambda_used"] for row in run.stored_rows(cell)} == {selected.value}
        assert len({selected.value for selected in lambdas.values()}) == 4
        assert lambdas == whole[1]


def test_row_of_a_selected_lambda_is_the_row_of_that_lambda_given(home, tmp_path):
    with run_options(auto_options(home, tmp_path / "auto", seed=(0,))) as run:
        cell, selected = next(iter(run.lambdas().items()))
        rows = run.rows_of(cell)
    given = (f"d-tpt@{selected.value!r}",)
    with run_options(auto_options(home, tmp_path / "given", seed=(0,), method=given)) as run:
        np.testing.assert_array_equal(run.rows().confidence, rows.confidence)


def test_lambda_of_each_image_is_stored_with_its_row(home, tmp_path):
    options = auto_options(home, tmp_path, method=("zero-shot", "d-tpt@auto-each=0.9"), seed=(0,))
    with run_options(options) as run:
        assert run.lambdas() == {}
        zero_shot, each = run.cells
        assert {row["lambda_used"] for row in run.stored_rows(zero_shot)} == {None}
        assert len({row["lambda_used"] for row in run.stored_rows(each)}) > 30


def test_lambdas_and_rows_do_not_depend_on_the_workers(whole, home, tmp_path):
    with run_options(auto_options(home, tmp_path, workers=2)) as run:
        assert (exported(run), run.lambdas()) == whole


def test_run_that_was_interrupted_after_the_selection_does_not_select_again(
    whole, home, tmp_path, no_selection
):
    options = auto_options(home, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_options(options, reporter=Interrupter())
    with open_run(tmp_path) as run:
        assert run.lambdas() == whole[1]
        assert len(run.rows()) == 0
    no_selection()
    with run_options(options) as run:
        assert (exported(run), run.lambdas()) == whole


def test_lambda_does_not_depend_on_the_limit(whole, home, tmp_path):
    options = auto_options(home, tmp_path)
    with run_options(options.model_copy(update={"limit": 5})) as run:
        assert run.lambdas() == whole[1]
    with run_options(options) as run:
        assert exported(run) == whole[0]


def test_shards_use_what_another_one_selected(whole, home, tmp_path, no_selection):
    options = auto_options(home, tmp_path)
    run_options(options.model_copy(update={"shard": "1/2"})).close()
    no_selection()
    run_options(options.model_copy(update={"shard": "2/2"})).close()
    with merge(tmp_path) as run:
        assert (exported(run), run.lambdas()) == whole


def test_shards_with_different_lambdas_are_not_merged(home, tmp_path):
    spec = prepare(auto_options(home, tmp_path)).spec
    cell = next(cell for cell in spec.cells() if "auto" in cell.method)
    for index, value in ((1, 3.0), (2, 4.0)):
        with Store(tmp_path / Shard(index, 2).file_name, spec) as store:
            store.write_lambdas({cell: SelectedLambda(value, 32)})
    with pytest.raises(RunError, match="lambdas"):
        merge(tmp_path)


def test_results_exports_and_notes_have_the_selected_lambda(home, tmp_path):
    with run_options(auto_options(home, tmp_path, seed=(0,))) as run:
        cell, selected = next(iter(run.lambdas().items()))
        record = results_of(run).results[cell.dataset]
        assert record["d-tpt@auto=0.8"].selected_lambda == {"0": selected.value}
        assert record["tpt"].selected_lambda == {}
        texts = run.notes()[cell.dataset]
        assert len(texts) == 2
        assert f"{selected.value:.6g}" in texts[0]
        used = {(r["method"], r["lambda_used"]) for r in sample_records(run, cell.dataset)}
        assert ("d-tpt@auto=0.8", selected.value) in used
        assert ("tpt", None) in used
        assert len(used) == 3
        assert run.select(method="c-tpt@auto") == run.select(method="c-tpt@auto=0.9") != ()


def test_unreadable_images_are_left_out_of_the_selection(run_tiny, images):
    images.samples[0].image.path.write_text("no image")
    with run_tiny(method=("d-tpt@auto",), max_failures=0.5) as run:
        (selected,) = run.lambdas().values()
    assert selected.images == 29


class ScriptedExecutor:
    """Reacts to tasks as a test decides."""

    room = 1

    def __init__(self, react):
        self.react = react
        self.tasks = []
        self.events = []

    def submit(self, task):
        self.tasks.append(task)
        self.events.append(self.react(len(self.tasks) - 1, task))
        return len(self.tasks) - 1

    def collect(self):
        return [self.events.pop(0)]


def select_with(react, options):
    """Let the scheduler select λ, and nothing else, with a scripted executor."""
    prepared, executor = prepare(options), ScriptedExecutor(react)
    with (
        Store(options.output / "run.sqlite", prepared.spec) as store,
        Plan(prepared, store=store, shard=Shard()) as plan,
    ):
        scheduler = Scheduler(
            plan, executor, prepared=prepared, store=store, reporter=Interrupter(), max_failures=0.0
        )
        with pytest.raises(KeyboardInterrupt):
            scheduler.run()
        return list(store.lambdas().values()), executor.tasks


def test_image_on_which_workers_died_is_left_out_of_the_repeated_task(home, tmp_path):
    def react(task_id, task):
        assert isinstance(task, LambdaTask)
        if not task.failed:
            return Failed(task_id, "they died", item=task.samples[4].id)
        images = [ImageResult(failure=task.failed.get(sample.id, "")) for sample in task.samples]
        return Done(task_id, LambdaResult((2.0,), tuple(images)))

    options = auto_options(home, tmp_path, method=("d-tpt@auto",), seed=(0,))
    lambdas, tasks = select_with(react, options)
    assert lambdas == [SelectedLambda(2.0, 31)]
    assert tasks[1] == replace(tasks[0], failed={tasks[0].samples[4].id: "they died"})


def test_death_that_is_due_to_no_single_image_ends_the_run(home, tmp_path):
    options = auto_options(home, tmp_path, method=("d-tpt@auto",), seed=(0,))
    with pytest.raises(WorkerError, match="they died"):
        select_with(lambda task_id, _: Failed(task_id, "they died"), options)


def test_worker_announces_what_it_is_about_to_work_on(home, tmp_path):
    prepared = prepare(auto_options(home, tmp_path, method=("d-tpt@auto",)))
    announced = []
    worker = RunWorker(prepared.worker, lambda *pair: announced.append(pair), model=prepared.model)
    samples = prepared.datasets[0].samples[:3]
    failed = {samples[1].id: "workers died on it"}
    worker.add(7, LambdaTask(0, 0, samples, (0,), failed))
    (event,) = worker.next()
    worker.close()
    assert [bool(image.failure) for image in event.result.images] == [False, True, False]
    ids = [item for task_id, item in announced if task_id == 7]
    assert list(dict.fromkeys(ids)) == [samples[0].id, samples[2].id, ""]  # "": all at once
