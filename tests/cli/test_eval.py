"""The commands in processes of their own: exit codes, messages, signals, full disks."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from processes import PROGRAM

from dtpt.cli import main
from dtpt.errors import RunError
from dtpt.runs import Results, open_run
from dtpt.runs.cluster import ClusterPlan, NodePlan

PATIENCE = 600  # seconds, on a machine however busy


def command(world, output, *more, name="eval"):
    images = () if "--dataset" in more else ("--dataset", f"folder:{world / 'images'}")
    workers = () if "--view-workers" in more else ("--view-workers", "0")
    return [
        *(sys.executable, "-c", PROGRAM, name),
        *("--model", f"local-dir:{world / 'tiny'}", *images, *workers),
        *("--views", "4", "--output", str(output), *more),
    ]


def environment(world):
    return {**os.environ, "DTPT_CACHE": str(world / "cache"), "OMP_NUM_THREADS": "1"}


def start(world, output, *more, **named):
    return subprocess.Popen(
        command(world, output, *more),
        env=environment(world),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **named,
    )


def rows_in(path):
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT count(*) FROM rows").fetchone()[0]
    except sqlite3.Error:
        return 0


def wait_until(is_true):
    """Poll a condition; what bounds it is only the patience of whoever waits for the suite."""
    end = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < end, "gave up"
        time.sleep(0.05)


def session_members(session):
    """Process ids of all that is left of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to look at processes")
@pytest.mark.parametrize(
    ("sent", "code", "more"),
    [
        (signal.SIGINT, 130, ("--view-workers", "1")),
        (signal.SIGTERM, 143, ("--workers", "2", "--view-workers", "1")),
    ],
)
def test_signals_end_cleanly_with_the_command_that_resumes(world, tmp_path, sent, code, more):
    # Ten seeds make the run long enough that the signal comes in its middle on any machine.
    work = ("--method", "tpt,d-tpt", "--seed", ",".join(map(str, range(10))), *more)
    process = start(world, tmp_path, *work, start_new_session=True)
    wait_until(lambda: rows_in(tmp_path / "run.sqlite") >= 3 or process.poll() is not None)
    os.killpg(process.pid, sent)  # as a terminal does: to all processes
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert f"--output {tmp_path}" in errors  # of the command that resumes
    wait_until(lambda: session_members(process.pid) == [])
    with open_run(tmp_path) as run:
        assert 3 <= len(run.rows()) < 6000
        assert run.sessions()[0]["seconds"] > 0  # closed in order


def call(world, output, *more):
    """Run the command in this process, where torch is loaded already."""
    main.call(command(world, output, *more)[3:])


@pytest.fixture
def shared_cache(world, monkeypatch):
    monkeypatch.setenv("DTPT_CACHE", str(world / "cache"))


def test_json_is_the_content_of_results_json(world, tmp_path, capsys, shared_cache):
    options = ("--method", "zero-shot", "--limit", "3", "--threads", "1", "--quiet")
    call(world, tmp_path, *options, "--json")
    output, errors = capsys.readouterr()
    printed = Results.model_validate_json(output)
    stored = Results.model_validate_json((tmp_path / "results.json").read_text())
    assert printed.results == stored.results
    assert printed.n_samples == stored.n_samples
    (counts,) = printed.n_samples.values()
    assert (counts.original, counts.whole) == (3, 300)
    assert errors == ""


def test_table_says_of_how_many_images(world, tmp_path, capsys, shared_cache):
    call(world, tmp_path, "--method", "zero-shot", "--limit", "3", "--threads", "1", "--quiet")
    assert "3 of 300" in capsys.readouterr().out


def test_unreadable_image_gives_exit_code_1_and_the_other_rows(tmp_path, world, capsys):
    shutil.copytree(world / "images" / "cat", tmp_path / "images" / "cat")
    damaged = tmp_path / "images" / "cat" / "000.png"
    damaged.write_bytes(b"no image")
    options = ("--method", "zero-shot", "--threads", "1", "--quiet")
    options += ("--dataset", f"folder:{tmp_path / 'images'}")
    with pytest.raises(SystemExit) as stop:
        call(world, tmp_path / "run", *options)
    assert stop.value.code == 1
    output, errors = capsys.readouterr()
    assert "000.png" in errors
    assert "99 of 100" in output
    shutil.copy(world / "images" / "cat" / "000.png", damaged)
    call(world, tmp_path / "run", *options)
    assert "99 of 100" not in capsys.readouterr().out


