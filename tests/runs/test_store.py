"""The store: keys by content, whole transactions, one writer, clear refusals, fast reading."""

import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtpt.errors import RunError
from dtpt.runs import (
    DatasetSpec,
    MethodSpec,
    ModelSpec,
    RunSpec,
    export,
    merge,
    open_run,
    results_of,
    score_cells,
)
from dtpt.runs.spec import Cell, describe_difference
from dtpt.runs.store import Answer, SampleInfo, Store


def make_spec(**changes):
    dataset = DatasetSpec(
        name="dtd",
        fingerprint="a" * 64,
        classes=3,
        samples=4,
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


def make_answer(prediction=1, confidence=0.75):
    return Answer(
        prediction=prediction,
        confidence=confidence,
        entropy=0.5,
        p_label=0.25,
        sum_squares=0.6,
        top5=((prediction, confidence), (0, 0.1234567)),
        zero_shot_prediction=2,
        zero_shot_confidence=0.4,
    )


def write_all(path, spec, ids=("a", "b", "c", "d"), confidence=0.75):
    with Store(path, spec) as store:
        for name in ids:
            info = SampleInfo("dtd", name, 1, "g", f"key of {name}")
            store.write(info, {cell: make_answer(confidence=confidence) for cell in spec.cells()})


def test_spec_survives_json_and_its_hash_ignores_the_name_of_the_model():
    spec = make_spec()
    assert RunSpec.model_validate_json(spec.canonical()) == spec
    renamed = make_spec(model=ModelSpec(name="other", fingerprint="b" * 64))
    assert renamed.hash == spec.hash
    assert describe_difference(spec, renamed) == []


def test_a_run_is_the_same_when_its_sets_stand_under_another_heading():
    spec = make_spec()
    entries = tuple(entry.model_copy(update={"family": "own"}) for entry in spec.datasets)
    assert spec.model_copy(update={"datasets": entries}).hash == spec.hash


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
        assert rows.ids.tolist() == ["a", "b", "c", "d"]
        assert rows.correct.all()
        assert set(rows.entropy) == {0.5}
        assert run.top5(rows.cells[0])["a"] == [(1, 0.75), (0, 0.1234567)]
        assert run.samples("dtd")["b"].image_key == "key of b"
        assert run.is_complete
        assert len(run.rows()) == 8  # both methods
        assert run.rows().cell_index.tolist() == [0] * 4 + [1] * 4


def test_successful_row_is_never_replaced_but_a_failed_one_is(tmp_path):
    spec = make_spec()
    path = tmp_path / "run.sqlite"
    cells = spec.cells()
    with Store(path, spec) as store:
        info = SampleInfo("dtd", "a", 1)
        store.write_failure(info, cells, reason="damaged")
        assert store.finished(cells[0], ["a"]) == set()
        store.write(info, {cell: make_answer(confidence=0.75) for cell in cells})
        store.write(info, {cell: make_answer(confidence=0.5) for cell in cells})
        store.write_failure(info, cells, reason="damaged")
    with open_run(path) as run:
        assert run.rows().confidence.tolist() == [0.75, 0.75]
        assert run.failures() == []


def test_rows_of_an_image_are_written_together_or_not_at_all(tmp_path):
    spec = make_spec()
    with Store(tmp_path / "run.sqlite", spec) as store:
        good, bad = spec.cells()
        broken = make_answer(confidence=None)
        object.__setattr__(broken, "top5", ())
        with pytest.raises(RunError, match=r"run\.sqlite"):
            store.write(SampleInfo("dtd", "a", 1), {good: make_answer(), bad: broken})
        assert store.finished(good, ["a", "b"]) == set()
        store.write(SampleInfo("dtd", "a", 1), {good: make_answer(), bad: make_answer()})
        assert store.finished(good, ["a", "b"]) == {"a"}


def test_second_writer_is_kept_out_and_readers_are_not(tmp_path):
    spec = make_spec()
    with Store(tmp_path / "run.sqlite", spec) as store:
        with pytest.raises(RunError, match="Another process is working on"):
            Store(tmp_path / "run.sqlite", spec)
        store.write(SampleInfo("dtd", "a", 1), {spec.cells()[0]: make_answer()})
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
def test_file_that_is_no_store_is_refused_with_a_remedy(tmp_path, content):
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


def make_old(path):
    """Turn a store into one of the first version of the tables."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE samples DROP COLUMN stamp")
        connection.execute("ALTER TABLE sessions DROP COLUMN rows")
        connection.execute("ALTER TABLE rows DROP COLUMN log_probabilities")
        connection.execute("ALTER TABLE rows DROP COLUMN weight")
        connection.execute("DROP TABLE remarks")
        connection.execute("DROP TABLE weights")
        connection.execute("PRAGMA user_version=1")
        connection.commit()


def test_store_of_the_first_version_is_read_resumed_and_merged(tmp_path):
    spec = make_spec()
    path = tmp_path / "shard-1-of-2.sqlite"
    with Store(path, spec) as store:
        store.begin_session({"environment": {"threads": 1}})
    write_all(path, spec, ids=("a", "b"))
    make_old(path)
    with open_run(path) as run:
        assert run.rows(method="tpt").ids.tolist() == ["a", "b"]
        assert run.remarks() == ()
        assert run.samples("dtd")["a"].stamp is None
        assert run.sessions()[0]["rows"] is None
        assert run.weights() == {}
        assert run.raw_rows(run.cells[0])[0]["weight"] is None
        before = path.read_bytes()
    write_all(tmp_path / "shard-2-of-2.sqlite", spec, ids=("c", "d"))
    with merge(tmp_path) as joined:
        assert len(joined.rows()) == 8
    assert path.read_bytes() == before  # reading and merging change nothing
    write_all(path, spec, ids=("b", "c", "d"))
    with open_run(path) as run:
        assert run.is_complete
        assert run.samples("dtd")["a"].image_key == "key of a"


def test_picture_with_rows_cannot_be_replaced_but_a_failed_one_can(tmp_path):
    spec = make_spec()
    cells = spec.cells()
    with Store(tmp_path / "run.sqlite", spec) as store:
        answers = {cell: make_answer() for cell in cells}
        store.write_failure(SampleInfo("dtd", "a", 1, "", "old", "1"), cells, reason="damaged")
        store.write(SampleInfo("dtd", "a", 1, "", "new", "2"), {cells[0]: make_answer()})
        assert store.samples("dtd", ["a"])["a"].image_key == "new"
        with pytest.raises(RunError, match="the picture 'a' changed since"):
            store.write(SampleInfo("dtd", "a", 1, "", "other", "3"), answers)
        assert store.finished(cells[1], ["a"]) == set()


def test_remarks_are_kept_once_for_each_data_set(tmp_path):
    spec = make_spec()
    for _ in range(2):
        with Store(tmp_path / "run.sqlite", spec) as store:
            store.write_remarks("dtd", ["2 folders are left out.", "1 class has no picture."])
            store.write_remarks("", ["of the whole run"])
    with open_run(tmp_path) as run:
        assert run.remarks("dtd") == ("1 class has no picture.", "2 folders are left out.")
        assert run.remarks("") == ("of the whole run",)
        assert len(run.remarks()) == 3


def test_names_for_people_and_the_whole_size_do_not_change_the_hash():
    spec = make_spec()
    renamed = make_spec(dataset={"family": "own", "whole": 99})
    assert renamed.hash == spec.hash
    assert describe_difference(spec, renamed) == []
    assert renamed.datasets[0].size_text == "4 of 99 pictures"
    assert spec.datasets[0].size_text == "4 pictures"


def test_columns_of_all_cells_agree_with_rows_of_each(tmp_path):
    spec = make_spec(seeds=(0, 1))
    write_all(tmp_path / "run.sqlite", spec)
    with open_run(tmp_path) as run:
        found = run.columns("sample", "confidence", "correct")
        assert set(found) == set(run.cells)
        for cell, table in found.items():
            rows = run.rows_of(cell)
            np.testing.assert_array_equal(table["confidence"], rows.confidence)
            np.testing.assert_array_equal(table["correct"], rows.correct)
            assert table["sample"].tolist() == rows.ids.tolist() == run.sample_ids(cell).tolist()


def test_mistakes_are_the_wrong_answers_most_confident_first(tmp_path):
    spec = make_spec()
    cell, other = spec.cells()
    with Store(tmp_path / "run.sqlite", spec) as store:
        for name, prediction, sure in (("a", 0, 0.5), ("b", 1, 0.9), ("c", 2, 0.8), ("d", 0, 0.8)):
            answers = {cell: make_answer(prediction, sure), other: make_answer(1, sure)}
            store.write(SampleInfo("dtd", name, 1), answers)
    with open_run(tmp_path) as run:
        assert run.mistakes(cell, 2).ids.tolist() == ["c", "d"]
        assert run.mistakes(cell, 9).confidence.tolist() == [0.8, 0.8, 0.5]
        assert len(run.mistakes(other, 9)) == 0


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kind=st.sampled_from(["flip", "zeroed page", "cut", "noise"]),
    place=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**32),
)
def test_damaged_store_is_called_damaged_whatever_is_read(tmp_path_factory, kind, place, seed):
    path = tmp_path_factory.mktemp("damaged") / "run.sqlite"
    write_all(path, make_spec())
    data = bytearray(path.read_bytes())
    at = int(place * len(data))
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


def test_other_database_is_no_run(tmp_path):
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
        connection.commit()
    for attempt in (open_run, lambda path: Store(path, make_spec())):
        with pytest.raises(RunError, match="damaged or not a run"):
            attempt(tmp_path / "other.sqlite")


def test_nothing_there_is_told(tmp_path):
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


def test_fifty_thousand_rows_are_read_and_scored_quickly(tmp_path):
    spec = make_spec(dataset={"samples": 50_000, "methods": (MethodSpec(name="tpt"),)})
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.2, 1, 50_000)
    labels = generator.integers(0, 3, 50_000)
    (cell,) = spec.cells()
    rest = (0.5, 0.2, 0.5, "[[1,0.5]]", 1, 0.5)
    rows = [
        (cell.key, f"class/{i:06d}.jpg", "ok", None, int(labels[i]), 1, float(confidence[i]), *rest)
        for i in range(50_000)
    ]
    Store(tmp_path / "run.sqlite", spec).close()
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as connection:
        connection.executemany(f"INSERT INTO rows VALUES ({','.join('?' * 13)}, NULL, NULL)", rows)
        connection.commit()
    with open_run(tmp_path) as run:
        began = time.process_time()
        (result,) = score_cells(run)
        assert time.process_time() - began < 1.5
        assert result.effective == 50_000
        assert result.metrics["accuracy"] == np.mean(labels == 1)
        np.testing.assert_array_equal(run.rows().confidence, confidence)
