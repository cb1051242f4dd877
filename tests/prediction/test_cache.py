"""The cache of view features: bit-equal, verified, bounded, never trusted when damaged."""

import errno
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtpt.cli.main import call
from dtpt.errors import RunError
from dtpt.prediction import cache as module
from dtpt.prediction.cache import (
    FeatureCache,
    cache_folder,
    list_shards,
    parse_size,
    prune,
    read_shard,
)
from dtpt.prediction.features import FeatureCaches
from dtpt.views import ViewRecipe

KEY = "group"
RECIPE = ViewRecipe()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DTPT_CACHE", str(tmp_path))
    return cache_folder()


def open_cache(key=KEY):
    return FeatureCache(key, serves=lambda cached, wanted: False)


def numbers(seed, shape=(4, 8)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def fill(count, key=KEY):
    cache = open_cache(key)
    for index in range(count):
        cache.put(f"image {index}", numbers(index))
    cache.flush()
    return cache


def test_features_come_back_bit_for_bit(folder):
    fill(150)
    again = open_cache()
    assert len(list_shards(folder)) == 3
    for index in range(150):
        np.testing.assert_array_equal(again.get(f"image {index}", views=4), numbers(index))
    assert again.get("image 150", views=4) is None


def test_features_that_wait_for_their_shard_are_served(folder):
    cache = open_cache()
    cache.put("one", numbers(1))
    np.testing.assert_array_equal(cache.get("one", views=4), numbers(1))
    assert list_shards(folder) == []


def test_features_of_a_slow_tower_do_not_wait_for_a_full_shard(folder, monkeypatch):
    cache = open_cache()
    cache.put("one", numbers(1))
    monkeypatch.setattr(module, "SECONDS_PER_SHARD", 0.0)
    cache.put("two", numbers(2))
    assert len(list_shards(folder)) == 1
    np.testing.assert_array_equal(open_cache().get("one", views=4), numbers(1))


def test_more_views_serve_where_fewer_run_in_the_same_batches(tiny_clip):
    cache = FeatureCaches(tiny_clip, threads=1).group(ViewRecipe(), 0)
    many, few = numbers(0, (32, 8)), numbers(1, (8, 8))
    cache.put("image", many)
    for _ in range(2):  # waiting for its shard, then written
        served = {views for views in range(1, 49) if cache.get("image", views=views) is not None}
        assert served == {1, 8, 16, 32}
        for views in served:
            np.testing.assert_array_equal(cache.get("image", views=views), many[:views])
        cache.flush()
    cache.put("image", few)
    cache.flush()
    again = FeatureCaches(tiny_clip, threads=1).group(ViewRecipe(count=8), 0)
    np.testing.assert_array_equal(again.get("image", views=32), many)


def test_other_models_recipes_seeds_and_threads_have_groups_of_their_own(tiny_clip, make_clip):
    def group(model=tiny_clip, recipe=RECIPE, seed=0, threads=1):
        return FeatureCaches(model, threads=threads).group(recipe, seed)

    first = group()
    first.put("image", numbers(0))
    first.flush()
    others = [
        group(make_clip(seed=1)),
        group(make_clip().in_precision("bfloat16")),
        group(recipe=ViewRecipe(augmix=False)),
        group(seed=1),
        group(threads=2),
    ]
    assert [other.get("image", views=4) for other in others] == [None] * 5
    np.testing.assert_array_equal(group().get("image", views=4), numbers(0))


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed_and_the_shard_removed(folder, caplog, position, bit):
    fill(3)
    (shard,) = list_shards(folder)
    data = bytearray(shard.path.read_bytes())
    data[int(position * len(data))] ^= 1 << bit
    shard.path.write_bytes(data)
    cache = open_cache()
    assert [cache.get(f"image {index}", views=4) for index in range(3)] == [None] * 3
    fill(3)
    np.testing.assert_array_equal(open_cache().get("image 2", views=4), numbers(2))


@pytest.mark.parametrize("length", [0, 5, 40, -1])
def test_cut_shards_are_not_read(folder, length):
    fill(3)
    (shard,) = list_shards(folder)
    shard.path.write_bytes(shard.path.read_bytes()[:length])
    assert read_shard(shard.path) is None
    assert open_cache().get("image 0", views=4) is None


def test_a_shard_that_vanishes_is_computed_again(folder, caplog):
    fill(3)
    cache = open_cache()
    list_shards(folder)[0].path.unlink()
    assert cache.get("image 0", views=4) is None
    assert caplog.records == []


def test_the_limit_removes_what_was_used_longest_ago(folder):
    keys = ["a", "b", "c", "d"]
    for age, key in enumerate(keys):
        fill(10, key)
        (path,) = (folder / key).iterdir()
        os.utime(path, (1000 + age, 1000 + age))
    open_cache(keys[0]).get("image 0", views=4)  # the oldest is used again
    removed = prune(folder, 2 * list_shards(folder)[0].size)
    assert [shard.path.parent.name for shard in removed] == ["b", "c"]


def test_writing_respects_the_limit(folder, monkeypatch):
    monkeypatch.setenv("DTPT_CACHE_LIMIT", "30KB")
    fill(1000)
    assert 0 < sum(shard.size for shard in list_shards(folder)) <= 30_000


def test_half_written_files_of_killed_processes_are_removed_after_an_hour(folder):
    fill(1)
    (shard,) = list_shards(folder)
    old, new = (shard.path.with_name(f".{name}.safetensors.x.tmp") for name in ("old", "new"))
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    prune(folder, 10**9)
    assert (old.exists(), new.exists(), shard.path.exists()) == (False, True, True)


def test_a_full_disk_disables_the_cache_but_not_the_run(monkeypatch, caplog):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_atomically", full)
    fill(200)
    assert len([r for r in caplog.records if "No space left" in r.message]) == 1


@pytest.mark.parametrize(
    ("text", "size"), [("500MB", 500_000_000), ("0", 0), ("1.5 gb", 1_500_000_000), ("12", 12)]
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "-1GB", "nan", "1XB", "inf"])
def test_invalid_sizes_are_refused(text):
    with pytest.raises(RunError, match="size"):
        parse_size(text)


def test_commands_show_verify_and_prune(folder, capsys):
    fill(70)
    call(["cache", "show"])
    assert str(folder) in capsys.readouterr().out
    call(["cache", "verify"])
    assert "2 of 2 shards are intact" in capsys.readouterr().out
    list_shards(folder)[0].path.write_bytes(b"broken")
    with pytest.raises(SystemExit) as stop:
        call(["cache", "verify"])
    assert stop.value.code == 1
    assert len(list_shards(folder)) == 1
    call(["cache", "prune", "--limit", "0"])
    assert list_shards(folder) == []
