"""A store that was edited is refused wherever it is read; `dtpt doctor RUN` names everything."""

import json
import re
import sqlite3
import zlib
from contextlib import closing

import pytest
from tiny_runs import TINY_OPTIONS, draw_images, tiny_clip

from dtpt.cli.doctor import doctor, examine_run
from dtpt.errors import RunError
from dtpt.runs import EvalOptions, export, open_run, results_of, run_options, score_methods
from dtpt.runs.calibrate import labelled_predictions
from dtpt.runs.reading import Run
from dtpt.runs.spec import hash_of
from dtpt.runs.store import Store

FORMATS = ("results", "jsonl", "clip-benchmark")


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """The bytes of a small real run, with all kinds of rows: one image cannot be read."""
    folder = tmp_path_factory.mktemp("intact")
    draw_images(folder / "images", per_class=3)
    (folder / "images" / "bird" / "001.png").write_bytes(b"no image")
    options = EvalOptions(
        output=folder, dataset=(f"folder:{folder / 'images'}",), max_failures=0.5, **TINY_OPTIONS
    )
    run_options(options, model=tiny_clip()).close()
    return (folder / "run.sqlite").read_bytes()


@pytest.fixture
def edited(intact, tmp_path):
    """Return a function that edits a copy of the run with SQL and returns its path."""

    def edit(script="", **values):
        path = tmp_path / "run.sqlite"
        path.write_bytes(intact)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA ignore_check_constraints=ON")
            if values:
                connection.execute(script, values)
            else:
                connection.executescript(script)
        return path

    return edit


def read_all(path):
    """Read everything that any consumer reads; each of the readers alone is enough to refuse."""
    readers = [
        lambda run: run.rows(),
        lambda run: run.columns("correct"),
        lambda run: results_of(run),
        lambda run: score_methods(run),
        lambda run: export(run, path.parent / "files", formats=FORMATS),
        lambda run: [run.probabilities(cell) for cell in run.cells],
        lambda run: [labelled_predictions(run, cell) for cell in run.cells],
        lambda run: [list(run.stored_rows(cell)) for cell in run.cells],
    ]
    refusals = []
    for read in readers:
        try:
            with open_run(path) as run:
                read(run)
        except RunError as error:
            refusals.append(str(error))
    return refusals, len(readers)


def test_an_intact_run_is_read_and_has_no_problem(edited):
    path = edited()
    assert read_all(path)[0] == []
    found = examine_run(path)
    assert found["errors"] == []
    assert found["warnings"] == [f"{path}: 1 images could not be read."]
    (facts,) = [value for value in found.values() if isinstance(value, dict)]
    assert (facts["samples"], facts["rows"], facts["failed_rows"]) == (9, 24, 3)


