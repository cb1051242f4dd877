"""Views in other processes: the same numbers, bounded memory, deaths that cost one picture."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bad_refs import BuggyRef, DeadlyOnceRef, DeadlyRef, SlowRef
from dtpt.runs.pipeline import FeaturePipeline
from dtpt.runs.workers import InlineRenderer, Job, WorkerPool

from dtpt.clip.preprocess import Preprocess
from dtpt.data import Sample
from dtpt.errors import RunError
from dtpt.views import ViewRecipe

SETTING = Preprocess.openai(16)
RECIPE = ViewRecipe(count=2, augmix=False)


def job(name, image, recipe=RECIPE):
    return Job(Sample(name, 0, image), 5, recipe)


@pytest.fixture
def pool():
    made = WorkerPool(SETTING, 1, views=2)
    yield made
    made.close()


def test_death_of_a_worker_costs_the_picture_it_was_working_on(pool, pictures):
    good = job("good.jpg", pictures.samples[0].image)
    pool.submit(job("class/deadly.jpg", DeadlyRef()))
    pool.submit(good)
    dead = pool.collect()
    assert (dead.job.sample.id, dead.death, dead.pixels) == (
        "class/deadly.jpg",
        "killed by signal 9",
        None,
    )
    assert pool.pending == 1
    survivor = pool.collect()
    assert survivor.job == good
    alone = InlineRenderer(SETTING)
    alone.submit(good)
    np.testing.assert_array_equal(survivor.pixels, alone.collect().pixels)


def test_picture_that_kills_every_worker_kills_nothing_else(pool):
    for _ in range(4):
        pool.submit(job("class/deadly.jpg", DeadlyRef()))
        assert pool.collect().death


def test_picture_can_succeed_after_a_death(pool, tmp_path):
    unlucky = job("unlucky.jpg", DeadlyOnceRef(tmp_path / "mark"))
    pool.submit(unlucky)
    assert pool.collect().death
    pool.submit(unlucky)
    assert pool.collect().pixels.shape == (2, 3, 16, 16)


def test_bug_in_a_worker_is_told_with_the_image(pool):
    pool.submit(job("class/odd.jpg", BuggyRef()))
    with pytest.raises(RunError, match=r"class/odd.jpg.*ZeroDivisionError: a bug"):
        pool.collect()


def test_processes_that_die_at_once_are_not_started_for_ever(monkeypatch, pictures):
    import dtpt.runs.workers as workers

    start = workers.start
    monkeypatch.setattr(workers, "start", lambda target, **named: start("os:abort", **named))
    pool = WorkerPool(SETTING, 1, views=2)
    try:
        for _ in range(2):
            pool.submit(job("a", pictures.samples[0].image))
            assert pool.collect().death
        pool.submit(job("a", pictures.samples[0].image))
        with pytest.raises(RunError, match="die as soon as they start"):
            pool.collect()
    finally:
        pool.close()


def test_pool_holds_a_bounded_number_of_images_and_returns_all(pictures):
    alone = InlineRenderer(SETTING)
    pool = WorkerPool(SETTING, 2, views=4)
    seen = {}
    try:
        for number, sample in enumerate(pictures.samples[:9]):
            while not pool.has_room:
                rendered = pool.collect()
                seen[rendered.job.sample.id] = rendered.pixels.copy()
            count = ViewRecipe(count=1 + number % 4)  # fewer views than places are made for
            pool.submit(Job(sample, 5, count))
            assert pool.pending <= 4
        while pool.pending:
            rendered = pool.collect()
            seen[rendered.job.sample.id] = rendered.pixels.copy()
    finally:
        pool.close()
    for number, sample in enumerate(pictures.samples[:9]):
        alone.submit(Job(sample, 5, ViewRecipe(count=1 + number % 4)))
        np.testing.assert_array_equal(alone.collect().pixels, seen[sample.id])


class SlowModel(SimpleNamespace):
    """An image tower that takes a while without using the processor."""

    device = torch.device("cpu")
    fingerprint = "slow"

    def encode_views(self, pixels):
        time.sleep(0.2)
        return torch.ones(len(pixels), 4)


def test_views_of_the_next_pictures_are_made_while_one_is_encoded():
    pool = WorkerPool(SETTING, 1, views=1)
    pipeline = FeaturePipeline(SlowModel(), pool)
    recipe = ViewRecipe(count=1)
    warm = Job(Sample("warm", 0, SlowRef("warm", 0.0)), 0, recipe)
    jobs = [Job(Sample(str(i), 0, SlowRef(i, 0.2)), 0, recipe) for i in range(12)]
    try:
        assert len(list(pipeline.stream([warm]))) == 1
        began = time.monotonic()
        assert len(list(pipeline.stream(jobs))) == 12
        seconds = time.monotonic() - began
    finally:
        pipeline.close()
    assert seconds < 3.8  # 2.6 with everything overlapping, 4.8 with nothing
