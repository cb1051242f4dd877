"""The commands: report, reproduce on a machine without data, and the demo's plan."""

import subprocess
import sys
from pathlib import Path

import pytest

from dtpt.errors import DtptError, UnknownName
from dtpt.report import cost, reproduction
from dtpt.report.cost import Speed, duration_text, estimate


def dtpt(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from dtpt.cli.main import run; run()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_report_prints_the_tables_and_where_the_page_is(five_method_run, tmp_path: Path) -> None:
    done = dtpt("report", str(five_method_run), "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "Fine-grained classification, tiny" in done.stdout
    assert str(tmp_path / "out" / "index.html") in done.stdout
    assert (tmp_path / "out" / "index.html").stat().st_size > 10_000


def test_report_of_nothing_is_one_line_and_exit_code_two(tmp_path: Path) -> None:
    done = dtpt("report", str(tmp_path), "--output", str(tmp_path / "out"))
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
    names = reproduction.target_names()
    assert names == tuple([f"table{i}" for i in range(1, 8)] + [f"fig{i}" for i in range(1, 8)])
    table1 = reproduction.find_target("table1")
    assert [run.model for run in table1.runs] == ["ViT-B-16/openai", "RN50/openai"]
    assert all(len(run.datasets) == 11 and run.seeds == (0, 1, 2) for run in table1.runs)
    folders = [run.name for run in reproduction.find_target("table3").runs]
    assert len(set(folders)) == len(folders)
    with pytest.raises(UnknownName, match="table1"):
        reproduction.find_target("table11")


def test_planned_methods_are_all_known() -> None:
    from dtpt.methods import resolve_method

    for name in reproduction.target_names():
        for run in reproduction.find_target(name).runs:
            for method in run.methods:
                resolve_method(method)


def test_reproduce_says_what_is_missing_where_and_what_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dtpt.cli.reproduce import reproduce

    monkeypatch.setattr(cost, "measure_speed", lambda model: Speed(0.001, 0.002, 0.0001))
    monkeypatch.setattr(reproduction, "cached_folder", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        reproduce("table6", data_root=tmp_path)
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
        reproduce("table6", data_root=tmp_path / "nowhere")


def test_cost_is_pictures_times_views_and_classes() -> None:
    (run,) = reproduction.find_target("table6").runs
    found = estimate(run, Speed(view=0.5, encode=0.5, text=0.0))
    assert found.seconds == pytest.approx(64 * found.pictures)
    by_class = estimate(run, Speed(view=0.0, encode=0.0, text=1.0))
    images = {200: 7500 + 30000, 1000: 10000 + 50889}
    work = 3 * len(run.methods)  # seeds times methods
    assert by_class.seconds == sum(work * count * n for count, n in images.items())
    assert duration_text(3 * 86400) == "3.0 days"


def test_a_figure_without_data_has_nothing_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    from dtpt.cli.reproduce import reproduce

    reproduce("fig4")
    assert "nothing to run" in capsys.readouterr().out


def test_the_demo_takes_colour_and_line_art_of_the_same_groups(tmp_path: Path) -> None:
    from dtpt.cli.demo import demo_options

    quick = demo_options(tmp_path, full=False, model="pocket", limit=None, workers=0, quiet=True)
    colour = [name for name in quick.dataset if name.startswith("openmoji/")]
    line = [
        name.replace("openmoji-line/", "openmoji/") for name in quick.dataset if "-line" in name
    ]
    assert colour == line
    assert len(colour) >= 4
    assert (quick.views, quick.seed) == (64, (0,))
    assert quick.limit is not None
    full = demo_options(tmp_path, full=True, model="pocket", limit=None, workers=0, quiet=True)
    assert (full.seed, full.limit) == ((0, 1, 2), None)
    assert set(quick.dataset) < set(full.dataset)
