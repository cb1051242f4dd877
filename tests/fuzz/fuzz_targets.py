"""What is fuzzed: the loader of every kind of file that others can hand to dtpt."""

import gzip
import json
import os
import random
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError
from fuzz_campaign import Target
from fuzz_files import (
    CONTEXT,
    TOML,
    bomb,
    calibration,
    checkpoint_folder,
    foreign_configs,
    piece_tokenizers,
    run_store,
    scripted,
    state_dict,
    tiny_tokenizer,
)
from fuzz_mutations import (
    damage_bytes,
    odd_archive,
    odd_json,
    odd_pickle,
    odd_safetensors,
    odd_toml,
    odd_zip_fields,
)
from fuzz_packs import pack_targets
from pydantic import Field

from dtpt.calibration import Targets, read_calibration
from dtpt.cli.doctor import examine_run
from dtpt.cli.flags import DEFAULT, Config, flags
from dtpt.cli.main import make_app
from dtpt.clip.loading import load_model
from dtpt.clip.loading.build import assemble, empty_model
from dtpt.clip.loading.names import added_models
from dtpt.clip.loading.read import open_weights, read_folder
from dtpt.clip.pieces import read_pieces
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import DtptError
from dtpt.files import digest
from dtpt.options import Options
from dtpt.runs import open_run, results_of, score_methods
from dtpt.runs.calibrate import calibrate_cell
from dtpt.runs.results import sample_records
from dtpt.runs.spec import hash_of

TEXTS = ["a photo of a cat.", "é 語 \u00a0 x"]
REFUSALS = (DtptError,)


def made_targets(folder: Path) -> dict[str, Target]:
    """Return all targets by name; their valid files are made in `folder`."""
    whole, store = checkpoint_folder(folder / "checkpoint"), run_store(folder)
    targets = pack_targets(folder / "pack")
    mutations: dict[str, tuple[list[bytes], list[Any], Callable[[bytes, Path], object]]] = {
        "tokenizer": ([whole["tokenizer.json"]], [damage_bytes, odd_json, odd_json], _tokenizer),
        "pieces": (piece_tokenizers(), [damage_bytes, odd_json, odd_json], _pieces),
        "merges": (_merges(), [damage_bytes], _merges_file),
        "safetensors": (
            [whole["model.safetensors"]],
            [damage_bytes, odd_safetensors, odd_safetensors],
            _Weights("model.safetensors", whole),
        ),
        "torchscript": (
            [scripted(folder)],
            [damage_bytes, odd_archive, odd_archive, odd_zip_fields],
            _open_weights,
        ),
        "state dict": (
            [state_dict(is_archive=True)],
            [damage_bytes, odd_archive, odd_archive, odd_zip_fields],
            _open_weights,
        ),
        "old state dict": (
            [state_dict(is_archive=False)],
            [damage_bytes, *[_later_pickles] * 3],
            _open_weights,
        ),
        "own config": (
            [whole["dtpt_config.json"]],
            [damage_bytes, odd_json, odd_json],
            _Weights("dtpt_config.json", whole),
        ),
        "foreign configs": (
            [json.dumps(config).encode() for config in foreign_configs(whole["model.safetensors"])],
            [damage_bytes, *[odd_json] * 4],
            _Configs(whole),
        ),
        "added models": ([_models()], [damage_bytes, odd_json], _added_models),
        "options": ([TOML], [damage_bytes, odd_toml, odd_toml], _Options()),
        "calibration": (
            [calibration(folder)],
            [damage_bytes, odd_json, signed_json, signed_json],
            _calibration,
        ),
        "run store": ([store], [damage_bytes], read_store),
        "edited run store": (
            [store],
            [odd_values, odd_values, odd_spec, odd_schema],
            read_store,
        ),
    }
    for name, (valid, kinds, load) in mutations.items():
        targets[name] = Target(name, valid, kinds, load, _refusals(name))
    return targets


def _refusals(name: str) -> tuple[type[Exception], ...]:
    return (DtptError, CycloptsError) if name == "options" else REFUSALS


# ---- tokenizers


def _use(tokenizer: Tokenizer) -> None:
    tokenizer(TEXTS)
    tokenizer.spell(tokenizer.end_id)
    Tokenizer.from_json(tokenizer.to_json(), context_length=CONTEXT)


def _tokenizer(data: bytes, folder: Path) -> None:
    _use(Tokenizer.from_json(data, context_length=CONTEXT))


def _pieces(data: bytes, folder: Path) -> None:
    tokenizer = read_pieces(data, {"pad_token": "<pad>"}, context_length=CONTEXT, clean="lower")
    tokenizer(["a cat", TEXTS[1]])
    tokenizer.spell(tokenizer.end_id)


def _merges() -> list[bytes]:
    """A vocabulary and its merges, in one input: the first line is the vocabulary's length."""
    tree = json.loads(tiny_tokenizer().to_json())["model"]
    words = json.dumps(tree["vocab"]).encode()
    lines = "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in tree["merges"]) + "\n"
    packed = gzip.compress(lines.encode(), mtime=0)
    return [words + b"\n" + lines.encode(), words + b"\n" + packed]


