"""Exports: derived, atomic, the same bytes for the same rows; a failed save is an error."""

import errno
import json

import pytest
from tiny_runs import exported

import dtpt.files
from dtpt.errors import RunError
from dtpt.runs import export, open_run
from dtpt.runs.results import FORMATS, safe_name


def test_all_formats_are_written_with_equal_bytes_twice(run_tiny, tmp_path):
    pytest.importorskip("pyarrow")
    run = run_tiny()
    first = export(run, tmp_path / "a", formats=FORMATS)
    second = export(run, tmp_path / "b", formats=FORMATS)
    assert [path.name for path in first] == [path.name for path in second]
    for one, two in zip(first, second, strict=True):
        if one.name != "results.json":
            assert one.read_bytes() == two.read_bytes()
    documents = [json.loads(paths[0].read_text()) for paths in (first, second)]
    for document in documents:
        del document["date"]
    assert documents[0] == documents[1]


def test_sample_files_hold_every_row(run_tiny, tmp_path, images):
    parquet = pytest.importorskip("pyarrow.parquet")
    images.samples[0].image.path.write_text("damaged")
    run = run_tiny()
    _, lines_file, table_file = export(run, tmp_path, formats=("results", "jsonl", "parquet"))
    lines = [json.loads(line) for line in lines_file.read_text().splitlines()]
    assert len(lines) == 90
    failed = [line for line in lines if line["status"] == "failed"]
    assert {line["id"] for line in failed} == {images.samples[0].id}
    assert all(line["confidence"] is None and line["reason"] for line in failed)
    table = parquet.read_table(table_file).to_pylist()
    for line, row in zip(lines, table, strict=True):
        top = line.pop("top5") or []
        assert row.pop("top5_labels") == [pair[0] for pair in top]
        assert row.pop("top5_probabilities") == [pair[1] for pair in top]
        assert row == line


def test_clip_benchmark_record_has_its_fields(run_tiny, tmp_path, images):
    run = run_tiny(method=("tpt",), model="ViT-B-16/openai")
    (path,) = export(run, tmp_path, formats=("clip-benchmark",))
    record = json.loads(path.read_text())
    assert record["model"] == "ViT-B-16"
    assert record["pretrained"] == "openai"
    assert record["dataset"] == images.name
    assert record["task"] == "zeroshot_classification"
    assert record["metrics"]["acc1"] == float(run.rows().correct.mean())


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_save_is_an_error_and_leaves_the_old_file(run_tiny, tmp_path, monkeypatch, step):
    run = run_tiny()
    (old,) = export(run, tmp_path, formats=("results",))
    before = old.read_bytes()

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(dtpt.files.os, step, fail)
    with pytest.raises(RunError, match="No space left on device"):
        export(run, tmp_path, formats=("results",))
    monkeypatch.undo()
    assert old.read_bytes() == before
    assert list(tmp_path.glob(".results*")) == []


def test_folder_in_the_way_is_an_error(run_tiny, tmp_path):
    (tmp_path / "x" / "results.json").mkdir(parents=True)
    with pytest.raises(RunError, match="Is a directory"):
        export(run_tiny(), tmp_path / "x", formats=("results",))


def test_unknown_format_is_named(run_tiny, tmp_path):
    with pytest.raises(RunError, match="'xml'"):
        export(run_tiny(), tmp_path, formats=("xml",))


def test_half_finished_run_is_marked_incomplete(run_tiny, tmp_path):
    run_tiny(shard="1/2").close()
    part = open_run(tmp_path / "run" / "shard-1-of-2.sqlite")
    document, _ = json.loads(exported(part))
    assert document["complete"] is False
    counts = next(iter(document["n-samples"].values()))
    assert counts["effective"] < counts["original"] == 30


@pytest.mark.parametrize(
    "name", ["folder:/tmp/a b", "openmoji/food-drink", "../../etc/passwd", "/"]
)
def test_file_names_stay_in_their_folder(name):
    assert "/" not in safe_name(name)
    assert not safe_name(name).startswith("..")
    assert safe_name(name)


def test_long_names_that_differ_at_their_ends_stay_apart():
    folder = "folder:/" + 40 * "images/"
    names = {safe_name(folder + end) for end in ("train", "test")}
    assert len(names) == 2
    assert max(map(len, names)) <= 150
