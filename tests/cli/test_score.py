"""`dtpt score` reads three kinds of files, prints, draws, and names what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dtpt.cli.calibrate import score
from dtpt.errors import MetricError
from dtpt.metrics import (
    Bootstrap,
    CalibrationReport,
    Conventions,
    Predictions,
    calibration_report,
    prediction_files,
)


@pytest.fixture
def confidences() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.2, 1, size=120)
    return confidence, rng.uniform(size=120) < confidence


@pytest.fixture
def predictions() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.dirichlet(np.full(12, 0.3), size=60), rng.integers(12, size=60)


def write_csv(path: Path, columns: dict[str, list]) -> Path:
    lines = [",".join(columns)]
    lines += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def probability_columns(probabilities: np.ndarray) -> dict[str, list]:
    order = np.random.default_rng(2).permutation(probabilities.shape[1])  # p10 may precede p2
    return {f"p{k}": probabilities[:, k].tolist() for k in order}


def scored(capsys: pytest.CaptureFixture[str], path: Path, **options) -> dict:
    score(path, as_json=True, **options)
    return json.loads(capsys.readouterr().out)


def test_csv_of_confidences_gives_the_numbers_of_the_api(tmp_path, capsys, confidences) -> None:
    confidence, correct = confidences
    columns = {"id": [f"image {i}" for i in range(120)], "confidence": confidence.tolist()}
    path = write_csv(tmp_path / "a.csv", columns | {"correct": correct.tolist()})
    made = Predictions.from_confidence(confidence, correct)
    expected = CalibrationReport.of(made, Conventions(bins=15))
    assert scored(capsys, path, bins=15) == json.loads(expected.model_dump_json())


def test_csv_with_prediction_and_label_instead_of_correct(tmp_path, capsys, confidences) -> None:
    confidence, correct = confidences
    columns = {"confidence": confidence.tolist(), "prediction": [3] * 120}
    path = write_csv(tmp_path / "a.csv", columns | {"label": np.where(correct, 3, 1).tolist()})
    assert scored(capsys, path)["accuracy"] == correct.mean()


@pytest.mark.parametrize("kind", ["csv", "npz", "parquet", "parquet-list"])
def test_probabilities_from_every_kind_of_file(tmp_path, capsys, predictions, kind) -> None:
    probabilities, labels = predictions
    path = tmp_path / f"p.{kind.removesuffix('-list')}"
    if kind == "csv":
        write_csv(path, probability_columns(probabilities) | {"label": labels.tolist()})
    elif kind == "npz":
        np.savez(path, probabilities=probabilities, labels=labels)
    else:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        columns = (
            {"probabilities": probabilities.tolist()}
            if kind == "parquet-list"
            else probability_columns(probabilities)
        )
        pq.write_table(pa.table(columns | {"label": labels.tolist()}), path)
    found = scored(capsys, path, bootstrap=50, seed=3)
    expected = calibration_report(probabilities, labels, bootstrap=Bootstrap(resamples=50, seed=3))
    assert found == json.loads(expected.model_dump_json())


def test_parquet_of_booleans(tmp_path, capsys, confidences) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    confidence, correct = confidences
    pq.write_table(pa.table({"confidence": confidence, "correct": correct}), tmp_path / "a.parquet")
    assert scored(capsys, tmp_path / "a.parquet")["accuracy"] == correct.mean()


def test_table_is_in_the_units_of_the_paper(tmp_path, capsys) -> None:
    path = write_csv(tmp_path / "a.csv", {"confidence": [0.9, 0.7], "correct": ["TRUE", "False"]})
    score(path, bootstrap=20)
    rows = [line for line in capsys.readouterr().out.splitlines() if "│" in line]
    cells = {row.split("│")[1].strip(): row.split("│")[2].strip() for row in rows}
    assert cells["Acc."] == "50.00"
    assert cells["ECE"] == "40.00"
    assert cells["ECE noise floor"] == "30.00"
    assert cells["ECE above floor"] == "10.00"
    assert cells["Signed gap"] == "30.00"
    assert cells["AURC"] == "250.00"
    assert cells["Top Brier"] == "0.2500"
    assert "NLL" not in cells


def test_the_last_line_is_a_verdict(tmp_path, capsys) -> None:
    answers = [1] * 50 + [0] * 50
    path = write_csv(tmp_path / "a.csv", {"confidence": [0.9] * 100, "correct": answers})
    score(path)
    last = " ".join(capsys.readouterr().out.split("└")[1].split()[1:])
    assert last.startswith("Overconfident by 40.0 points [")
    score(path, as_json=True)
    assert json.loads(capsys.readouterr().out)["signed_gap"] == pytest.approx(0.4)


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_diagram_is_written_and_the_same_each_time(
    tmp_path, capsys, predictions, suffix, start
) -> None:
    np.savez(tmp_path / "p.npz", probabilities=predictions[0], labels=predictions[1])
    written = []
    for name in ("one", "two"):
        target = tmp_path / f"{name}.{suffix}"
        score(tmp_path / "p.npz", diagram=target)
        written.append(target.read_bytes())
    assert written[0].startswith(start)
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("confidence,correct\n", "no samples"),
        ("confidence,correct\n0.5,true\nhigh,true\n", "line 3, column confidence: 'high'"),
        ("confidence,correct\n0.5,maybe\n", "line 2, column correct: 'maybe'"),
        ("confidence,correct\n0.5,true\n0.5\n", "line 3: has 1 values"),
        ("confidence,correct\n0.5,true\n1.7,true\n", r"line 3: confidence\[1\] is 1.7"),
        ("confidence,correct\n0.5,true\nnan,true\n", r"line 3: confidence\[1\] is nan"),
        ("confidence,correct\n0.5,\n", "line 2, column correct: ''"),
        ("confidence,score\n0.5,1\n", "confidence and correct"),
        ("confidence,confidence\n0.5,1\n", "occurs twice"),
        ("p0,p2,label\n0.5,0.5,1\n", "p1 is missing"),
        ("p0,p1,label\n0.5,0.5,0.5\n", "line 2: column label: 0.5"),
        ("p0,p1,label\n0.5,0.5,1e308\n", r"line 2: column label: 1e\+308"),
        ("p0,p1,label\n0.5,0.5,0\n0.5,0.5,2\n", r"line 3: labels\[1\] is 2"),
        ("p0,p1,label\n0.5,0.5,0\n0.5,0.2,1\n", r"line 3: probabilities\[1\] sums to 0.7"),
        ('confidence,correct\n"0.5,true\n', "CSV"),
    ],
)
def test_bad_csv_files_are_named_with_line_and_column(tmp_path, text, message) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(MetricError, match=f"bad.csv.*{message}"):
        score(path)


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet"])
def test_files_of_noise_and_missing_files_are_refused(tmp_path, suffix) -> None:
    path = tmp_path / f"noise.{suffix}"
    with pytest.raises(MetricError, match="noise"):
        score(path)
    path.write_bytes(bytes(range(128, 256)) * 4)
    with pytest.raises(MetricError, match="noise"):
        score(path)


def test_npz_with_objects_is_refused_without_unpickling(tmp_path) -> None:
    np.savez(tmp_path / "o.npz", confidence=np.array([{}], dtype=object), correct=[True])
    with pytest.raises(MetricError, match=r"o\.npz"):
        score(tmp_path / "o.npz")


def test_parquet_names_the_row_of_a_missing_value(tmp_path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"confidence": [0.5, None], "correct": [True, True]}), path)
    with pytest.raises(MetricError, match="row 1, column confidence"):
        score(path)
    pq.write_table(pa.table({"probabilities": [[0.5, 0.5], [1.0]], "label": [0, 0]}), path)
    with pytest.raises(MetricError, match="row 1, column probabilities"):
        score(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(MetricError, match=r"dtpt\[parquet\]"):
        score(tmp_path / "a.parquet")


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet"])
def test_pipes_and_devices_are_refused_at_once(tmp_path, suffix) -> None:
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    with pytest.raises(MetricError, match="pipe"):
        score(tmp_path / f"pipe.{suffix}")
    (tmp_path / f"zero.{suffix}").symlink_to("/dev/zero")
    with pytest.raises(MetricError, match="device"):
        score(tmp_path / f"zero.{suffix}")


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet"])
def test_files_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch, suffix) -> None:
    monkeypatch.setattr(prediction_files, "MOST_BYTES", 2**20)
    path = tmp_path / f"large.{suffix}"
    zeros = np.zeros(200_000)  # 1.6 MB that compress to almost nothing
    if suffix == "csv":
        path.write_text("confidence,correct\n" + "0.5,1\n" * 200_000)
    elif suffix == "npz":
        np.savez_compressed(path, confidence=zeros, correct=zeros)
    else:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"confidence": zeros, "correct": zeros}), path)
    with pytest.raises(MetricError, match=rf"large\.{suffix}: needs more than .* of memory"):
        score(path)


def test_endless_lines_and_lying_headers_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(prediction_files, "MOST_LINE", 1000)
    (tmp_path / "line.csv").write_text("confidence" + "," * 5000)
    with pytest.raises(MetricError, match=r"line\.csv"):
        score(tmp_path / "line.csv")
    np.savez(tmp_path / "lie.npz", confidence=np.zeros(7777), correct=np.zeros(7777))
    lie = (tmp_path / "lie.npz").read_bytes().replace(b"(7777,)", b"(9**9,)")
    (tmp_path / "lie.npz").write_bytes(lie)
    with pytest.raises(MetricError, match=r"lie\.npz"):
        score(tmp_path / "lie.npz")


def test_absurd_numbers_of_bins_and_resamples_are_refused(tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", {"confidence": [0.5], "correct": [1]})
    for option in ("bins", "aece_bins"):
        with pytest.raises(MetricError, match=f"{option} is 1000000000; expected 1 to 10,000"):
            score(path, **{option: 1_000_000_000})
    with pytest.raises(MetricError, match="1000000000"):
        score(path, bootstrap=1_000_000_000)


@pytest.mark.parametrize(
    "words", [("--diagram", "d.pdf"), ("--diagram", "nowhere/d.svg"), ("--bootstrap", "-1")]
)
def test_impossible_options_are_one_line(dtpt, tmp_path, words) -> None:
    path = write_csv(tmp_path / "a.csv", {"confidence": [0.5], "correct": [1]})
    done = dtpt("score", path, *words)
    assert done.returncode == 2
    assert words[1].partition("/")[0] in done.stderr
    assert done.stderr.count("\n") == 1


def test_unknown_suffix_is_refused(tmp_path) -> None:
    with pytest.raises(MetricError, match="xlsx"):
        score(tmp_path / "a.xlsx")


def test_shell_command_prints_json_without_torch_and_one_line_for_an_error(tmp_path) -> None:
    path = write_csv(tmp_path / "a.csv", {"confidence": [0.9, 0.6], "correct": [1, 0]})
    code = (
        "import sys; from dtpt.cli.main import run\n"
        "try: run()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "score"]
    good = subprocess.run([*command, str(path), "--json"], capture_output=True, text=True)
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["accuracy"] == 0.5
    bad = subprocess.run([*command, str(tmp_path / "b.csv")], capture_output=True, text=True)
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1
    assert "b.csv" in bad.stderr
