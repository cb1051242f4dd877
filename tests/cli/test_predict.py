"""`dtpt predict`: class names, wrong values, unreadable images, lambdas from the images."""

import csv
import json
import os
import shutil

import pytest
from cyclopts import CycloptsError

from dtpt.cli import main
from dtpt.cli import predict as command
from dtpt.cli.exits import explain
from dtpt.clip.loading import load_model
from dtpt.errors import CheckpointError, ImageError, OptionError, PromptError, WorkerError
from dtpt.prediction import Classifier

CLASSES = ("--classes", "cat,dog,green square")


@pytest.fixture
def images(world):
    return sorted((world / "images").rglob("*.png"))[:3]


@pytest.fixture
def call(world):
    """Run the command in this process, with the tiny model and few views."""

    def run(*words):
        known = ("--model", f"local-dir:{world / 'tiny'}", "--views", "4", "--threads", "1")
        arguments = ["predict", *map(str, words), *known]
        main.call(arguments)

    return run


def rows(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_is_a_line_for_each_image(call, images, capsys):
    call(*images, *CLASSES, "--json")
    found = rows(capsys)
    assert [row["image"] for row in found] == [str(path) for path in images]
    for row in found:
        assert row["label"] in ("cat", "dog", "green square")
        assert sum(row["probabilities"].values()) == pytest.approx(1)
        assert row["zero_shot"]["label"]


def test_options_may_stand_in_the_environment_and_in_a_file(
    call, images, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("DTPT_CLASSES", "cat,dog")
    config = tmp_path / "options.toml"
    config.write_text('[predict]\nmethod = "c-tpt"\nlambda = 3\n\n[eval]\nmethod = "tpt"\n')
    call(images[0], "--json", "--config", config)
    (row,) = rows(capsys)
    assert (row["method"], row["lambda"], len(row["probabilities"])) == ("c-tpt", 3.0, 2)


@pytest.mark.parametrize("words", [("--steps", "-1"), ("--lambda", "-1"), ("--precision", "half")])
def test_wrong_values_are_refused_before_anything_is_loaded(words, monkeypatch):
    monkeypatch.setattr("dtpt.clip.loading.load_model", None)
    with pytest.raises(CycloptsError) as refusal:
        main.call(["predict", "a.png", *CLASSES, *words])
    assert explain(refusal.value).startswith(f"{words[0]}: ")


@pytest.mark.parametrize("words", [(), (*CLASSES, "--classes-file", "names.txt")])
def test_class_names_are_given_once(call, words):
    with pytest.raises(PromptError, match="--classes"):
        call("a.png", *words)


def test_classes_with_the_same_prompt_are_named(call, images, capsys):
    call(images[0], "--classes", "cat,Cat,dog", "--json")
    captured = capsys.readouterr()
    (row,) = map(json.loads, captured.out.splitlines())
    assert row["label"] in ("cat", "Cat", "dog")
    assert "'cat'" in captured.err
    assert "'Cat'" in captured.err


def test_class_file_has_a_name_a_line(call, images, capsys, tmp_path):
    (tmp_path / "names.txt").write_bytes("\ufeffcat\r\n\r\n  café  \n".encode())
    call(images[0], "--classes-file", tmp_path / "names.txt", "--json")
    (row,) = rows(capsys)
    assert list(row["probabilities"]) == ["cat", "café"]


def test_class_file_that_is_not_a_list_is_refused_at_once(call, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    (tmp_path / "long").write_bytes(b"a\n" * 60)
    monkeypatch.setattr(command, "MOST_CLASSES_BYTES", 100)
    for name, reason in {"pipe": "pipe", "latin": "utf-8", "long": "100", "absent": "No"}.items():
        with pytest.raises(PromptError, match=f"{name}: .*{reason}"):
            call("a.png", "--classes-file", tmp_path / name)


def test_a_folder_stands_for_its_images(call, images, capsys, tmp_path):
    for name in ("b/2.png", "b/.hidden.png", ".c/3.png", "b/notes.txt", "a/1.PNG"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(images[0], tmp_path / "in" / name)
    call(tmp_path / "in", images[1], *CLASSES, "--json")
    found = [row["image"] for row in rows(capsys)]
    assert found == [str(tmp_path / "in/a/1.PNG"), str(tmp_path / "in/b/2.png"), str(images[1])]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError, match="empty"):
        call(tmp_path / "empty", *CLASSES)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_answers_are_written_to_a_file(call, images, capsys, tmp_path, suffix, workers):
    if suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
    damaged, path = tmp_path / "damaged.png", tmp_path / f"answers{suffix}"
    damaged.write_bytes(b"no image")
    words = ("--output", path, "--workers", workers, "--quiet")
    with pytest.raises(SystemExit) as stop:
        call(damaged, *images, *CLASSES, *words)
    assert stop.value.code == 1
    assert capsys.readouterr().out == ""
    call(*images, *CLASSES, "--json")
    expected = rows(capsys)
    if suffix == ".csv":
        with path.open(newline="") as stream:
            bad, *found = csv.DictReader(stream)
    elif suffix == ".parquet":
        bad, *found = parquet.read_table(path).to_pylist()
    else:
        bad, *found = map(json.loads, path.read_text().splitlines())
    assert "damaged.png" in bad["error"]
    assert [row["label"] for row in found] == [row["label"] for row in expected]
    confidences = [float(row["confidence"]) for row in found]
    assert confidences == [row["confidence"] for row in expected]


def test_a_file_of_answers_appears_when_all_are_there(call, images, tmp_path, monkeypatch):
    def interrupted(self, images, **_):
        yield self.predict(images[0])
        raise WorkerError("A process ended.")

    monkeypatch.setattr(Classifier, "predict_each", interrupted)
    (tmp_path / "answers.csv").write_text("older")
    with pytest.raises(WorkerError):
        call(*images, *CLASSES, "--output", tmp_path / "answers.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["answers.csv"]
    assert (tmp_path / "answers.csv").read_text() == "older"


@pytest.mark.parametrize("name", ["answers.txt", "answers", "none/answers.csv"])
def test_a_file_that_cannot_be_written_is_refused(call, images, tmp_path, name):
    with pytest.raises(OptionError, match="answers"):
        call(*images, *CLASSES, "--output", tmp_path / name)


def test_unreadable_image_does_not_stop_the_others(call, images, capsys, tmp_path):
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no image")
    with pytest.raises(SystemExit) as stop:
        call(damaged, images[0], *CLASSES, "--json")
    assert stop.value.code == 1
    first, second = rows(capsys)
    assert "damaged.png" in first["error"]
    assert second["label"]


def test_lambda_is_found_from_the_images_that_can_be_read(call, world, images, capsys, tmp_path):
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no image")
    with pytest.raises(SystemExit):
        call(damaged, *images, *CLASSES, "--json", "--method", "d-tpt@auto=0.8")
    _, *found = rows(capsys)
    model = load_model(f"local-dir:{world / 'tiny'}", device="cpu")
    names = ["cat", "dog", "green square"]
    expected = Classifier(model, names, method="d-tpt@auto=0.8", views=4).fit_lambda(images)
    assert [row["lambda"] for row in found] == pytest.approx([expected] * 3, rel=1e-4)
    assert expected > 0


def test_precision_and_activation_reach_the_model(call, images, capsys):
    call(images[0], *CLASSES, "--precision", "bfloat16", "--json")
    assert "bfloat16" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="gelu"):
        call(images[0], *CLASSES, "--activation", "gelu")


def test_table_holds_whole_names_at_80_columns(call, images, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("dtpt.terminal.WIDTH_WITHOUT_TERMINAL", 80)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "[red]x").mkdir()
    shutil.copy(images[0], tmp_path / "[red]x" / "a-long-name-of-an-image-file.png")
    call("[red]x/a-long-name-of-an-image-file.png", *CLASSES, "--quiet")
    out = capsys.readouterr().out
    assert "[red]x/a-long-name-of-an-image-file.png" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "…" not in out


def test_json_lines_come_as_images_are_answered(call, images, capsys, monkeypatch):
    def interrupted(self, images, **_):
        yield self.predict(images[0])
        raise WorkerError("A process ended.")

    monkeypatch.setattr(Classifier, "predict_each", interrupted)
    with pytest.raises(WorkerError):
        call(*images, *CLASSES, "--json")
    assert [row["image"] for row in rows(capsys)] == [str(images[0])]