def test_evaluation_prints_the_paper_units_and_writes_fractions(
    world, tmp_path, capsys, shared_cache
):
    options = ("--limit", "12", "--seed", "0", "1", "--threads", "1")
    call(world, tmp_path, "--method", "zero-shot,tpt", *options)
    output, errors = capsys.readouterr()
    document = json.loads((tmp_path / "results.json").read_text())
    (entry,) = document["results"].values()
    accuracy = entry["tpt"]["mean"]["accuracy"]
    assert 0 <= accuracy <= 1
    assert f"{accuracy * 100:.2f}" in output
    assert "Brier" in output
    assert "12/12 images" in errors
    assert len((next(tmp_path.glob("samples_*.jsonl"))).read_text().splitlines()) == 48
    with pytest.raises(RunError, match="zero-shot, tpt → d-tpt@1e5"):
        call(world, tmp_path, "--method", "d-tpt", *options)


def test_shards_are_evaluated_merged_and_exported(world, tmp_path, capsys, shared_cache):
    options = ("--method", "tpt", "--limit", "12", "--threads", "1", "--quiet")
    for shard in ("1/2", "2/2"):
        call(world, tmp_path, *options, "--shard", shard)
        assert not (tmp_path / "results.json").exists()
    for arguments in (["merge", str(tmp_path)], ["export", str(tmp_path), "--format", "jsonl"]):
        main.call(arguments)
    assert json.loads((tmp_path / "results.json").read_text())["complete"] is True
    assert "samples_folder" in capsys.readouterr().out


def test_sweep_evaluates_the_grid(world, tmp_path, capsys, shared_cache):
    arguments = command(world, tmp_path, "--limit", "3", "--threads", "1", name="sweep")[3:]
    main.call([*arguments, "--method", "tpt,d-tpt"])
    with open_run(tmp_path) as run:
        assert len(run.cells) == 8
        assert run.is_complete
    assert "d-tpt@1e6" in capsys.readouterr().out


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))


def test_full_disk_is_an_error_and_what_was_finished_stays(world, tmp_path):
    work = ("--method", "tpt,c-tpt,d-tpt")
    process = start(world, tmp_path, *work, "--no-cache", preexec_fn=limit_file_size)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, errors
    assert str(tmp_path / "run.sqlite") in errors
    with open_run(tmp_path) as run:
        stored = len(run.rows(method="tpt"))
    assert 0 < stored < 300
    call(world, tmp_path, *work, "--quiet", "--threads", "1")
    with open_run(tmp_path) as run:
        assert run.is_complete
        assert run.sessions()[-1]["encoded_images"] <= 300 - stored


def test_folder_that_cannot_be_written_is_one_sentence(world):
    with pytest.raises(RunError, match="/proc/nowhere"):
        call(world, Path("/proc/nowhere"), "--limit", "3")


def test_plan_lists_the_nodes_of_a_cluster(capsys, monkeypatch):
    nodes = (
        NodePlan("big", "EPYC", "cuda", 2, 90, 0.125),
        NodePlan("small", "ARM", "cpu", 1, 10, 2),
    )
    plan = ClusterPlan(100, 8, 40.0, nodes, ("poor: too little memory",))
    monkeypatch.setattr("dtpt.runs.cluster.plan_cluster", lambda options, reporter: plan)
    words = ["eval", "--dataset", "dtd", "--executor", "ray", "--plan"]
    main.call(words)
    assert {"big", "EPYC", "0.125", "small", "poor:"} <= set(capsys.readouterr().out.split())
    main.call([*words, "--json"])
    assert [node["images"] for node in json.loads(capsys.readouterr().out)["nodes"]] == [90, 10]


@pytest.mark.parametrize("name", ["eval", "sweep"])
def test_lambda_found_without_labels_is_printed_and_stored(world, tmp_path, capsys, name):
    options = ("--method", "d-tpt@auto,tpt", "--limit", "6", "--quiet")
    words = command(world, tmp_path, *options, name=name)[3:]
    for more in ([], ["--json"]):
        main.call([*words, *more])
        shown = capsys.readouterr()
        if not more:
            assert "d-tpt@auto=0.9, seed 0: λ" in shown.err
            assert "d-tpt@auto=0.9 (λ " in shown.out
    (methods,) = json.loads(shown.out)["results"].values()
    assert list(methods) == ["d-tpt@auto=0.9", "tpt"]
    with open_run(tmp_path) as run:
        (found,) = run.lambdas().values()
    assert methods["d-tpt@auto=0.9"]["selected_lambda"] == {"0": found.value}
