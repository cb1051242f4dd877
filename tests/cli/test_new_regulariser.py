"""A complete new regulariser is one function and one line: everything else then knows it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# A regulariser with a title, a colour, a marker and a grid of its own.
REGULARISER = """
from dtpt.methods import Look, regularised

LOOK = Look("Flat-TPT", "#123456", "d", (0, (1, 1)), "xx")

def flatness(text):
    return (text**4).sum(-1).mean()

FLAT = regularised("flat-tpt", flatness, lambda_=1e4, grid=(1e3, 1e4), look=LOOK)
"""
IN_PYTHON = f"""
{REGULARISER}
from dtpt.methods import METHODS
METHODS["flat-tpt"] = FLAT
"""
EVERYWHERE = """
import contextlib, io, json, sys
from dtpt.cli.main import call
from dtpt.report import write_report
from dtpt.report.figures.style import looks_for

model, images, image, output = sys.argv[1:]

def say(*words):
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        call(words)
    return told.getvalue()

settings = ("--model", model, "--views", "4")
classes = ("--classes", "red,green,blue")
sets = ("--dataset", images, "--limit", "6", "--output", output, "--quiet", "--view-workers", "0")
found = {
    "methods": [row["title"] for row in json.loads(say("methods", "--json"))],
    "predict": say("predict", image, "--method", "flat-tpt", *classes, *settings, "--json"),
}
say("sweep", "--method", "tpt,flat-tpt", *settings, *sets)
say("report", output, "--output", output + "/report")
made = write_report([output], output + "/again")
(table,) = made.report.parts[0].means
found["rows"] = [row.title for row in table.rows]
found["page"] = made.page.read_text("utf-8").count("Flat-TPT")
legend = next(figure for figure in made.report.figures if figure.key.endswith("risk"))
found["legend"] = "Flat-TPT" in legend.svg and "#123456" in legend.svg
found["looks"] = len({look.marker for look in looks_for(
    [("tpt", None), ("flat-tpt", 1e3), ("flat-tpt", 1e4), ("flat-tpt-static", None)]).values()})
print(json.dumps(found))
"""


def everywhere(world: Path, output: Path, *, code: str = "", path: Path | None = None) -> dict:
    """What each command says about the regulariser, asked in a process of its own."""
    image = sorted((world / "images").rglob("*.png"))[0]
    words = [f"local-dir:{world / 'tiny'}", f"folder:{world / 'images'}", image, output / "run"]
    paths = os.pathsep.join(filter(None, (str(path or ""), os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", code + EVERYWHERE, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        env=variables,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(found: dict) -> None:
    assert {"Flat-TPT", "Flat-TPT static"} <= set(found["methods"])
    answer = json.loads(found["predict"])
    assert (answer["method"], answer["lambda"]) == ("flat-tpt", 1e4)
    assert found["rows"] == ["TPT", "Flat-TPT (λ = 10³)", "Flat-TPT (λ = 10⁴)"]
    assert found["page"] >= 3
    assert found["legend"]
    assert found["looks"] == 4


def test_a_line_in_python_makes_a_regulariser_known_everywhere(world, tmp_path) -> None:
    check(everywhere(world, tmp_path, code=IN_PYTHON))


def test_an_entry_point_makes_a_regulariser_known_everywhere(world, tmp_path) -> None:
    package = tmp_path / "site"
    about = package / "flat_tpt-1.0.dist-info"
    about.mkdir(parents=True)
    (package / "flat_tpt.py").write_text(REGULARISER)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flat-tpt\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dtpt.methods]\nflat-tpt = flat_tpt:FLAT\n")
    check(everywhere(world, tmp_path, path=package))


@pytest.mark.parametrize("command", ["methods", "report", "compare"])
def test_listing_and_reporting_load_no_torch(command) -> None:
    code = f"""
import sys
from dtpt.cli.main import call
try:
    call(["{command}", "--help"])
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
