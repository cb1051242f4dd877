"""The files that people and machines read around the code agree with it."""

import re
from pathlib import Path

import pytest

import dtpt

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]


def content(name):
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_citation_names_the_paper_and_this_version():
    cited = content("CITATION.cff")
    assert cited["version"] == dtpt.__version__
    paper = cited["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Han", "Hwang"]
    assert "2510.09473" in paper["journal"]


def test_pre_commit_runs_the_commands_of_make_lint():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    wanted = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    (repository,) = content(".pre-commit-config.yaml")["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == wanted


def test_the_public_workflow_runs_make_test():
    steps = content(".github/workflows/test.yml")["jobs"]["test"]["steps"]
    assert "make test" in [step.get("run") for step in steps]


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")), ids=str)
def test_issue_forms_are_complete(path):
    form = yaml.safe_load(path.read_text("utf-8"))
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= form.keys()
    labels = [field["attributes"]["label"] for field in form["body"] if field["type"] != "markdown"]
    assert len(labels) == len(set(labels)) > 0