def _merges_file(data: bytes, folder: Path) -> None:
    words, _, merges = data.partition(b"\n")
    _use(Tokenizer.from_merges(words, merges, context_length=CONTEXT))


# ---- weights


def _open_weights(data: bytes, folder: Path) -> None:
    path = folder / "model.bin"
    path.write_bytes(data)
    for stored in open_weights(path)[0].values():
        assert tuple(stored.read().shape) == stored.shape or 0 in stored.shape


class _Weights:
    """A whole checkpoint, of which one file is the input."""

    def __init__(self, name: str, whole: dict[str, bytes]) -> None:
        self.name, self.whole = name, whole

    def __call__(self, data: bytes, folder: Path) -> None:
        place = folder / "checkpoint"
        if not place.exists():
            place.mkdir()
            for name, content in self.whole.items():
                (place / name).write_bytes(content)
        (place / self.name).write_bytes(data)
        load_model(f"local-dir:{place}", device="cpu")


def _later_pickles(data: bytes, rng: random.Random) -> bytes:
    """Damage one of the pickles that follow each other in the older format of torch."""
    at = 0
    for _ in range(rng.choice((0, 1, 2, 3, 3, 3, 4))):  # the fourth has the tensors
        at = data.index(b".", at) + 1
        while data[at : at + 1] != b"\x80":
            at = data.index(b".", at) + 1
    return data[:at] + odd_pickle(data[at:], rng)


# ---- configs


class _Configs:
    """A folder of the files that the input lists, with a valid tokenizer and some weights."""

    def __init__(self, whole: dict[str, bytes]) -> None:
        self.whole = whole

    def __call__(self, data: bytes, folder: Path) -> None:
        place = folder / "configs"
        place.mkdir(exist_ok=True)
        for path in place.iterdir():
            path.unlink()
        (place / "tokenizer.json").write_bytes(self.whole["tokenizer.json"])
        for name in ("a.safetensors", "open_clip_model.safetensors"):
            (place / name).write_bytes(self.whole["model.safetensors"])
        for name, content in _divided(data).items():
            (place / name).write_bytes(content)
        if not (place / "model.safetensors.index.json").exists():
            (place / "model.safetensors").write_bytes(self.whole["model.safetensors"])
        checkpoint = read_folder(place)
        empty_model(checkpoint)
        assemble(checkpoint, device="cpu")


def _divided(data: bytes) -> dict[str, bytes]:
    """Return the files in an input; one that is not a JSON document is a config as it is."""
    known = {"open_clip_config.json", "config.json", "preprocessor_config.json"}
    known |= {"model.safetensors.index.json"}
    try:
        tree = json.loads(data)
        return {
            name: json.dumps(value).encode("utf-8", "surrogatepass")
            for name, value in tree.items()
            if name in known
        }
    except (ValueError, AttributeError, RecursionError):
        return {"config.json": data}


def _models() -> bytes:
    entry = {
        "path": "/models/a", "fingerprint": "a" * 64, "status": "own", "activation": "gelu",
        "parameters": 7,
    }  # fmt: skip
    return json.dumps({"format": 1, "models": {"mine": entry}}).encode()


def _added_models(data: bytes, folder: Path) -> None:
    os.environ["DTPT_CONFIG"] = str(folder)
    (folder / "models.json").write_bytes(data)
    added_models()


class _Few(Options):
    """Options of every kind, few enough to be parsed often."""

    model: str = "pocket"
    template: str = "a photo of a {}."
    dataset: tuple[str, ...] = ()
    limit: int | None = Field(None, ge=1)
    threads: int | None = Field(None, ge=1)
    learning_rate: float = Field(5e-3, gt=0)
    rho: float = Field(0.1, gt=0, le=1)
    views: int = Field(64, ge=1)
    method: tuple[str, ...] = ()
    seed: tuple[Annotated[int, Field(ge=0)], ...] = (0,)
    lambda_: tuple[float, ...] = ()
    workers: int | Literal["auto"] = 1
    output: Path = Path("out")
    quiet: bool = False


class _Options:
    """Options from a TOML file, of `dtpt eval` or fewer; parsed and validated, nothing is run."""

    def __init__(self) -> None:
        self.all = make_app(["eval"])
        self.few = App(default_parameter=DEFAULT, config=self.all.config)

        @self.few.command(name="eval")
        def few(
            options: Annotated[_Few | None, flags(_Few)] = None, *, config: Config = None
        ) -> None: ...

    def __call__(self, data: bytes, folder: Path) -> None:
        path = folder / "options.toml"
        path.write_bytes(data)
        app = self.all if zlib.crc32(data) % 8 == 0 else self.few  # all take 60 ms
        app.parse_args(["eval", "--config", str(path)], exit_on_error=False, print_error=False)


# ---- calibrations


