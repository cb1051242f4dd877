"""The cache of view features: bit-equal, verified, bounded, never trusted when damaged."""

import errno
import logging
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dtpt.prediction.cache as features_module
from dtpt.cli.main import call
from dtpt.clip.model import view_batches
from dtpt.errors import RunError
from dtpt.prediction.cache import (
    FeatureCache,
    GroupKey,
    list_shards,
    parse_size,
    prune,
    read_shard,
    serves,
)

KEY = GroupKey("model", "views", 0)


def numbers(seed, shape=(4, 8)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def fill(folder, count, key=KEY, start=0):
    cache = FeatureCache(key, folder=folder)
    for index in range(start, start + count):
        cache.put(f"image {index}", numbers(index))
    cache.flush()
    return cache


def test_features_come_back_bit_for_bit(tmp_path):
    fill(tmp_path, 150)
    again = FeatureCache(KEY, folder=tmp_path)
    assert len(list_shards(tmp_path)) == 3
    for index in range(150):
        np.testing.assert_array_equal(again.get(f"image {index}", views=4), numbers(index))
    assert again.get("image 150", views=4) is None


def test_features_that_wait_for_their_shard_are_served(tmp_path):
    cache = FeatureCache(KEY, folder=tmp_path)
    cache.put("one", numbers(1))
    np.testing.assert_array_equal(cache.get("one", views=4), numbers(1))
    assert list_shards(tmp_path) == []


def test_more_views_serve_those_who_need_fewer(tmp_path):
    cache = FeatureCache(KEY, folder=tmp_path)
    many, few = numbers(0, (32, 8)), numbers(1, (8, 8))
    cache.put("image", many)
    for waiting in (True, False):
        for views in (1, 8, 16, 32):
            np.testing.assert_array_equal(cache.get("image", views=views), many[:views])
        assert cache.get("image", views=48) is None
        assert cache.get("image", views=20) is None  # in the middle of a batch of views
        if waiting:
            cache.flush()
    cache.put("image", few)  # somebody did not look
    cache.flush()
    again = FeatureCache(KEY, folder=tmp_path)
    np.testing.assert_array_equal(again.get("image", views=32), many)


def test_only_equal_numbers_of_views_serve_where_all_share_one_pass(tmp_path):
    cache = FeatureCache(GroupKey("model", "views", 0, "cuda"), folder=tmp_path)
    cache.put("image", numbers(0, (32, 8)))
    assert cache.get("image", views=16) is None
    np.testing.assert_array_equal(cache.get("image", views=32), numbers(0, (32, 8)))


def test_views_are_cut_where_the_towers_batches_end():
    ends = {batch.stop for batch in view_batches(64)}
    assert {views for views in range(1, 65) if serves(64, views)} == ends


@pytest.mark.parametrize(
    "other",
    [
        GroupKey("other", "views", 0),
        GroupKey("model", "other", 0),
        GroupKey("model", "views", 1),
        GroupKey("model", "views", 0, "cuda"),
        GroupKey("model", "views", 0, precision="bfloat16"),
    ],
)
def test_other_models_recipes_seeds_and_devices_see_nothing(tmp_path, other):
    fill(tmp_path, 1)
    assert FeatureCache(other, folder=tmp_path).get("image 0", views=4) is None


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed_and_the_shard_thrown_away(tmp_path_factory, place, bit):
    folder = tmp_path_factory.mktemp("cache")
    fill(folder, 3)
    (shard,) = list_shards(folder)
    data = bytearray(shard.path.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    shard.path.write_bytes(data)
    logging.disable(logging.WARNING)
    try:
        cache = FeatureCache(KEY, folder=folder)
        assert [cache.get(f"image {index}", views=4) for index in range(3)] == [None] * 3
    finally:
        logging.disable(logging.NOTSET)
    fill(folder, 3)
    whole = FeatureCache(KEY, folder=folder)
    np.testing.assert_array_equal(whole.get("image 2", views=4), numbers(2))


@pytest.mark.parametrize("length", [0, 5, 40, -1])
def test_cut_shards_are_not_trusted(tmp_path, length):
    fill(tmp_path, 3)
    (shard,) = list_shards(tmp_path)
    shard.path.write_bytes(shard.path.read_bytes()[:length])
    assert read_shard(shard.path) is None
    assert FeatureCache(KEY, folder=tmp_path).get("image 0", views=4) is None


def test_shard_that_vanishes_is_computed_again(tmp_path):
    fill(tmp_path, 3)
    cache = FeatureCache(KEY, folder=tmp_path)
    list_shards(tmp_path)[0].path.unlink()
    assert cache.get("image 0", views=4) is None
    assert cache.damaged == []


def test_limit_drops_what_was_used_longest_ago(tmp_path):
    for group in range(4):
        fill(tmp_path, 10, GroupKey("model", "views", group))
    shards = list_shards(tmp_path)
    for age, shard in enumerate(shards):
        os.utime(shard.path, (1000 + age, 1000 + age))
    FeatureCache(
        GroupKey("model", "views", int(_group_of(tmp_path, shards[0]))), folder=tmp_path
    ).get("image 0", views=4)  # the oldest is used again
    removed = prune(tmp_path, 2 * shards[0].size)
    assert [shard.path for shard in removed] == [shards[1].path, shards[2].path]


def _group_of(root, shard):
    return next(
        seed
        for seed in range(4)
        if (root / GroupKey("model", "views", seed).folder) == shard.path.parent
    )


def test_writing_respects_the_limit(tmp_path):
    size = list_shards(tmp_path / "x")
    assert size == []
    cache = FeatureCache(KEY, folder=tmp_path, limit=30_000)
    for index in range(1000):
        cache.put(f"image {index}", numbers(index))
    cache.flush()
    assert 0 < sum(shard.size for shard in list_shards(tmp_path)) <= 30_000


def test_half_written_files_of_killed_processes_go_after_an_hour(tmp_path):
    fill(tmp_path, 1)
    (shard,) = list_shards(tmp_path)
    old, new = (shard.path.with_name(f".{name}.safetensors.x.tmp") for name in ("old", "new"))
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    prune(tmp_path, 10**9)
    assert (old.exists(), new.exists(), shard.path.exists()) == (False, True, True)


def test_full_disk_costs_the_cache_but_not_the_run(tmp_path, monkeypatch, caplog):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(features_module, "write_atomically", full)
    cache = FeatureCache(KEY, folder=tmp_path)
    for index in range(200):
        cache.put(f"image {index}", numbers(index))
    cache.flush()
    assert len([r for r in caplog.records if "No space left" in r.message]) == 1


@pytest.mark.parametrize(
    ("text", "size"), [("500MB", 500_000_000), ("0", 0), ("1.5 gb", 1_500_000_000), ("12", 12)]
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "-1GB", "nan", "1XB", "inf"])
def test_sizes_that_make_no_sense_are_refused(text):
    with pytest.raises(RunError, match="size"):
        parse_size(text)


def test_commands_show_verify_and_prune(own_cache, capsys):
    fill(own_cache, 70)
    call(["cache", "show"])
    assert f"{own_cache}" in capsys.readouterr().out
    call(["cache", "verify"])
    assert "2 of 2 shards are intact" in capsys.readouterr().out
    list_shards(own_cache)[0].path.write_bytes(b"broken")
    with pytest.raises(SystemExit) as stop:
        call(["cache", "verify"])
    assert stop.value.code == 1
    assert len(list_shards(own_cache)) == 1
    call(["cache", "prune", "--limit", "0"])
    assert list_shards(own_cache) == []
