"""Views: shape, the original first, and the same views whatever order, worker or process."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from benchmarks.reference_views import reference_views
from dtpt.clip.preprocess import Preprocess
from dtpt.views import ViewRecipe, make_views
from dtpt.views.recipe import AUGMIX_NUMBERS, CROP_NUMBERS, NUMBERS_PER_VIEW, view_numbers

SETTING = Preprocess.openai(32)


def example_image(width=50, height=40, seed=0):
    random = np.random.default_rng([seed, width, height])
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


def views(image_id="a", *, seed=0, count=10, augmix=True, image=None, setting=SETTING):
    recipe = ViewRecipe(count=count, augmix=augmix)
    image = example_image() if image is None else image
    return make_views(image, recipe=recipe, seed=seed, image_id=image_id, preprocessing=setting)


def test_shape_type_and_the_original_first():
    result = views()
    assert result.shape == (10, 3, 32, 32)
    assert result.dtype == np.float32
    assert np.array_equal(result[0], SETTING.pixels(example_image()))
    assert np.isfinite(result).all()


def test_a_kept_array_gives_the_same_views_and_the_wrong_one_is_refused():
    kept = np.full((10, 3, 32, 32), np.nan, dtype=np.float32)
    fields = {"recipe": ViewRecipe(count=10), "seed": 0, "image_id": "a", "preprocessing": SETTING}
    assert make_views(example_image(), **fields, out=kept) is kept
    assert np.array_equal(kept, views())
    with pytest.raises(ValueError, match="float32"):
        make_views(example_image(), **fields, out=kept[:5])


@pytest.mark.parametrize("augmix", [True, False])
@pytest.mark.parametrize("count", [1, 2, 10, 90])
def test_progress_counts_up_to_all_views_and_changes_none(count, augmix):
    progress_calls = []
    fields = {"recipe": ViewRecipe(count=count, augmix=augmix), "seed": 0, "image_id": "a"}
    setting = Preprocess.openai(224) if count == 90 else SETTING
    result = make_views(
        example_image(),
        **fields,
        preprocessing=setting,
        progress=lambda done, total: progress_calls.append((done, total)),
    )
    assert np.array_equal(result, make_views(example_image(), **fields, preprocessing=setting))
    done = [pair[0] for pair in progress_calls]
    assert done == sorted(set(done))
    assert done[0] == 1
    assert progress_calls[-1] == (count, count)
    assert {pair[1] for pair in progress_calls} == {count}
    assert count < 90 or len(progress_calls) > 5


def test_a_single_view_is_the_original_alone():
    assert np.array_equal(views(count=1)[0], SETTING.pixels(example_image()))


@pytest.mark.parametrize("augmix", [True, False])
def test_more_views_keep_the_first_ones(augmix):
    assert np.array_equal(views(count=20, augmix=augmix)[:7], views(count=7, augmix=augmix))


def test_seed_id_and_index_each_change_the_views():
    base = views()
    for other in (views(seed=1), views("b")):
        assert np.array_equal(base[0], other[0])
        assert all(not np.array_equal(base[k], other[k]) for k in range(1, 10))
    assert len({view.tobytes() for view in base}) == 10


def test_seed_and_index_cannot_be_confused_with_the_id():
    lists = [
        view_numbers(1, "1", view=11),
        view_numbers(11, "1", view=1),
        view_numbers(1, "11", view=1),
    ]
    lists += [view_numbers(1, "1\x001", view=1), view_numbers(1, "", view=1)]
    assert len({numbers.tobytes() for numbers in lists}) == len(lists)


def test_crop_and_augmix_numbers_do_not_overlap():
    assert CROP_NUMBERS.stop <= AUGMIX_NUMBERS.start
    assert AUGMIX_NUMBERS.stop <= NUMBERS_PER_VIEW


def made(image_id):
    return views(image_id).tobytes()


def test_the_same_views_in_any_order_thread_or_process():
    ids = [f"image {n}" for n in range(6)]
    expected = {image_id: made(image_id) for image_id in ids}
    np.random.seed(3)  # noqa: NPY002 - the global state must not matter
    backwards = {image_id: made(image_id) for image_id in reversed(ids)}
    with ThreadPoolExecutor(4) as pool:
        threaded = dict(zip(ids, pool.map(made, ids), strict=True))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        processed = dict(zip(ids, pool.map(made, ids), strict=True))
    assert expected == backwards == threaded == processed


def test_the_random_numbers_are_stable_over_versions():
    """Frozen: other numbers would silently change every published run."""
    first = view_numbers(0, "image", view=1)
    assert view_numbers(0, "image", view=1).tolist() == first.tolist()
    np.testing.assert_allclose(first[:3], FROZEN, rtol=0, atol=0)


FROZEN = [0.14078488861449545, 0.19407243489509762, 0.524609879964537]


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (2, 3), (500, 2), (32, 32)])
@pytest.mark.parametrize("augmix", [True, False])
def test_tiny_and_narrow_images_work(size, augmix):
    result = views(image=example_image(*size), augmix=augmix)
    assert result.shape == (10, 3, 32, 32)
    assert np.isfinite(result).all()


def test_an_image_of_one_colour_stays_within_its_range():
    """Black enters at the borders and colours may be equalised, but no value leaves [0, 255]."""
    result = views(image=Image.new("RGB", (40, 30), (200, 100, 50)))
    mean, std = (np.array(v)[None, :, None, None] for v in (SETTING.mean, SETTING.std))
    values = (result * std + mean) * 255
    assert values.min() > -0.01
    assert values.max() < 255.01


def test_the_source_image_is_not_changed_and_its_mode_does_not_matter():
    image = example_image()
    before = image.tobytes()
    grey = image.convert("L")
    views(image=image)
    assert image.tobytes() == before
    assert np.array_equal(views(image=grey), views(image=grey.convert("RGB")))


def test_recipes_with_other_content_have_other_fingerprints():
    recipes = [
        ViewRecipe(),
        ViewRecipe(count=32),
        ViewRecipe(augmix=False),
        ViewRecipe(area=(0.1, 1.0)),
        ViewRecipe(aspect=(0.5, 2.0)),
        ViewRecipe(flip=0.0),
    ]
    assert len({recipe.fingerprint for recipe in recipes}) == len(recipes)
    assert ViewRecipe().fingerprint == ViewRecipe(count=64, augmix=True).fingerprint


@pytest.mark.parametrize(
    "fields",
    [{"count": 0}, {"area": (0.5, 0.1)}, {"aspect": (2, 1)}, {"flip": 2}, {"version": 2}, {"x": 1}],
)
def test_impossible_recipes_are_refused(fields):
    with pytest.raises(ValidationError):
        ViewRecipe(**fields)


def test_making_views_imports_neither_torch_nor_torchvision():
    code = (
        "import sys, dtpt.views; sys.exit(any(m in sys.modules for m in ('torch', 'torchvision')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 90),
    height=st.integers(1, 90),
    mode=st.sampled_from(["RGB", "L", "P"]),
    size=st.sampled_from([1, 2, 5, 16, 33]),
    count=st.integers(2, 40),
    augmix=st.booleans(),
    seed=st.integers(0, 2**64),
)
@example(width=700, height=1, mode="RGB", size=16, count=12, augmix=True, seed=0)
@example(width=2500, height=1900, mode="L", size=33, count=5, augmix=True, seed=1)
@example(width=40, height=30, mode="P", size=230, count=4, augmix=True, seed=2)
def test_any_image_gives_the_peers_views(width, height, *, mode, size, count, augmix, seed):
    """The peers' way goes through Pillow and torch alone; only its order of rounding differs."""
    image, setting = example_image(width, height).convert(mode), Preprocess.openai(size)
    recipe = ViewRecipe(count=count, augmix=augmix)
    ours = views(seed=seed, count=count, augmix=augmix, image=image, setting=setting)
    plain = reference_views(
        image.convert("RGB"), recipe=recipe, seed=seed, image_id="a", preprocessing=setting
    )
    assert abs(ours - plain.numpy()).max() <= (2e-6 if augmix else 0)
