"""Views in other processes: the same numbers, bounded memory, deaths that cost one image."""

from contextlib import closing

import numpy as np
import pytest
from fake_images import FakeRef

from dtpt.clip.preprocess import Preprocess
from dtpt.errors import WorkerError
from dtpt.executors.process import CAN_START
from dtpt.prediction.features import FeatureSource
from dtpt.prediction.rendering import Renderer, RenderTask
from dtpt.views import ViewRecipe

SETTING = Preprocess.openai(16)
RECIPE = ViewRecipe(count=2, augmix=False)

pytestmark = pytest.mark.skipif(not CAN_START, reason="no processes can be started here")


def views_alone(image, recipe=RECIPE):
    renderer = Renderer(SETTING, 0, views=4)
    renderer.submit("alone", RenderTask(image, recipe, 5))
    return renderer.collect()[1]


def test_an_image_that_kills_its_process_fails_alone():
    with closing(Renderer(SETTING, 1, views=2)) as renderer:
        renderer.submit("deadly", RenderTask(FakeRef(0), RECIPE, 5))
        renderer.submit("good", RenderTask(FakeRef(9), RECIPE, 5))
        results = {}
        while renderer.pending:
            ticket, views = renderer.collect()
            results[ticket] = views if isinstance(views, str) else views.copy()
    assert "signal 9" in results["deadly"]
    np.testing.assert_array_equal(results["good"], views_alone(FakeRef(9)))


def test_a_bug_in_a_process_is_reported():
    with closing(Renderer(SETTING, 1, views=2)) as renderer:
        renderer.submit("bug", RenderTask(FakeRef(-1), RECIPE, 5))
        with pytest.raises(WorkerError, match="ZeroDivisionError"):
            renderer.collect()


def test_a_bounded_number_of_images_is_held_and_all_come_back():
    results = {}
    recipes = {level: ViewRecipe(count=1 + level % 4) for level in range(1, 10)}

    def collect():
        level, views = renderer.collect()
        results[level] = views.copy()

    with closing(Renderer(SETTING, 2, views=4)) as renderer:
        for level, recipe in recipes.items():
            renderer.release()
            while not renderer.has_room:
                collect()
                renderer.release()
            renderer.submit(level, RenderTask(FakeRef(level), recipe, 5))
            assert renderer.pending <= 4
        while renderer.pending:
            collect()
    for level, recipe in recipes.items():
        np.testing.assert_array_equal(results[level], views_alone(FakeRef(level), recipe))


def test_views_of_the_next_images_are_made_while_one_is_encoded(tiny_clip, monkeypatch):
    pending = []
    source = FeatureSource(tiny_clip, view_workers=1, views=1)
    encode = tiny_clip.encode_views

    def encode_views(pixels):
        pending.append(source._renderer.pending)
        return encode(pixels)

    monkeypatch.setattr(tiny_clip, "encode_views", encode_views)
    with closing(source):
        for level in range(1, 9):
            source.add(level, FakeRef(level), recipe=ViewRecipe(count=1), seed=0)
        tickets = [source.next()[0] for _ in range(8)]
    assert sorted(tickets) == list(range(1, 9))
    assert pending == [1, 1, 1, 1, 1, 1, 1, 0]
