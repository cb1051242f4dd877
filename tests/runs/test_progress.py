"""Progress: lines now and then, a bar on a terminal, nothing when quiet."""

import io

import pytest

import dtpt.runs.progress as progress
from dtpt.runs.progress import Bar, Joined, Lines, format_seconds, make_reporter


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_come_every_thirty_seconds_and_at_the_end(clock):
    stream = io.StringIO()
    lines = Lines(stream)
    lines.start("pets seed 0", 100, done=40)
    for _ in range(60):
        clock[0] += 1.0
        lines.advance("pets seed 0")
    assert stream.getvalue().splitlines() == [
        "pets seed 0: 40 of 100 images are stored already",
        "pets seed 0: 70/100 images, 1.00 images/s, 30 s left",
        "pets seed 0: 100/100 images, 1.00 images/s",
    ]


def test_speed_counts_only_what_this_session_did(clock):
    stream = io.StringIO()
    lines = Lines(stream, every=0.0)
    lines.start("pets", 1000, done=900)
    clock[0] += 2.0
    lines.advance("pets")
    assert "901/1000 images, 0.50 images/s, 3 min left" in stream.getvalue()


def test_overlapping_stages_are_counted_apart_and_workers_named(clock):
    stream = io.StringIO()
    lines = Lines(stream)
    lines.start("a", 2, done=0)
    clock[0] += 1.0
    lines.advance("a", worker=0)
    lines.start("b", 1, done=0)
    clock[0] += 1.0
    lines.advance("b", worker=1)
    lines.advance("a", worker=1)
    assert stream.getvalue().splitlines() == [
        "b: 1/1 images, 1.00 images/s",
        "a: 2/2 images, 1.00 images/s (1 + 1 by worker)",
    ]


def test_quiet_prints_notes_only_and_no_terminal_means_lines(capsys):
    assert isinstance(make_reporter(quiet=False), Lines)
    quiet = make_reporter(quiet=True)
    quiet.start("x", 1, done=0)
    quiet.advance("x")
    quiet.note("y")
    quiet.close()
    assert capsys.readouterr() == ("", "y\n")


def test_bar_counts_images_and_shows_the_speed():
    bar = Bar()
    try:
        bar.start("pets", 4, done=1)
        for _ in range(3):
            bar.advance("pets")
        (task,) = bar._progress.tasks
        assert (task.completed, task.total) == (4, 4)
        assert task.fields["rate"].endswith("images/s")
    finally:
        bar.close()


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_durations_read_well(seconds, text):
    assert format_seconds(seconds) == text


def test_brackets_in_the_name_of_a_set_stay_in_the_bar():
    bar = Bar()
    bar.start("folder:a[/b] [red]c", 3, done=0)
    first, (task,) = bar._progress.columns[0], bar._progress.tasks
    assert str(first(task)) == "folder:a[/b] [red]c"
    bar.close()


def test_stages_can_be_shown_as_one() -> None:
    stream = io.StringIO()
    joined = Joined(Lines(stream, every=1e9), "Classifying")
    joined.begin(4, done=1)
    for title in ("pets", "cars"):
        joined.start(title, 2, done=0)
    for title in ("pets", "cars", "cars"):
        joined.advance(title)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Classifying: 1 of 4 images are stored already"
    assert lines[1].startswith("Classifying: 4/4 images")
    assert len(lines) == 2
