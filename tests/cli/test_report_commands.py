"""The commands of the report: report, reproduce on a machine without data, demo, analyze."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dtpt.cli.demo import DemoFlags, demo_options
from dtpt.cli.reproduce import ReproduceFlags, _options, reproduce
from dtpt.errors import DtptError, OptionError, ReportError, UnknownName
from dtpt.report.paper import cost, targets
from dtpt.report.paper.cost import Speed, duration_text, estimate


def test_report_prints_the_tables_and_where_the_page_is(dtpt, five_method_run, tmp_path) -> None:
    done = dtpt("report", five_method_run, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Fine-grained classification, tiny" in done.stdout
    assert str(tmp_path / "out" / "index.html") in done.stdout
    assert (tmp_path / "out" / "index.html").stat().st_size > 10_000


def test_report_as_json_has_every_number_and_file(dtpt, five_method_run, tmp_path) -> None:
    done = dtpt("report", five_method_run, "--output", tmp_path / "out", "--json")
    found = json.loads(done.stdout)
    first = next(r for r in found["tables"] if r["method"] == "tpt" and r["metric"] == "ece")
    assert first["unit"] == "%"
    assert str(tmp_path / "out" / "index.html") in found["files"]


def test_compare_opens_with_a_verdict_and_says_what_is_told_apart(dtpt, five_method_run) -> None:
    done = dtpt("compare", five_method_run, "--resamples", "100")
    assert done.returncode == 0, done.stderr
    assert "Fine-grained classification, 80 pictures. Without tuning" in done.stdout
    assert "difference to TPT" in done.stdout
    assert "Floor at this size" in done.stdout


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


def test_names_are_whole_at_80_columns(five_method_run) -> None:
    from rich.console import Console

    from dtpt.report import gather
    from dtpt.report.tables import family_table
    from dtpt.report.tables.terminal import terminal_table

    with gather([five_method_run]) as gathered:
        table = family_table(gathered.conditions[0], "fine-grained", key="t")
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(terminal_table(table))
    text = console.export_text()
    assert "…" not in text
    for name in ("Zero-shot", "C-TPT", "D-TPT"):
        assert name in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_report_of_nothing_is_one_line_and_exit_code_two(dtpt, tmp_path: Path) -> None:
    done = dtpt("report", tmp_path, "--output", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("dtpt: There is no run at")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_report_needs_no_torch(five_method_run, tmp_path: Path) -> None:
    code = (
        "import sys; from dtpt.report import write_report; "
        f"write_report([{str(five_method_run)!r}], {str(tmp_path / 'out')!r}); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_every_table_and_figure_of_the_paper_has_a_plan() -> None:
    names = targets.target_names()
    assert names == tuple([f"table{i}" for i in range(1, 8)] + [f"fig{i}" for i in range(1, 8)])
    table1 = targets.find_target("table1")
    assert [run.model for run in table1.runs] == ["ViT-B-16/openai", "RN50/openai"]
    assert all(len(run.datasets) == 11 and run.seeds == (0, 1, 2) for run in table1.runs)
    folders = [run.name for run in targets.find_target("table3").runs]
    assert len(set(folders)) == len(folders)
    with pytest.raises(UnknownName, match="table1"):
        targets.find_target("table11")


def test_planned_methods_are_all_known() -> None:
    from dtpt.methods import resolve_method

    for name in targets.target_names():
        for run in targets.find_target(name).runs:
            for method in run.methods:
                resolve_method(method)


def test_a_part_of_a_target_can_be_asked_for() -> None:
    table1 = targets.find_target("table1")
    part = targets.narrowed(table1, model="RN50/openai", datasets=("dtd", "eurosat"))
    assert [(run.model, run.datasets) for run in part.runs] == [("RN50/openai", ("dtd", "eurosat"))]
    with pytest.raises(ReportError, match="Nothing of table1 is left"):
        targets.narrowed(table1, model="pocket")
    flags = ReproduceFlags(method=["tpt"], seed=["7"], views="8", device="cpu")
    options = _options(flags, part.runs[0], folder=Path("runs"))
    assert (options.method, options.seed, options.views) == (("tpt",), (7,), 8)
    assert (options.model, options.dataset) == ("RN50/openai", ("dtd", "eurosat"))


def test_reproduce_says_what_is_missing_where_and_what_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cost, "measure_speed", lambda model: Speed(0.001, 0.002, 0.0001))
    monkeypatch.setattr(targets, "cached_folder", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        reproduce("table6", flags=ReproduceFlags(data_root=str(tmp_path)))
    assert stopped.value.code == 2
    out = capsys.readouterr().out
    assert "Missing weights: ViT-B-16/openai" in out
    for name, count in (("imagenet_a", "7,500"), ("imagenet_sketch", "50,889")):
        assert f"Missing data: {name}" in out
        assert f"{count} pictures" in out
    assert str(tmp_path / "imagenet-a") in out
    pictures = 3 * (7500 + 10000 + 30000 + 50889)
    assert f"{pictures:,} pictures" in out
    with pytest.raises(DtptError, match="does not exist"):
        reproduce("table6", flags=ReproduceFlags(data_root=str(tmp_path / "nowhere")))
    with pytest.raises(OptionError, match="--views is '0'"):
        reproduce("table6", flags=ReproduceFlags(views="0"))


def test_cost_is_pictures_times_views_and_classes() -> None:
    (run,) = targets.find_target("table6").runs
    found = estimate(run, Speed(view=0.5, encode=0.5, text=0.0))
    assert found.seconds == pytest.approx(64 * found.pictures)
    by_class = estimate(run, Speed(view=0.0, encode=0.0, text=1.0))
    images = {200: 7500 + 30000, 1000: 10000 + 50889}
    work = 3 * len(run.methods)  # seeds times methods
    assert by_class.seconds == sum(work * count * n for count, n in images.items())
    assert duration_text(3 * 86400) == "3.0 days"


def test_a_figure_without_data_has_nothing_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    reproduce("fig4")
    assert "nothing to run" in capsys.readouterr().out


def test_the_demo_takes_colour_and_line_art_of_the_same_groups(tmp_path: Path) -> None:
    quick = demo_options(DemoFlags(output=str(tmp_path)))
    colour = [name for name in quick.dataset if name.startswith("openmoji/")]
    line = [
        name.replace("openmoji-line/", "openmoji/") for name in quick.dataset if "-line" in name
    ]
    assert colour == line
    assert len(colour) >= 4
    assert (quick.views, quick.seed, quick.output) == (64, (0,), tmp_path / "run")
    assert quick.limit is not None
    full = demo_options(DemoFlags(full=True))
    assert (full.seed, full.limit, full.output) == ((0, 1, 2), None, Path("demo-output/run"))
    assert set(quick.dataset) < set(full.dataset)


def test_analyze_has_no_positionals_and_room_for_commands(dtpt) -> None:
    done = dtpt("analyze", "--help", env={"COLUMNS": "100"})
    assert "--template" in done.stdout
    assert "FLAGS" not in done.stdout
    assert "--empty" not in done.stdout
    refused = dtpt("analyze", "--dataset", "openmoji", "--views", "0")
    assert refused.returncode == 2
    assert "--views is '0'" in refused.stderr
