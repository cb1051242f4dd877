"""The store: keys by content, whole transactions, one writer, clear refusals."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtpt.data import fingerprint
from dtpt.errors import RunError
from dtpt.runs import (
    DatasetSpec,
    MethodSpec,
    ModelSpec,
    RunSpec,
    export,
    open_run,
    results_of,
    score_methods,
)
from dtpt.runs.rows import Row
from dtpt.runs.spec import Cell, describe_difference
from dtpt.runs.store import SampleRecord, Store

CLASSES = ("banded", "dotted", "zigzagged")


def make_spec(**changes):
    dataset = DatasetSpec(
        name="dtd",
        fingerprint=fingerprint(CLASSES, [SampleRecord(name, 1) for name in "abcd"]),
        classes=3,
        samples=4,
        whole=4,
        methods=(MethodSpec(name="tpt"), MethodSpec.model_validate({"name": "d-tpt", "lambda": 5})),
        views={"count": 64},
    )
    fields = {
        "model": ModelSpec(name="tiny", fingerprint="b" * 64),
        "datasets": (dataset.model_copy(update=changes.pop("dataset", {})),),
        "seeds": (0,),
        "template": "a photo of a {}.",
        "tuning": {"steps": 1},
        "code_version": "1",
    }
    return RunSpec(**{**fields, **changes})


def make_row(prediction=1, confidence=0.75, *, label=1, lambda_=None):
    return Row(
        prediction=prediction,
        confidence=confidence,
        entropy=0.5,
        p_label=confidence if label == prediction else 0.125,
        sum_squares=confidence and confidence**2,
        lambda_used=lambda_,
        top5=json.dumps([[prediction, confidence], [0, 0.1234567]]),
        zero_shot_prediction=2,
        zero_shot_confidence=0.4,
    )


def make_rows(spec, **values):
    return {cell: make_row(**values, lambda_=cell.lambda_) for cell in spec.cells()}


def new_store(path, spec):
    store = Store(path, spec)
    store.write_classes("dtd", CLASSES)
    return store


def write_all(path, spec, ids=("a", "b", "c", "d"), confidence=0.75):
    with new_store(path, spec) as store:
        for name in ids:
            record = SampleRecord(name, 1, image_key=f"key of {name}")
            rows = make_rows(spec, confidence=confidence)
            store.write("dtd", record, rows=rows)


def test_spec_survives_json_and_its_hash_ignores_the_name_of_the_model():
    spec = make_spec()
    assert RunSpec.model_validate_json(spec.canonical()) == spec
    renamed = make_spec(model=ModelSpec(name="other", fingerprint="b" * 64))
    assert renamed.hash == spec.hash
    assert describe_difference(spec, renamed) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"seeds": (0, 1)}, "seeds: [0] → [0, 1]"),
        ({"template": "a {}."}, "template: a photo of a {}. → a {}."),
        ({"tuning": {"steps": 2}}, "tuning.steps: 1 → 2"),
        ({"dataset": {"views": {"count": 8}}}, "datasets.dtd.views.count: 64 → 8"),
        ({"code_version": "2"}, "code_version: 1 → 2"),
        ({"context": "c" * 64}, "context: null → cccccccccccc…"),
    ],
)
def test_each_setting_changes_the_hash_and_is_named_in_the_difference(change, line):
    spec, other = make_spec(), make_spec(**change)
    assert other.hash != spec.hash
    assert describe_difference(spec, other) == [line]


def test_cell_keys_depend_on_content_only():
    cell = Cell("dtd", "d-tpt", 1e5, 0, "a {}.")
    assert cell.key == Cell("dtd", "d-tpt", 100000.0, 0, "a {}.").key
    others = [
        Cell("dtd", "d-tpt", None, 0, "a {}."),
        Cell("dtd", "d-tpt", 1e5, 1, "a {}."),
        Cell("pets", "d-tpt", 1e5, 0, "a {}."),
        Cell("dtd", "d-tpt", 1e5, 0, "the {}."),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 5
    assert 0 <= cell.key < 2**63


def test_what_is_written_is_read_back(tmp_path):
    spec = make_spec()
    write_all(tmp_path / "run.sqlite", spec)
    with open_run(tmp_path) as run:
        assert run.spec == spec
        rows = run.rows(method="d-tpt@5")
        assert rows.sample.tolist() == ["a", "b", "c", "d"]
        assert rows.correct.all()
        assert set(rows.entropy) == {0.5}
        first = next(run.stored_rows(rows.cells[0]))
        assert json.loads(first["top5"]) == [[1, 0.75], [0, 0.1234567]]
        assert run.samples("dtd")["b"].image_key == "key of b"
        assert run.is_complete
        assert len(run.rows()) == 8  # both methods
        assert run.rows().cell_index.tolist() == [0] * 4 + [1] * 4


def test_successful_row_is_never_replaced_but_a_failed_one_is(tmp_path):
    spec = make_spec()
    path = tmp_path / "run.sqlite"
    cells = spec.cells()
    with new_store(path, spec) as store:
        record = SampleRecord("a", 1)
        store.write_failure("dtd", record, cells=cells, reason="damaged")
        assert store.finished(cells[0], ["a"]) == set()
        for confidence in (0.75, 0.5):
            rows = make_rows(spec, confidence=confidence)
            store.write("dtd", record, rows=rows)
        store.write_failure("dtd", record, cells=cells, reason="damaged")
    with open_run(path) as run:
        assert run.rows().confidence.tolist() == [0.75, 0.75]
        assert run.failures() == []


def test_rows_of_an_image_are_written_together_or_not_at_all(tmp_path):
    spec = make_spec()
    with Store(tmp_path / "run.sqlite", spec) as store:
        good, bad = spec.cells()
        record, broken = SampleRecord("a", 1), make_row(confidence=None)
        with pytest.raises(RunError, match=r"run\.sqlite"):
            store.write("dtd", record, rows={good: make_row(), bad: broken})
        assert store.finished(good, ["a", "b"]) == set()
        store.write("dtd", record, rows={good: make_row(), bad: make_row()})
        assert store.finished(good, ["a", "b"]) == {"a"}


def test_second_writer_is_kept_out_and_readers_are_not(tmp_path):
    spec = make_spec()
    with new_store(tmp_path / "run.sqlite", spec) as store:
        with pytest.raises(RunError, match="Another process"):
            Store(tmp_path / "run.sqlite", spec)
        store.write("dtd", SampleRecord("a", 1), rows={spec.cells()[0]: make_row()})
        with open_run(tmp_path) as run:
            assert len(run.rows()) == 1
    Store(tmp_path / "run.sqlite", spec).close()


def test_finished_store_is_one_plain_file(tmp_path):
    write_all(tmp_path / "run.sqlite", make_spec())
    with open_run(tmp_path) as run:
        assert len(run.rows()) == 8
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [
        "run.sqlite"
    ]


@pytest.mark.parametrize("content", [b"this is not a database at all" * 50, b"SQLite format 3\0x"])
def test_file_that_is_not_a_store_is_refused_with_a_remedy(tmp_path, content):
    path = tmp_path / "run.sqlite"
    path.write_bytes(content)
    for attempt in (lambda: open_run(path), lambda: Store(path, make_spec())):
        with pytest.raises(RunError, match=r"run\.sqlite.*--fresh"):
            attempt()


def test_store_of_a_newer_version_is_refused(tmp_path):
    path = tmp_path / "run.sqlite"
    write_all(path, make_spec())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(RunError, match="another version"):
        open_run(path)


def test_image_with_rows_cannot_be_replaced_but_a_failed_one_can(tmp_path):
    spec = make_spec()
    cells = spec.cells()
    old, new, other = (
        SampleRecord("a", 1, image_key=key, stamp=stamp)
        for key, stamp in (("old", "1"), ("new", "2"), ("other", "3"))
    )
    with Store(tmp_path / "run.sqlite", spec) as store:
        store.write_failure("dtd", old, cells=cells, reason="damaged")
        store.write("dtd", new, rows={cells[0]: make_row()})
        assert store.samples("dtd", ["a"])["a"].image_key == "new"
        with pytest.raises(RunError, match="'a'"):
            store.write("dtd", other, rows={cell: make_row() for cell in cells})
        assert store.finished(cells[1], ["a"]) == set()


def test_notes_are_kept_once_for_each_data_set(tmp_path):
    spec = make_spec()
    for _ in range(2):
        with Store(tmp_path / "run.sqlite", spec) as store:
            store.write_notes("dtd", ["2 folders are left out.", "1 class has no image."])
            store.write_notes("", ["of the whole run"])
    with open_run(tmp_path) as run:
        assert run.notes() == {
            "": ("of the whole run",),
            "dtd": ("1 class has no image.", "2 folders are left out."),
        }


def test_names_for_people_and_the_whole_size_do_not_change_the_hash():
    spec = make_spec()
    renamed = make_spec(dataset={"family": "own", "whole": 99})
    assert renamed.hash == spec.hash
    assert describe_difference(spec, renamed) == []
    assert renamed.datasets[0].is_partial
    assert not spec.datasets[0].is_partial


def test_columns_of_all_cells_agree_with_rows_of_each(tmp_path):
    spec = make_spec(seeds=(0, 1))
    write_all(tmp_path / "run.sqlite", spec)
    with open_run(tmp_path) as run:
        columns = run.columns("sample", "confidence", "correct")
        assert set(columns) == set(run.cells)
        for cell, table in columns.items():
            rows = run.rows_of(cell)
            np.testing.assert_array_equal(table["confidence"], rows.confidence)
            np.testing.assert_array_equal(table["correct"], rows.correct)
            assert table["sample"].tolist() == rows.sample.tolist()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from(["flip", "zeroed page", "cut", "noise"]),
    position=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**32),
)
def test_damaged_store_is_called_damaged_whatever_is_read(tmp_path_factory, kind, position, seed):
    path = tmp_path_factory.mktemp("damaged") / "run.sqlite"
    write_all(path, make_spec())
    data = bytearray(path.read_bytes())
    at = int(position * len(data))
    page = at - at % 4096
    if kind == "flip":
        data[at] ^= 1 << seed % 8
    elif kind == "zeroed page":
        data[page : page + 4096] = bytes(4096)
    elif kind == "cut":
        del data[max(at, 1) :]
    else:
        data[page : page + 4096] = np.random.default_rng(seed).bytes(4096)
    path.write_bytes(data)
    message = refusal_of(path) or "is damaged"  # some bytes are not used by anything
    assert "is damaged" in message or "another version" in message
    assert "\n" not in message


def refusal_of(path):
    """Read everything; return why it is refused."""
    try:
        with open_run(path) as run:
            results_of(run)
            run.columns("correct", "confidence")
            export(run, path.parent / "files", formats=("jsonl",))
    except RunError as error:
        return str(error)
    return ""


def test_damaged_configuration_is_one_line(tmp_path):
    path = tmp_path / "run.sqlite"
    write_all(path, make_spec())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = '{\"model\": 1}' WHERE key = 'spec'")
        connection.commit()
    for attempt in (lambda: open_run(path), lambda: Store(path, make_spec())):
        with pytest.raises(RunError, match=r"run\.sqlite is damaged .*--fresh") as refusal:
            attempt()
        assert "\n" not in str(refusal.value)


def test_other_database_is_not_a_run(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
        connection.commit()
    for attempt in (open_run, lambda path: Store(path, make_spec())):
        with pytest.raises(RunError, match="damaged or not a run"):
            attempt(tmp_path / "other.sqlite")


def test_missing_or_empty_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="no run"):
        open_run(tmp_path / "nowhere")
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(RunError, match="no run yet"):
        open_run(tmp_path / "empty.sqlite")


def test_folder_that_cannot_be_made_is_one_clear_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"Cannot write .*file"):
        Store(tmp_path / "file" / "run.sqlite", make_spec())


def test_ten_thousand_rows_are_read_and_scored(tmp_path):
    count = 10_000
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.4, 1, count)
    labels = generator.integers(0, 3, count)
    records = [SampleRecord(f"class/{i:06d}.jpg", int(labels[i])) for i in range(count)]
    methods = (MethodSpec(name="tpt"),)
    identity = fingerprint(CLASSES, records)
    spec = make_spec(dataset={"samples": count, "methods": methods, "fingerprint": identity})
    (cell,) = spec.cells()
    with new_store(tmp_path / "run.sqlite", spec) as store, store.together():
        for record, value in zip(records, confidence, strict=True):
            row = make_row(1, float(value), label=record.label)
            store.write("dtd", record, rows={cell: row})
    with open_run(tmp_path) as run:
        (result,) = score_methods(run)
        assert result.seeds[0, None].effective == count
        assert result.mean["accuracy"] == np.mean(labels == 1)
        np.testing.assert_array_equal(run.rows().confidence, confidence)
