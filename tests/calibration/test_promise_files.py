"""Promise files: what is written is read; what was damaged, edited or is newer is refused."""

import json

import numpy as np
import pytest
from worlds import drawn

from dtpt.calibration import Basis, Levels, Promise, Subject, fit, read_promise
from dtpt.calibration.words import promised
from dtpt.errors import PromiseError


def subject(**changes):
    settings = {
        "model": "pocket",
        "fingerprint": "a" * 64,
        "precision": "float32",
        "method": "d-tpt",
        "lambda": 1e5,
        "learning_rate": None,
        "template": "a photo of a {}.",
        "context": None,
        "classes": tuple(f"class {k}" for k in range(10)),
        "views": {"count": 64, "augmix": True},
        "tuning": {"steps": 1},
    }
    return Subject.model_validate(settings | changes)


@pytest.fixture(scope="module")
def promise():
    rows, levels = drawn(400, seed=0), Levels(error=0.1)
    first = np.arange(400) < 100
    found = fit(rows.take(first), rows.take(~first), levels=levels)
    return Promise(
        subject=subject(),
        basis=Basis(
            dataset="drawn",
            fingerprint="b" * 64,
            run="c" * 64,
            seed=0,
            pictures=400,
            temperature_pictures=100,
        ),
        levels=levels,
        fit=found,
        promised=promised(found, levels, sets="lac", pictures=300),
    )


def test_a_file_says_again_what_was_written(promise, tmp_path):
    promise.save(tmp_path / "p.json")
    again = read_promise(tmp_path / "p.json")
    assert again == promise
    rows = drawn(50, seed=1)
    said = [p.state(rows.log_probabilities, predictions=rows.predictions) for p in (promise, again)]
    assert (said[0].members == said[1].members).all()
    assert (said[0].answered == said[1].answered).all()


def test_the_file_states_its_assumption_and_what_happens_otherwise(promise, tmp_path):
    promise.save(tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text())
    assert "same kind" in content["assumption"]
    assert "nothing is promised" in content["otherwise"]
    assert any("at most 10 % of the answers given" in text for text in content["promised"])
    assert content["basis"]["pictures"] == 400


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c["fit"].update(threshold=0.1),
        lambda c: c["subject"].update(method="tpt"),
        lambda c: c["levels"].update(error=0.01),
        lambda c: c.update(promised=["Everything is right."]),
    ],
)
def test_an_edited_file_is_refused(promise, tmp_path, edit):
    content = promise.document()
    edit(content)
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(PromiseError, match="changed after it was written"):
        read_promise(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "no promise file"),
        (b'{"format": 1}', "no promise file"),
        (b'{"format": 2, "digest": "", "fit": {}}', "has format 2, this dtpt reads 1: update"),
        (b'{"format": "1", "digest": "", "fit": {}}', "has format 1"),
    ],
)
def test_what_is_no_promise_of_this_format_is_refused_in_one_line(tmp_path, content, reason):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(PromiseError, match=reason) as refused:
        read_promise(path)
    assert "p.json" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_truncated_file_is_refused(promise, tmp_path):
    promise.save(tmp_path / "p.json")
    data = (tmp_path / "p.json").read_bytes()
    (tmp_path / "p.json").write_bytes(data[: len(data) // 2])
    with pytest.raises(PromiseError, match="damaged"):
        read_promise(tmp_path / "p.json")


def test_a_fresh_digest_does_not_make_nonsense_valid(promise, tmp_path):
    from dtpt.calibration.promise import content_digest

    content = promise.model_dump(mode="json", by_alias=True)
    content["fit"]["temperature"] = -1.0
    (tmp_path / "p.json").write_text(json.dumps({**content, "digest": content_digest(content)}))
    with pytest.raises(PromiseError, match=r"fit\.temperature"):
        read_promise(tmp_path / "p.json")


def test_missing_files_and_folders_are_named(tmp_path):
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(PromiseError, match=path.name):
            read_promise(path)


def test_a_folder_that_does_not_exist_is_told_when_writing(promise, tmp_path):
    with pytest.raises(PromiseError, match="cannot be written"):
        promise.save(tmp_path / "absent" / "p.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fingerprint": "f" * 64}, "model aaaaaaaaaaaa…, not ffffffffffff…"),
        ({"precision": "bfloat16"}, "precision float32, not bfloat16"),
        ({"method": "tpt", "lambda": None}, "method d-tpt, not tpt; lambda 100000.0, not null"),
        ({"lambda": 50.0}, "lambda 100000.0, not 50.0"),
        ({"template": "a drawing of a {}."}, "template a photo of a {}., not a drawing of a {}."),
        ({"context": "e" * 64}, "context null, not eeeeeeeeeeee…"),
        ({"classes": ("cat", "dog")}, "classes 10 "),
        ({"classes": tuple(f"class {k}" for k in reversed(range(10)))}, "classes 10 "),
        ({"views": {"count": 16, "augmix": True}}, "views.count 64, not 16"),
        ({"tuning": {"steps": 2}}, "tuning.steps 1, not 2"),
    ],
)
def test_a_promise_for_something_else_is_refused_with_the_difference(promise, change, words):
    with pytest.raises(PromiseError) as refused:
        promise.check(subject(**change))
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_name_of_the_model_does_not_count(promise):
    promise.check(subject(model="my own name"))
