import json
import subprocess
import sys

import pytest

from dtpt.cli.inventory import datasets
from dtpt.cli.main import call
from dtpt.data import DATASETS
from dtpt.data.catalog import catalog_entry


@pytest.fixture(autouse=True)
def _no_data_root(monkeypatch):
    monkeypatch.delenv("DTPT_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


def run(*arguments: str) -> int:
    try:
        call(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_list_names_every_set_and_where_it_is_expected(tmp_path, plant, capsys):
    plant(catalog_entry("dtd"), catalog_entry("dtd").layouts[0], tmp_path)
    assert run("datasets", "--data-root", str(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:1] == ["dtd"] and line.split()[-1] == "dtd/images" for line in lines)
    assert any("eurosat" in line and "- eurosat/2750" in line for line in lines)
    assert any("openmoji-line/food-drink" in line for line in lines)


def test_no_name_or_path_is_cut_at_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert run("datasets") == 0
    out = capsys.readouterr().out
    words = set(out.split())
    assert words >= set(DATASETS)
    assert words >= {
        "imagenetv2/imagenetv2-matched-frequency-format-val",
        "caltech-101/101_ObjectCategories",
    }
    assert max(map(len, out.splitlines())) <= 80
    assert [line.strip() for line in out.splitlines() if line[:1].isupper()][:4] == [
        "Fine-grained classification",
        "Natural distribution shifts",
        "Colour drawings",
        "Line art",
    ]


def test_list_as_json_is_complete(capsys):
    datasets(as_json=True)
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert len(entries) == 31
    assert entries["imagenet_r"]["classes"] == 200
    assert entries["imagenet_r"]["found"] is False
    assert entries["openmoji-line/objects"]["family"] == "emoji-line"


def test_check_says_partial_and_names_what_is_missing(tmp_path, plant, capsys):
    entry = catalog_entry("eurosat")
    plant(entry, entry.layouts[0], tmp_path)
    gone = tmp_path / "eurosat" / "2750" / "sub" / "3_0.jpg"
    gone.unlink()
    (gone.parent / "4_0.jpg").write_bytes(b"broken")
    arguments = ("datasets", "check", "eurosat", "--deep", "--data-root", str(tmp_path))
    assert run(*arguments) == 1
    out = capsys.readouterr().out
    assert "9 of 8,100" in out
    assert f"missing: {gone}" in out
    assert "unreadable: sub/4_0.jpg" in out


def test_check_exit_code_tells_missing_from_complete(tmp_path, capsys):
    assert run("datasets", "check", "dtd", "--data-root", str(tmp_path)) == 2
    assert "split_zhou_DescribableTextures.json" in capsys.readouterr().out


def test_check_of_own_images_as_json(tmp_path, put, capsys):
    put(tmp_path / "fox" / "a.jpg")
    put(tmp_path / "wolf" / "b.jpg")
    assert run("datasets", "check", f"folder:{tmp_path}", "--json", "--deep") == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert report["class_counts"] == [["fox", 1], ["wolf", 1]]
    assert report["checked_images"] == 2


def test_unknown_set_is_one_line_and_exit_code_2():
    arguments = ["dtpt", "datasets", "check", "dtdd"]
    code = f"import sys; sys.argv = {arguments}; from dtpt.cli.main import run; run()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr.startswith("dtpt: Unknown data set 'dtdd'. Did you mean dtd")
    assert len(result.stderr.splitlines()) == 1


def test_neither_help_nor_the_data_layer_imports_torch():
    code = (
        "import sys\n"
        "from dtpt.cli.main import call\n"
        "try:\n    call(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "assert 'dtpt.data' not in sys.modules\n"
        "import dtpt.data, dtpt.cli.inventory\n"
        "assert 'torch' not in sys.modules\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "List the data sets" in result.stdout
