"""The same rows, bit for bit, for any number of shards."""

import os
import shutil
import sqlite3
from contextlib import closing

import pytest
from tiny_runs import exported

from dtpt.errors import RunError
from dtpt.runs import merge, open_run
from dtpt.runs.shards import Shard, find_shard


def without_cache(run_tiny, **options):
    with run_tiny(cache=False, **options) as run:
        return exported(run)


def test_shards_join_to_the_undivided_run(run_tiny, tmp_path):
    whole = without_cache(run_tiny, output=tmp_path / "whole")
    for count in (2, 4):
        folder = tmp_path / f"of{count}"
        for index in range(1, count + 1):
            run_tiny(output=folder, shard=f"{index}/{count}", cache=False).close()
        with merge(folder) as joined:
            assert exported(joined) == whole
        with merge(folder) as again:  # joining twice changes nothing
            assert exported(again) == whole


def test_division_may_change_between_sessions(run_tiny, tmp_path):
    whole = without_cache(run_tiny, output=tmp_path / "whole")
    folder = tmp_path / "mixed"
    run_tiny(output=folder, shard="2/4", cache=False).close()
    for index in (1, 2):
        run_tiny(output=folder, shard=f"{index}/2", cache=False).close()
    done_before = len(open_run(folder / "shard-2-of-4.sqlite").rows(method="tpt"))
    halves = [
        len(open_run(folder / f"shard-{index}-of-2.sqlite").rows(method="tpt")) for index in (1, 2)
    ]
    assert done_before > 0
    assert sum(halves) == 30 - done_before  # what the quarter had done was not done again
    with merge(folder) as joined:
        assert exported(joined) == whole


def test_missing_shard_is_named(run_tiny, tmp_path):
    run_tiny(output=tmp_path / "run", shard="1/2").close()
    with pytest.raises(RunError, match="merge"):
        open_run(tmp_path / "run")
    with pytest.raises(RunError, match=r"shard-2-of-2\.sqlite not found"):
        merge(tmp_path / "run")
    with merge(tmp_path / "run", partial=True) as part:
        assert not part.is_complete


def test_shards_of_different_runs_are_not_joined(run_tiny, tmp_path):
    run_tiny(output=tmp_path / "a", shard="1/2", lambda_=(10.0,)).close()
    run_tiny(output=tmp_path / "b", shard="2/2", lambda_=(20.0,)).close()
    os.rename(tmp_path / "b" / "shard-2-of-2.sqlite", tmp_path / "a" / "shard-2-of-2.sqlite")
    with pytest.raises(RunError, match=r"d-tpt@10 → .*d-tpt@20"):
        merge(tmp_path / "a")


def test_contradicting_rows_are_not_joined(run_tiny, tmp_path):
    for index in (1, 2):
        run_tiny(output=tmp_path / "run", shard=f"{index}/2").close()
    merge(tmp_path / "run").close()
    with closing(sqlite3.connect(tmp_path / "run" / "shard-1-of-2.sqlite")) as connection:
        connection.execute("UPDATE rows SET confidence = confidence / 2")
        connection.commit()
    with pytest.raises(RunError, match="contradict"):
        merge(tmp_path / "run")


def content(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def spoil(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


SPOILED = {
    "other rows": ("3-of-4", "2-of-4", "UPDATE rows SET confidence = confidence / 2"),
    "other images": ("3-of-4", "2-of-4", "UPDATE samples SET image_key = 'x' || sample"),
    "missing rows": ("2-of-4", "1-of-4", "DELETE FROM rows"),
}


@pytest.mark.parametrize("kind", SPOILED)
@pytest.mark.parametrize("has_main", [False, True])
def test_refused_merge_changes_no_file_and_names_both_stores(run_tiny, tmp_path, kind, has_main):
    """Shard 3 is a copy of another one, so that their rows meet."""
    folder = tmp_path / "run"
    for index in (1, 2) if kind != "missing rows" else (2,):
        run_tiny(output=folder, shard=f"{index}/4", method="zero-shot").close()
    if has_main:
        merge(folder, partial=True).close()
    spoiled, other, statement = SPOILED[kind]
    if kind != "missing rows":
        shutil.copy(folder / f"shard-{other}.sqlite", folder / f"shard-{spoiled}.sqlite")
    spoil(folder / f"shard-{spoiled}.sqlite", statement)
    before = content(folder)
    with pytest.raises(RunError) as caught:
        merge(folder)
    assert content(folder) == before
    named = (other,) if kind == "missing rows" else (other, spoiled)
    assert all(f"shard-{name}.sqlite" in str(caught.value) for name in named)


def test_store_of_another_run_is_refused_without_a_change(run_tiny, tmp_path):
    run_tiny(output=tmp_path / "run", method="zero-shot").close()
    before = content(tmp_path / "run")
    with pytest.raises(RunError, match="another configuration"):
        run_tiny(output=tmp_path / "run", method="tpt")
    assert content(tmp_path / "run") == before


def test_every_sample_is_in_exactly_one_shard_of_similar_size():
    ids = [f"class/{number}.jpg" for number in range(2000)]
    shards = [Shard(index, 4) for index in range(1, 5)]
    counts = [sum(shard.holds(name) for name in ids) for shard in shards]
    assert all(sum(shard.holds(name) for shard in shards) == 1 for name in ids)
    assert min(counts) > 400


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ("2/4", {"RANK": "0", "WORLD_SIZE": "8"}, Shard(2, 4)),
        (None, {"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0"}, Shard(4, 8)),
        (None, {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, Shard(2, 2)),
        (None, {}, Shard(1, 1)),
    ],
)
def test_shard_comes_from_the_flag_then_from_the_environment(given, environment, expected):
    assert find_shard(given, environment) == expected


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2"])
def test_impossible_shards_are_refused(text):
    with pytest.raises(RunError, match="shar"):
        find_shard(text, {})
