"""One table to choose a method by: what each gives and costs."""

from dataclasses import replace

import pytest

from dtpt.report import Contender
from dtpt.report.choosing import GIVES, choices, seconds_per_picture
from dtpt.report.comparison import Resampling, compare_families


def test_every_method_of_a_family_has_its_values_and_its_passes(five_methods) -> None:
    (condition,) = five_methods.conditions
    families = compare_families(condition, Resampling(resamples=50))
    found = choices(condition, families)
    assert list(found) == ["Fine-grained classification", "Natural distribution shifts"]
    rows = {choice.label: choice for choice in found["Fine-grained classification"]}
    assert (rows["zero-shot"].image_passes, rows["zero-shot"].text_passes) == (1, 0)
    assert (rows["d-tpt@100000"].image_passes, rows["d-tpt@100000"].text_passes) == (64, 2)
    assert list(rows["tpt"].values) == list(GIVES)
    assert rows["tpt"].values["brier"] == families[0].value(Contender("tpt"), "brier")


def test_seconds_are_those_of_the_sessions_per_picture(five_methods) -> None:
    (source,) = five_methods.sources
    seconds = sum(session["seconds"] for session in source.sessions)
    # four sets of 40 pictures under two seeds
    assert seconds_per_picture([source]) == pytest.approx(seconds / 160, rel=0.01)


def test_passes_count_every_step(five_methods) -> None:
    (condition,) = five_methods.conditions
    twice = replace(condition, tuning={**condition.tuning, "steps": 2})
    families = compare_families(twice, Resampling(resamples=50))
    rows = {one.label: one for one in choices(twice, families)["Fine-grained classification"]}
    assert (rows["zero-shot"].text_passes, rows["tpt"].text_passes) == (0, 4)
