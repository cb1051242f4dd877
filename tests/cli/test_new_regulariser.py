"""A complete new regulariser is one function and one line: everything else then knows it."""

import json
import os
import subprocess
import sys

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

def output_of(*words):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        call(words)
    return printed.getvalue()

settings = ("--model", model, "--views", "4")
classes = ("--classes", "red,green,blue")
sets = ("--dataset", images, "--limit", "6", "--output", output, "--quiet", "--view-workers", "0")
found = {
    "methods": [row["title"] for row in json.loads(output_of("methods", "--json"))],
    "predict": output_of("predict", image, "--method", "flat-tpt", *classes, *settings, "--json"),
}
output_of("sweep", "--method", "tpt,flat-tpt", *settings, *sets)
made = write_report([output], output + "/report")
(table,) = made.report.parts[0].means
found["rows"] = [row.title for row in table.rows]
found["page"] = made.page.read_text("utf-8").count("Flat-TPT")
legend = next(figure for figure in made.report.figures if figure.key.endswith("risk"))
found["legend"] = "Flat-TPT" in legend.svg and "#123456" in legend.svg
found["looks"] = len({look.marker for look in looks_for(
    [("tpt", None), ("flat-tpt", 1e3), ("flat-tpt", 1e4), ("flat-tpt-static", None)]).values()})
print(json.dumps(found))
"""


def test_a_line_in_python_makes_a_regulariser_known_everywhere(world, tmp_path) -> None:
    image = sorted((world / "images").rglob("*.png"))[0]
    words = [f"local-dir:{world / 'tiny'}", f"folder:{world / 'images'}", image, tmp_path / "run"]
    done = subprocess.run(
        [sys.executable, "-c", IN_PYTHON + EVERYWHERE, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"Flat-TPT", "Flat-TPT static"} <= set(found["methods"])
    answer = json.loads(found["predict"])
    assert (answer["method"], answer["lambda"]) == ("flat-tpt", 1e4)
    assert found["rows"] == ["TPT", "Flat-TPT (λ = 10³)", "Flat-TPT (λ = 10⁴)"]
    assert found["page"] >= 3
    assert found["legend"]
    assert found["looks"] == 4


def test_an_entry_point_makes_a_regulariser_known(tmp_path) -> None:
    package = tmp_path / "site"
    about = package / "flat_tpt-1.0.dist-info"
    about.mkdir(parents=True)
    (package / "flat_tpt.py").write_text(REGULARISER)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flat-tpt\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dtpt.methods]\nflat-tpt = flat_tpt:FLAT\n")
    paths = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "dtpt", "methods", "--json"],
        capture_output=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert {"Flat-TPT", "Flat-TPT static"} <= {row["title"] for row in json.loads(done.stdout)}
