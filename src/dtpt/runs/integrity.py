"""Whether a store says what dtpt wrote: every rule that its content keeps, as data.

`problems_of_tables` reads the small tables and the samples, `problems_of_cell` the rows of a cell;
both are called whenever results are read, and `dtpt doctor RUN` prints everything they find. Rules
are SQL conditions, which SQLite checks in about a microsecond a row; the stored log-probabilities
are compared with prediction, confidence and Brier score in NumPy. Whoever changes everything
consistently is not noticed.
"""

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dtpt.data.dataset import fingerprint
from dtpt.files import printable
from dtpt.runs.rows import unpack
from dtpt.runs.schema import COLUMNS

if TYPE_CHECKING:
    from dtpt.runs.spec import Cell
    from dtpt.runs.store import StoreFile

Rules = Mapping[str, str]
"""SQL conditions that every row of a table meets, by what is wrong where one does not."""

CHUNK = 4096  # rows whose log-probabilities are in memory
ROUNDING = 1e-4  # of probabilities in float32
LOG_ROUNDING = 0.02  # of log-probabilities, which are float16; besides, of large ones 0.1 %
SQUARES_ROUNDING = 0.01  # of the sum of their squares
SMALLEST = 1e-35  # probability with all digits of float32

_OF_RUN = "dataset IN (SELECT value FROM json_each(:datasets))"
_TABLE_RULES: Mapping[str, Rules] = {
    "classes": {
        "of a data set that the run does not have": _OF_RUN,
        "that is no text": "typeof(label) = 'integer' AND typeof(name) = 'text'",
    },
    "notes": {"that is no text": "typeof(dataset) = 'text' AND typeof(text) = 'text'"},
    "lambdas": {
        "that is no possible λ": "typeof(lambda) = 'real' AND lambda BETWEEN 0 AND 1e300",
        "of no image": "typeof(images) = 'integer' AND images > 0",
    },
    "states": {
        "of no stream": "typeof(part) = 'integer' AND typeof(data) = 'blob' AND "
        "typeof(position) = 'integer' AND position > 0",
    },
    "sessions": {
        "that is no text": "typeof(started) = 'text' AND typeof(environment) = 'text'",
        "with an impossible duration": "typeof(ifnull(seconds, 0.0)) = 'real' AND "
        "ifnull(seconds, 0) BETWEEN 0 AND 1e12",
        "with impossible counts": "typeof(ifnull(rows, 0)) = 'integer' AND "
        "typeof(ifnull(encoded_images, 0)) = 'integer' AND min(ifnull(rows, 0), "
        "ifnull(encoded_images, 0)) >= 0",
    },
    "samples": {
        "of a data set that the run does not have": _OF_RUN,
        "whose label is beyond the classes": "typeof(label) = 'integer' AND label BETWEEN 0 AND "
        "(SELECT max(c.label) FROM classes c WHERE c.dataset = samples.dataset)",
        "that is no text": "typeof(sample) = 'text' AND typeof(\"group\") = 'text' AND "
        "typeof(cluster) = 'text' AND typeof(ifnull(image_key, '')) = 'text' AND "
        "typeof(ifnull(stamp, '')) = 'text'",
    },
}
_KEYS = {"classes": "name", "notes": "text", "lambdas": "cell", "sessions": "id", "states": "cell"}
_KEYS |= {"samples": "sample"}
# cell by cell along the index, so that no row is read
_CELLS_OF_ROWS = """
    WITH RECURSIVE found(cell) AS (
        SELECT min(cell) FROM rows
        UNION ALL
        SELECT (SELECT min(cell) FROM rows WHERE cell > found.cell) FROM found
        WHERE cell IS NOT NULL)
    SELECT cell FROM found WHERE cell IS NOT NULL LIMIT ?
"""
_ROW_RULES: Rules = {
    "of a sample that is not stored": "s.sample IS NOT NULL",
    "whose label is not that of its sample": "r.label IS s.label",
}
_RESULTS = [c.name for c in COLUMNS if c.name not in ("status", "reason", "label")]
_FAILED_RULES: Rules = {
    **_ROW_RULES,
    "that failed and has a result": " AND ".join(f"r.{name} IS NULL" for name in _RESULTS),
    "that failed without a reason": "typeof(r.reason) = 'text'",
}
_DONE_RULES: Rules = {
    **_ROW_RULES,
    "that is neither a result nor a failure": "r.status = 'ok' AND r.reason IS NULL",
    "whose prediction is beyond the classes": "typeof(r.prediction) = 'integer' AND "
    "r.prediction BETWEEN 0 AND :last AND typeof(r.zero_shot_prediction) = 'integer' AND "
    "r.zero_shot_prediction BETWEEN 0 AND :last",
    "whose confidence is impossible": "typeof(r.confidence) = 'real' AND "
    "r.confidence BETWEEN :chance AND :one AND typeof(r.zero_shot_confidence) = 'real' AND "
    "r.zero_shot_confidence BETWEEN :chance AND :one",
    "whose number of views is impossible": "typeof(r.views) = 'integer' AND r.views > 0",
    "whose entropy is impossible": "typeof(r.entropy) = 'real' AND "
    "r.entropy BETWEEN 0 AND :entropy",
    "whose probability of the label contradicts its confidence": "typeof(r.p_label) = 'real' AND "
    "r.p_label BETWEEN 0 AND r.confidence AND "
    "(r.prediction IS NOT r.label OR r.p_label = r.confidence)",
    "whose sum of squares contradicts its confidence": "typeof(r.sum_squares) = 'real' AND "
    "r.sum_squares BETWEEN r.confidence * r.confidence - :rounding AND r.confidence + :rounding",
    "whose five largest probabilities contradict its prediction": "json_valid(r.top5) AND "
    "r.prediction IS json_extract(r.top5, '$[0][0]') AND "
    "abs(json_extract(r.top5, '$[0][1]') - r.confidence) < 1e-6",
    "whose position is impossible": "(:order IS NULL) = (r.position IS NULL) AND "
    "typeof(ifnull(r.position, 0)) = 'integer' AND "
    "ifnull(r.position, 0) BETWEEN 0 AND :samples - 1",
    "whose λ is not that of its method": "typeof(r.lambda_used) IN ('real', 'null') AND "
    "ifnull(r.lambda_used = :lambda, true)",
}
_DEEP_RULES: Rules = {  # as slow as all others together, so checked where the list is read
    "whose five largest probabilities are no list": "json_array_length(r.top5) BETWEEN 1 AND 5 AND "
    "NOT EXISTS (SELECT 1 FROM json_each(r.top5) WHERE json_array_length(value) IS NOT 2 OR "
    "json_type(value, '$[0]') IS NOT 'integer' OR "
    "NOT ifnull(json_extract(value, '$[0]') BETWEEN 0 AND :last AND "
    "json_extract(value, '$[1]') BETWEEN 0 AND :one, false))",
}


