"""Classes of one prompt, copies and unfinished runs are known wherever results are read."""

import shutil

import numpy as np
import pytest
from tiny_runs import TINY_OPTIONS, draw_images, tiny_clip

from dtpt.cli.eval import export
from dtpt.data.check import check_dataset
from dtpt.errors import CalibrationError, RunError
from dtpt.report.load import load_runs
from dtpt.runs import EvalOptions, open_run, results_of, run_options
from dtpt.runs.calibrate import labelled_predictions
from dtpt.runs.worker import RunWorker
from dtpt.web.evidence import read_evidence

CLASSES = ("CAT_", "Cat", "cat", "dog", "e\u0301", "\xe9")
WORDS = "same prompt"


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A folder whose classes share prompts, with copies, and a run on it."""
    folder = tmp_path_factory.mktemp("odd")
    draw_images(folder / "images", per_class=3, classes=CLASSES)
    for index in (1, 2):
        shutil.copy(folder / "images/dog/000.png", folder / f"images/dog/{index:03d}.png")
    options = EvalOptions(
        output=folder / "run", dataset=(f"folder:{folder / 'images'}",), **TINY_OPTIONS
    )
    run_options(options, model=tiny_clip()).close()
    return folder


def texts_of(notes):
    return [text for texts in notes.values() for text in texts]


def test_classes_of_one_prompt_are_a_note_of_the_run_and_of_its_report(odd):
    with open_run(odd / "run") as run:
        (note,) = [text for text in texts_of(run.notes()) if WORDS in text]
        assert results_of(run).notes == run.notes()
    for shown in ("'CAT '", "'Cat'", "'cat'", r"'e\u0301'", r"'\xe9'"):
        assert shown in note
    assert "dog" not in note
    with load_runs([odd / "run"]) as loaded:
        assert sum(note in text for text in loaded.notes) == 1


def test_classes_of_one_prompt_are_a_problem_of_the_data_set(odd):
    report = check_dataset(f"folder:{odd / 'images'}")
    assert sum(WORDS in text for text in report.problems) == 1
    assert report.ok


def test_copies_are_a_note_of_the_run(odd):
    with open_run(odd / "run") as run:
        assert sum("2 of 18 images" in text for text in texts_of(run.notes())) == 1


def test_evidence_counts_copies_once(odd):
    for cell in read_evidence(odd / "run"):
        evidence = cell.near(0.5)
        assert evidence.count == 16
        assert len(cell.confidence) == 18
        dogs = np.bincount(cell.clusters).argmax()
        chosen = cell.confidence[cell.clusters == dogs]
        assert len(chosen) == 3


@pytest.fixture
def unfinished(odd, tmp_path, monkeypatch):
    """A run that was stopped in the middle."""
    answers, answer = iter(range(5)), RunWorker.next

    def stop_early(self):
        if next(answers, None) is None:
            raise KeyboardInterrupt
        return answer(self)

    monkeypatch.setattr(RunWorker, "next", stop_early)
    options = EvalOptions(
        output=tmp_path / "run", dataset=(f"folder:{odd / 'images'}",), **TINY_OPTIONS
    )
    with pytest.raises(KeyboardInterrupt):
        run_options(options, model=tiny_clip())
    return tmp_path / "run"


def test_an_unfinished_run_is_no_evidence_and_no_calibration(unfinished):
    with pytest.raises(RunError, match="of 18 images"):
        read_evidence(unfinished)
    with open_run(unfinished) as run:
        assert 0 < len(run.rows()) < 54
        with pytest.raises(CalibrationError, match="of 18 images"):
            labelled_predictions(run, run.cells[0])


def test_an_export_of_an_unfinished_run_says_so(unfinished, tmp_path, capsys):
    export(unfinished, output=tmp_path / "files")
    assert "of 18 images" in capsys.readouterr().err