OF_ONE = "WHERE sample = 'cat/001.png' AND status = 'ok'"
EDITS = {
    "100 % accuracy": "UPDATE rows SET label = prediction WHERE status = 'ok'",
    "a label beyond the classes": f"UPDATE rows SET label = 7 {OF_ONE}",
    "labels changed everywhere": "UPDATE rows SET label = 0",
    "a prediction": f"UPDATE rows SET prediction = (prediction + 1) % 3 {OF_ONE}",
    "a prediction and its list": f"UPDATE rows SET prediction = (prediction + 1) % 3, "
    f"top5 = '[[' || ((prediction + 1) % 3) || ',' || confidence || ']]' {OF_ONE}",
    "a confidence": f"UPDATE rows SET confidence = 0.99 {OF_ONE}",
    "a confidence and its list": f"UPDATE rows SET confidence = 0.99, p_label = 0.1, "
    f"sum_squares = 0.99, top5 = '[[' || prediction || ',0.99]]' {OF_ONE}",
    "a confidence that is text": f"UPDATE rows SET confidence = 'high' {OF_ONE}",
    "an infinite confidence": f"UPDATE rows SET confidence = 9e999 {OF_ONE}",
    "the probability of the label": f"UPDATE rows SET p_label = confidence / 2 {OF_ONE}",
    "the sum of squares": f"UPDATE rows SET sum_squares = confidence {OF_ONE}",
    "the number of views": f"UPDATE rows SET views = 0 {OF_ONE}",
    "the entropy": f"UPDATE rows SET entropy = 5.0 {OF_ONE}",
    "λ": f"UPDATE rows SET lambda_used = 7.0 {OF_ONE} AND lambda_used IS NOT NULL",
    "probabilities of other classes": f"UPDATE rows SET log_probabilities = :short {OF_ONE}",
    "probabilities without end": f"UPDATE rows SET log_probabilities = :bomb {OF_ONE}",
    "damaged probabilities": f"UPDATE rows SET log_probabilities = x'00' {OF_ONE}",
    "probabilities that are text": f"UPDATE rows SET log_probabilities = 'x' {OF_ONE}",
    "the list of the largest": f"UPDATE rows SET top5 = '[[' {OF_ONE}",
    "no list of the largest": f"UPDATE rows SET top5 = NULL {OF_ONE}",
    "a failure with a result": "UPDATE rows SET confidence = 0.5 WHERE status = 'failed'",
    "a failure without reason": "UPDATE rows SET reason = NULL WHERE status = 'failed'",
    "extra rows": "INSERT INTO rows SELECT cell, 'new', status, reason, label, prediction, "
    "confidence, entropy, p_label, sum_squares, top5, zero_shot_prediction, zero_shot_confidence, "
    f"views, lambda_used, position, log_probabilities FROM rows {OF_ONE} LIMIT 1",
    "a position without an order": f"UPDATE rows SET position = 0 {OF_ONE}",
    "a state of no stream": "INSERT INTO states VALUES (7, 0, 1, x'00')",
    "rows of another cell": f"UPDATE rows SET cell = cell / 2 {OF_ONE}",
    "a sample without its record": "DELETE FROM samples WHERE sample = 'cat/001.png'",
    "extra samples": "INSERT INTO samples SELECT dataset, sample || 'x', label, \"group\", "
    "cluster, image_key, stamp FROM samples",
    "a renamed class": "UPDATE classes SET name = 'lion' WHERE name = 'cat'",
    "a missing class": "DELETE FROM classes WHERE name = 'cat'",
    "an extra class": "INSERT INTO classes SELECT dataset, 3, 'lion' FROM classes LIMIT 1",
    "a renamed sample": "UPDATE samples SET sample = 'cat/999.png' WHERE sample = 'cat/001.png'",
    "no cells": "DELETE FROM cells",
    "a session without description": "UPDATE sessions SET environment = '[1]'",
    "a session of odd entries": "UPDATE sessions SET environment = '{\"nodes\": [7]}'",
    "a session of infinite length": "UPDATE sessions SET seconds = 9e999",
    "a negative count": "UPDATE sessions SET rows = -1",
    "the specification": "UPDATE meta SET value = replace(value, '\"seeds\":[0]', '\"seeds\":[1]') "
    "WHERE key = 'spec'",
    "the hash": "UPDATE meta SET value = 'f' WHERE key = 'spec_hash'",
    "no hash": "DELETE FROM meta WHERE key = 'spec_hash'",
    "a view": "DROP TABLE notes; CREATE VIEW notes AS SELECT '' dataset, '' text",
    "a view of rows without end": "ALTER TABLE rows RENAME TO old; CREATE VIEW rows AS WITH "
    "RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 1 cell, x sample FROM c",
    "another view of results": "DROP VIEW results; CREATE VIEW results AS SELECT 1 AS a",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END",
    "a column": "ALTER TABLE rows ADD COLUMN more TEXT",
}
BLOBS = {"bomb": zlib.compress(bytes(1 << 26)), "short": zlib.compress(bytes(4))}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_run_is_refused_and_described(edited, name):
    path = edited(EDITS[name], **(BLOBS if "log_probabilities = :" in EDITS[name] else {}))
    refusals, readers = read_all(path)
    assert len(refusals) == readers
    for text in refusals:
        assert str(path) in text
        assert "\n" not in text
    assert examine_run(path)["errors"] != []


def test_doctor_lists_every_problem_with_its_count(edited, capsys):
    path = edited("UPDATE rows SET entropy = 5.0 WHERE status = 'ok' AND label = 0; "
                  "UPDATE rows SET label = 0 WHERE status = 'ok' AND label <> 0;")  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        doctor(path, as_json=True)
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert ended.value.code == 2
    assert len(errors) == 6  # labels and entropies of three cells
    assert sum(int(re.search(r"\((\d+), first", text)[1]) for text in errors) == 24


def test_a_run_that_was_edited_is_not_resumed(edited):
    for edit in ("DELETE FROM classes", "UPDATE samples SET label = 9"):
        path = edited(edit)
        with Run(path, is_trusted=True) as run, pytest.raises(RunError, match=r"run\.sqlite"):
            Store(path, run.spec)


def test_a_specification_without_later_fields_still_fits_its_hash(edited):
    path = edited()
    with open_run(path) as run:
        content = json.loads(run.spec.canonical())
    del content["batch"]  # as an older version would have written it
    statement = "UPDATE meta SET value = ? WHERE key = ?"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, (json.dumps(content), "spec"))
        connection.execute(statement, (hash_of(content), "spec_hash"))
        connection.commit()
    with open_run(path) as run:
        assert run.spec.batch == 1
        assert len(run.rows()) == 24