def problems_of_tables(store: "StoreFile") -> Iterator[str]:
    """Yield what is wrong with everything but the rows."""
    named = {"datasets": json.dumps(store.datasets)}
    is_broken = False
    for table, rules in _TABLE_RULES.items():
        for text in _violations(store, table, rules, key=_KEYS[table], values=named):
            yield f"an entry of {table} {text}"
            is_broken = True
    if is_broken:  # what follows rests on these tables
        return
    store.sessions()  # raises where a description is none
    cells = {(cell.key, *astuple(cell)) for cell in store.spec.cells()}
    known, most = {key for key, *_ in cells}, len(cells) + 1
    query = 'SELECT cell, dataset, method, lambda, seed, template, "order" FROM cells LIMIT ?'
    if set(store.query(query, most)) != cells:
        yield "other cells than its specification"
    for what, query in (
        ("λ", "SELECT cell FROM lambdas LIMIT ?"),
        ("states", "SELECT DISTINCT cell FROM states LIMIT ?"),
        ("rows", _CELLS_OF_ROWS),
    ):
        if foreign := {cell for (cell,) in store.query(query, most)} - known:
            yield f"{what} of {len(foreign)} cells that are not in its specification"
    for name in store.datasets:
        yield from _problems_of_dataset(store, name)


def _problems_of_dataset(store: "StoreFile", name: str) -> Iterator[str]:
    entry, classes, samples = store.spec.dataset(name), store.classes(name), store.samples(name)
    (labels,) = store.query("SELECT max(label) FROM classes WHERE dataset = ?", name)
    is_begun = bool(samples or classes)
    if is_begun and (len(classes), labels[0]) != (entry.classes, entry.classes - 1):
        yield f"{len(classes)} class names of {name}, which has {entry.classes} classes"
    elif len(samples) > entry.samples:
        yield f"{len(samples):,} samples of {name}, which has {entry.samples:,}"
    elif (
        len(samples) == entry.samples
        and entry.limit is None  # so the whole task is known
        and fingerprint(classes, samples.values()) != entry.fingerprint
    ):
        yield f"class names, ids or labels of {name} that are not those that were evaluated"


