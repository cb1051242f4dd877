"""Weights that are found from pictures without their labels (`@auto`)."""

from collections import deque

import numpy as np
import pytest
from dtpt.runs.orders import Found, Returned, Struck
from dtpt.runs.weights import settle_weights
from tiny_runs import TINY_OPTIONS, draw_pictures, exported, tiny_clip

from dtpt.clip.loading.save import save_model
from dtpt.errors import RunError
from dtpt.prediction.classifier import PICTURES_FOR_A_WEIGHT
from dtpt.runs import EvalOptions, merge, open_run, results_of, run_options
from dtpt.runs.evaluation import prepare
from dtpt.runs.exports import sample_records
from dtpt.runs.plan import Plan
from dtpt.runs.progress import Silent
from dtpt.runs.shards import Shard
from dtpt.runs.store import Store

AUTO = ("tpt", "d-tpt@auto=0.8", "c-tpt@auto")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A saved tiny model and more pictures than a weight is found from."""
    folder = tmp_path_factory.mktemp("home")
    save_model(tiny_clip(), folder / "tiny", tokenizer_json=None)
    draw_pictures(folder / "pictures", per_class=12)
    return folder


def auto_options(home, output, **changes):
    by_name = {
        "model": f"local-dir:{home / 'tiny'}",
        "dataset": (f"folder:{home / 'pictures'}",),
        "method": AUTO,
        "seed": (0, 1),
        "cache": False,
    }
    return EvalOptions(**{**TINY_OPTIONS, **by_name, "output": output, **changes})


@pytest.fixture(scope="module")
def whole(home, tmp_path_factory):
    """What a run in one process exports, and the weights it found."""
    with run_options(auto_options(home, tmp_path_factory.mktemp("whole"))) as run:
        return exported(run), run.weights()


class Stopper(Silent):
    """Interrupts a run when the first picture is about to be tuned on."""

    def start(self, title, total, *, done):
        raise KeyboardInterrupt


def test_weights_are_found_once_and_used_by_every_row(whole, home, tmp_path):
    with run_options(auto_options(home, tmp_path)) as run:
        weights = run.weights()
        assert [(cell.method, cell.seed) for cell in weights] == [
            (name, seed) for seed in (0, 1) for name in ("d-tpt@auto=0.8", "c-tpt@auto=0.9")
        ]
        assert {found.pictures for found in weights.values()} == {PICTURES_FOR_A_WEIGHT}
        for cell, found in weights.items():
            assert found.value > 0
            assert {row["weight"] for row in run.raw_rows(cell)} == {found.value}
        assert len({found.value for found in weights.values()}) == 4
        assert weights == whole[1]


def test_row_of_a_found_weight_is_the_row_of_that_weight_given(home, tmp_path):
    with run_options(auto_options(home, tmp_path / "auto", seed=(0,))) as run:
        (cell, *_), (found, *_) = zip(*run.weights().items(), strict=True)
        rows = run.rows_of(cell)
    given = auto_options(home, tmp_path / "given", seed=(0,), method=(f"d-tpt@{found.value!r}",))
    with run_options(given) as run:
        np.testing.assert_array_equal(run.rows().confidence, rows.confidence)


def test_weight_of_each_picture_is_stored_with_its_row(home, tmp_path):
    options = auto_options(home, tmp_path, method=("zero-shot", "d-tpt@auto-each=0.9"), seed=(0,))
    with run_options(options) as run:
        assert run.weights() == {}
        zero_shot, each = run.cells
        assert {row["weight"] for row in run.raw_rows(zero_shot)} == {None}
        assert len({row["weight"] for row in run.raw_rows(each)}) > 30


@pytest.mark.parametrize("replicas", [2, 3])
def test_weights_and_rows_do_not_depend_on_replicas(whole, home, tmp_path, replicas):
    with run_options(auto_options(home, tmp_path, replicas=replicas)) as run:
        assert (exported(run), run.weights()) == whole


@pytest.mark.parametrize("replicas", [1, 2])
def test_run_killed_between_finding_and_tuning_does_not_search_again(
    whole, home, tmp_path, monkeypatch, replicas
):
    options = auto_options(home, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_options(options, reporter=Stopper())
    with open_run(tmp_path) as run:
        assert run.weights() == whole[1]
        assert len(run.rows()) == 0
    monkeypatch.setattr("dtpt.runs.weights.Search", None)  # nobody may make one
    with run_options(options.model_copy(update={"replicas": replicas})) as run:
        assert (exported(run), run.weights()) == whole


def test_weight_does_not_depend_on_the_limit(whole, home, tmp_path):
    options = auto_options(home, tmp_path)
    with run_options(options.model_copy(update={"limit": 5})) as run:
        assert run.weights() == whole[1]
    with run_options(options) as run:
        assert exported(run) == whole[0]


def test_shares_take_over_what_another_one_found(whole, home, tmp_path, monkeypatch):
    options = auto_options(home, tmp_path)
    run_options(options.model_copy(update={"shard": "1/2"})).close()
    monkeypatch.setattr("dtpt.runs.weights.Search", None)  # nobody may make one
    run_options(options.model_copy(update={"shard": "2/2"})).close()
    with merge(tmp_path) as run:
        assert (exported(run), run.weights()) == whole


def test_shares_with_different_weights_are_not_merged(home, tmp_path):
    options = auto_options(home, tmp_path)
    run_options(options.model_copy(update={"shard": "1/2"})).close()
    (tmp_path / "shard-1-of-2.sqlite").rename(tmp_path / "elsewhere.sqlite")
    run_options(options.model_copy(update={"shard": "2/2"})).close()
    (tmp_path / "elsewhere.sqlite").rename(tmp_path / "shard-1-of-2.sqlite")
    with Store(tmp_path / "shard-1-of-2.sqlite", prepare(options).spec) as store:
        store._open.execute("UPDATE weights SET weight = weight * 2")
    with pytest.raises(RunError, match="found different lambdas"):
        merge(tmp_path)


def test_results_exports_and_remarks_show_what_was_found(home, tmp_path):
    with run_options(auto_options(home, tmp_path, seed=(0,))) as run:
        (cell, found), *_ = run.weights().items()
        record = results_of(run).results[cell.dataset]
        assert record["d-tpt@auto=0.8"].lambda_found == {"0": found.value}
        assert record["tpt"].lambda_found == {}
        texts = run.remarks(cell.dataset)
        assert f"d-tpt@auto=0.8, seed 0: lambda {found.value:.6g} was found from 32" in texts[0]
        used = {(r["method"], r["lambda_used"]) for r in sample_records(run, cell.dataset)}
        assert ("d-tpt@auto=0.8", found.value) in used
        assert ("tpt", None) in used
        assert len(used) == 3
        assert run.select(method="c-tpt@auto") == run.select(method="c-tpt@auto=0.9") != ()


def test_unreadable_pictures_are_left_out_of_the_search(run_tiny, pictures):
    bad = pictures.samples[0]
    bad.image.path.write_text("no image")
    with run_tiny(method=("d-tpt@auto",), max_failures=0.5) as run:
        (found,) = run.weights().values()
    assert found.pictures == 29


class SearchCrew:
    """Answers searches; `react` turns one into events."""

    has_room = True

    def __init__(self, react):
        self.react = react
        self.events = deque()
        self.searches = []

    def submit(self, search):
        self.searches.append(search)
        self.events.extend(self.react(search))

    def collect(self):
        return [self.events.popleft()]


def search_with(react, tiny_model, pictures, tmp_path):
    options = EvalOptions(
        **{**TINY_OPTIONS, "output": tmp_path, "dataset": ("pictures",), "method": ("d-tpt@auto",)}
    )
    setup = prepare(options, model=tiny_model, datasets=[pictures])
    crew = SearchCrew(react)
    with (
        Store(tmp_path / "run.sqlite", setup.spec) as store,
        Plan(setup, store=store, shard=Shard()) as plan,
    ):
        found = settle_weights(plan, crew, tasks=setup.tasks, store=store, reporter=Silent())
    return found, crew.searches


def test_search_whose_replica_died_is_repeated(tiny_model, pictures, tmp_path):
    def react(search):
        if search.number == 0:
            return [Returned(search.places), Found(0, (7.0,), pictures=30)]
        return [Found(search.number, (3.0,), pictures=30)] * 2

    found, searches = search_with(react, tiny_model, pictures, tmp_path)
    assert found == {(0, 0): (3.0,)}
    assert [len(search.samples) for search in searches] == [30, 30]


def test_picture_on_which_three_replicas_died_is_left_out_of_the_search(
    tiny_model, pictures, tmp_path
):
    poison = pictures.samples[4].id

    def react(search):
        places = [place for place in search.places if place.sample == poison]
        if places:
            return [Struck(places[0], "killed"), Returned(search.places[1:])]
        return [Found(search.number, (2.0,), pictures=29)]

    found, searches = search_with(react, tiny_model, pictures, tmp_path)
    assert found == {(0, 0): (2.0,)}
    assert [len(search.samples) for search in searches] == [30, 30, 30, 29]