def signed_json(data: bytes, rng: random.Random) -> bytes:
    """Change entries and make the digest right again, as somebody who means it would."""
    changed = odd_json(data, rng)
    try:
        content = json.loads(changed)
        content.pop("digest", None)
        return json.dumps({**content, "digest": digest(content)}).encode("utf-8", "surrogatepass")
    except (ValueError, AttributeError, TypeError, RecursionError):
        return changed


def _calibration(data: bytes, folder: Path) -> None:
    path = folder / "calibration.json"
    path.write_bytes(data)
    made = read_calibration(path)
    classes = len(made.setup.classes)
    made.apply_one([k / 7 for k in range(classes)], index=classes - 1)
    made.save(path)
    assert read_calibration(path) == made


# ---- run stores

_ODD_SQL: tuple[Any, ...] = (
    None, 0, -1, 1.5, 2**63 - 1, -(2**63), 1e308, float("inf"), "", "x", "\0", "7", "[]", "{}",
    "a" * 70_000, b"", b"\xff\xfe", b"\0" * 70_000, "NaN", '{"a":', "[" * 5000,
)  # fmt: skip
_TABLES = ("rows", "rows", "rows", "samples", "cells", "classes", "sessions", "lambdas", "notes")
_SCHEMAS = (
    "DROP VIEW results",
    "DROP TABLE rows",
    "DROP TABLE samples",
    "DROP TABLE notes",
    "DELETE FROM meta",
    "DELETE FROM cells",
    "ALTER TABLE rows RENAME COLUMN confidence TO other",
    "ALTER TABLE samples ADD COLUMN more TEXT",
    "ALTER TABLE notes RENAME TO other",
    "PRAGMA user_version=99",
    "CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END",
    "DROP VIEW results; CREATE VIEW results AS SELECT 1 AS a",
    # views without an end, under names that are read
    "DROP VIEW results; CREATE VIEW results AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT "
    "x+1 FROM c) SELECT 'dtd' dataset, x sample, 'failed' status, 'r' reason FROM c",
    "DROP TABLE notes; CREATE VIEW notes AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 "
    "FROM c) SELECT 'dtd' dataset, x text FROM c",
    "DROP TABLE notes; CREATE VIEW notes AS SELECT 'dtd' dataset, "
    "hex(zeroblob(1000000000)) text",
)  # fmt: skip


def _changed(data: bytes, change: Callable[[sqlite3.Connection], object]) -> bytes:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(data)
        connection.execute("PRAGMA ignore_check_constraints=ON")
        with suppress(sqlite3.Error):  # a value that the table itself refuses
            change(connection)
        return connection.serialize()


def odd_values(data: bytes, rng: random.Random) -> bytes:
    """Replace values of a column, in one row or in all."""

    def change(connection: sqlite3.Connection) -> None:
        for _ in range(rng.choice((1, 1, 3))):
            table = rng.choice(_TABLES)
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            where = rng.choice(("", "WHERE sample IN (SELECT sample FROM rows LIMIT 1)"))
            where = where if table in ("rows", "samples") else ""
            value = rng.choice((*_ODD_SQL, bomb() if rng.random() < 0.05 else None))
            statement = f'UPDATE OR REPLACE {table} SET "{rng.choice(columns)}" = ? {where}'
            connection.execute(statement, (value,))

    return _changed(data, change)


def odd_spec(data: bytes, rng: random.Random) -> bytes:
    """Change the specification of the run, or the environment of a session."""

    def change(connection: sqlite3.Connection) -> None:
        queries = (
            ("SELECT value FROM meta WHERE key = 'spec'", "UPDATE meta SET value = ? WHERE key = "
             "'spec'"),
            ("SELECT environment FROM sessions", "UPDATE sessions SET environment = ?"),
        )  # fmt: skip
        read, write = rng.choice((queries[0], queries[0], queries[1]))
        ((text,),) = connection.execute(read).fetchall()
        changed = odd_json(text.encode(), rng).decode("utf-8", "replace")
        connection.execute(write, (changed,))
        if rng.random() < 0.8:  # as somebody who means it would
            with suppress(ValueError, AttributeError, TypeError, KeyError, RecursionError):
                digest = hash_of(json.loads(changed))
                connection.execute("UPDATE meta SET value = ? WHERE key = 'spec_hash'", (digest,))

    return _changed(data, change)


def odd_schema(data: bytes, rng: random.Random) -> bytes:
    """Drop, rename and replace tables and views."""
    return _changed(data, lambda connection: connection.executescript(rng.choice(_SCHEMAS)))


def read_store(data: bytes, folder: Path) -> None:
    """Read everything that a report, an export or a calibration reads."""
    path = folder / "run.sqlite"
    path.write_bytes(data)
    examine_run(path)
    with open_run(path) as run:
        run.counts()
        run.failures()
        run.notes()
        run.sessions()
        run.records()
        scores = score_methods(run)
        results_of(run, scores).to_json()
        for dataset in run.datasets:
            for record in sample_records(run, dataset):
                json.dumps(record, allow_nan=False)
        for cell in run.cells:
            run.probabilities(cell)
        calibrate_cell(run, run.cells[0], targets=Targets(error=0.9))