def problems_of_cell(store: "StoreFile", cell: "Cell", *, is_deep: bool = False) -> Iterator[str]:
    """Yield what is wrong with the rows of a cell."""
    classes = store.spec.dataset(cell.dataset).classes
    values = {
        "cell": cell.key,
        "dataset": cell.dataset,
        "last": classes - 1,
        "chance": 1 / classes - ROUNDING,
        "one": 1 + ROUNDING,
        "entropy": math.log(classes) + ROUNDING,
        "rounding": ROUNDING,
        "lambda": cell.lambda_,
        "order": cell.order,
        "samples": store.spec.dataset(cell.dataset).samples,
    }
    where = f"{cell.label} on {cell.dataset}, seed {cell.repeat}"
    source = "rows r LEFT JOIN samples s ON s.dataset = :dataset AND s.sample = r.sample"
    done = {**_DONE_RULES, **(_DEEP_RULES if is_deep else {})}
    for status, rules in (("= 'failed'", _FAILED_RULES), ("<> 'failed'", done)):
        chosen = f"{source} WHERE r.cell = :cell AND r.status {status}"
        broken = list(_violations(store, chosen, rules, key="r.sample", values=values))
        yield from (f"{where}: a row {text}" for text in broken)
    if not broken and (contradicting := list(_contradicting(store, cell, classes=classes))):
        first = printable(str(contradicting[0]))
        text = f"({len(contradicting):,}, first {first!r})"
        yield f"{where}: a row that contradicts its stored probabilities {text}"


def _violations(
    store: "StoreFile", source: str, rules: Rules, *, key: str, values: Mapping[str, Any]
) -> Iterator[str]:
    """Yield every rule that entries break; each entry counts for the first that it breaks."""
    cases = " ".join(f"WHEN ({rule}) IS NOT TRUE THEN {n}" for n, rule in enumerate(rules.values()))
    query = (
        f"SELECT CASE {cases} END AS broken, count(*), min({key}) "  # noqa: S608 - our own words
        f"FROM {source} GROUP BY broken HAVING broken IS NOT NULL"
    )
    texts = list(rules)
    for broken, count, first in store.query(query, **values):
        yield f"{texts[broken]} ({count:,}, first {printable(str(first))!r})"


def _contradicting(store: "StoreFile", cell: "Cell", *, classes: int) -> Iterator[str]:
    """Yield the samples whose log-probabilities give another prediction, confidence or metric."""
    query = (
        "SELECT sample, prediction, confidence, label, p_label, sum_squares, log_probabilities "
        "FROM rows WHERE cell = ? AND status = 'ok' AND log_probabilities IS NOT NULL"
    )
    for rows in store.chunks(query, cell.key, size=CHUNK):
        samples, predictions, confidences, labels, p_labels, squares, packed = zip(
            *rows, strict=True
        )
        logs = _unpacked(packed, classes)  # (n, C)
        index, p_label = np.arange(len(rows)), np.asarray(p_labels)
        best, of_label = logs[index, predictions], logs[index, labels]
        given = np.log(np.maximum(p_label, SMALLEST))
        is_near = abs(of_label - given) <= LOG_ROUNDING + abs(of_label) / 1000
        is_small = (p_label <= SMALLEST) & (of_label < 0.99 * given)
        fits = (best >= logs.max(axis=1) - LOG_ROUNDING) & (is_near | is_small)
        fits &= abs(best - np.log(confidences)) <= LOG_ROUNDING
        fits &= abs(np.exp(2 * logs).sum(axis=1) - squares) <= SQUARES_ROUNDING
        yield from (samples[row] for row in np.flatnonzero(~fits))


def _unpacked(packed: Sequence[bytes], classes: int) -> npt.NDArray[np.float32]:
    """Unpack rows; one that is damaged gets NaN, which fits nothing."""
    try:
        return unpack(packed, classes)
    except (ValueError, TypeError, zlib.error):
        if len(packed) == 1:
            return np.full((1, classes), np.nan, np.float32)
        return np.concatenate([_unpacked([data], classes) for data in packed])
