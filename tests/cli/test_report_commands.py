"""The commands of the report: report, demo, analyze."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from handmade import TUNING, dataset, random_says, write_run


def test_report_prints_tables_and_the_page_without_torch(five_method_run, tmp_path) -> None:
    code = (
        "import sys; from dtpt.cli.main import call; call(sys.argv[1:]); "
        "sys.exit('torch' in sys.modules)"
    )
    words = ["report", str(five_method_run), "--output", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Fine-grained classification, tiny" in done.stdout
    assert str(tmp_path / "out" / "index.html") in done.stdout
    assert (tmp_path / "out" / "index.html").stat().st_size > 10_000


def test_report_as_json_has_every_number_file_and_setting(dtpt, tmp_path) -> None:
    runs = [
        write_run(
            tmp_path / name, [dataset(samples=9)], random_says(), tuning={**TUNING, "steps": n}
        )
        for name, n in (("a", 1), ("b", 2))
    ]
    found = json.loads(dtpt("report", *runs, "--output", tmp_path / "out", "--json").stdout)
    assert [text.partition(": ")[0] for text in found["verdicts"]] == [
        "tiny, “a photo of a {}.”",
        "tiny, “a photo of a {}.”, steps 2",
    ]
    first = next(r for r in found["tables"] if r["method"] == "tpt" and r["metric"] == "ece")
    assert first["unit"] == "%"
    assert str(tmp_path / "out" / "index.html") in found["files"]


def test_compare_opens_with_a_verdict_and_shows_the_differences(dtpt, five_method_run) -> None:
    done = dtpt("compare", five_method_run, "--resamples", "100")
    assert done.returncode == 0, done.stderr
    assert "80 images" in done.stdout
    assert "Noise floor" in done.stdout


def test_compare_as_json_has_every_comparison(dtpt, five_method_run) -> None:
    flags = ("--resamples", "100", "--against", "tpt", "--level", "0.9", "--json")
    done = dtpt("compare", five_method_run, *flags)
    found = json.loads(done.stdout)
    (condition,) = found["conditions"]
    first = condition["families"][0]["comparisons"][0]
    assert (first["first"], first["second"], first["metric"]) == ("zero-shot", "tpt", "accuracy")
    assert first["low"] <= first["estimate"] <= first["high"]
    assert found["level"] == 0.9
    assert len(condition["verdicts"]) == 2


def test_compare_with_a_method_that_was_not_run_is_refused(dtpt, five_method_run) -> None:
    done = dtpt("compare", five_method_run, "--resamples", "10", "--against", "cocoop")
    assert done.returncode == 2
    assert "--against 'cocoop'" in done.stderr


@pytest.mark.parametrize(
    ("methods", "first", "second"),
    [
        (("zero-shot", "mean-views"), "mean-views", "zero-shot"),  # without TPT
        (("vte", "mean-views"), "mean-views", "vte"),  # without either
    ],
)
def test_compare_takes_what_was_run(dtpt, tmp_path, methods, first, second) -> None:
    entry = dataset(samples=40, methods=[(name, None) for name in methods])
    run = write_run(tmp_path, [entry], random_says())
    done = dtpt("compare", run, "--resamples", "50", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["conditions"][0]["families"][0]["comparisons"]
    assert {(one["first"], one["second"]) for one in found} == {(first, second)}


def test_one_method_is_nothing_to_choose_from(dtpt, tmp_path) -> None:
    run = write_run(tmp_path, [dataset(methods=[("tpt", None)])], random_says())
    done = dtpt("methods", "--compare", run)
    assert done.returncode == 2
    assert "dtpt eval" in done.stderr


def test_report_of_nothing_is_one_line_and_exit_code_two(dtpt, tmp_path: Path) -> None:
    done = dtpt("report", tmp_path, "--output", tmp_path / "out")
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_record_of_one_model_is_not_shown_for_another() -> None:
    from dtpt.report.record import load_record

    assert load_record("pocket") is not None
    assert load_record("RN50/openai") is None


def test_recording_belongs_to_the_full_demo(dtpt, tmp_path) -> None:
    done = dtpt("demo", "--record", tmp_path / "record.json")
    assert done.returncode == 2
    assert "add --full" in done.stderr


def test_a_run_that_is_there_is_recorded_without_running(dtpt, five_method_run, tmp_path) -> None:
    from dtpt.report.record import Record

    file = tmp_path / "record.json"
    done = dtpt("demo", "--full", "--record", file, "--from", five_method_run)
    assert done.returncode == 0, done.stderr
    assert "Recorded 160 images" in done.stdout
    assert Record.model_validate_json(file.read_bytes()).model == "tiny"


def test_analyze_has_no_positionals_and_room_for_commands(dtpt, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    done = dtpt("analyze", "--help")
    assert "--template" in done.stdout
    assert "--empty" not in done.stdout
    refused = dtpt("analyze", "--dataset", "openmoji", "--views", "0")
    assert refused.returncode == 2
    assert "--views: " in refused.stderr


def test_methods_of_a_run_are_compared_in_one_table(dtpt, five_method_run) -> None:
    done = dtpt("methods", "--compare", five_method_run, "--json")
    found = json.loads(done.stdout)
    assert len(found["methods"]) == 12  # five methods and a temperature in two families
    assert {"family", "label", "values", "image_passes", "text_passes"} <= set(found["methods"][0])
    done = dtpt("methods", "--compare", five_method_run)
    assert "temperature" in done.stdout
    assert "seconds per image" in done.stdout


def test_floors_of_a_table_of_the_paper_are_printed(dtpt) -> None:
    done = dtpt("reproduce", "table4", "--floors")
    assert done.returncode == 0, done.stderr
    assert "3.00–3.54" in done.stdout
    assert "21.25" in done.stdout
    found = json.loads(dtpt("reproduce", "table1", "--floors", "--json").stdout)
    assert len(found["RN50/openai"]) == 11
