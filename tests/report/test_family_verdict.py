"""The verdict claims no difference that is chance, and finds one that is there."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dtpt.metrics import Predictions, pool
from dtpt.report import Contender
from dtpt.report.comparison import Resampling, compare_pooled
from dtpt.report.verdict import AVERAGED, TEMPERED, TPT, ZERO_SHOT, family_verdict

D_TPT = Contender("d-tpt", 1e5)
C_TPT = Contender("c-tpt", 50.0)
EQUAL = {ZERO_SHOT: (0.0, 0.0), TPT: (0.0, 0.0), C_TPT: (0.0, 0.0), D_TPT: (0.0, 0.0)}
STORY = {
    ZERO_SHOT: (0.0, 0.03),
    TPT: (0.03, 0.10),
    C_TPT: (0.03, 0.10),
    D_TPT: (0.0, 0.05),
    AVERAGED: (0.05, 0.03),
    TEMPERED: (0.03, 0.01),
}


def simulated(seed: int, effects, *, count: int = 300, noise: float = 0.1):
    """Methods on the same pictures; an effect is added accuracy and overconfidence.

    A picture has a difficulty and a luck that methods share up to some noise of their own.
    """
    rng = np.random.default_rng(seed)
    ease, luck = rng.uniform(0.25, 0.8, count), rng.uniform(size=count)
    pooled = {}
    for contender, (skill, boast) in effects.items():
        own = np.where(rng.uniform(size=count) < noise, rng.uniform(size=count), luck)
        correct = own < ease + skill
        confidence = np.clip(ease + skill + boast + 0.02 * rng.normal(size=count), 0.01, 0.999)
        rest = (1 - confidence) / 9
        made = [
            Predictions.from_confidence(
                confidence[half],
                correct[half],
                p_label=np.where(correct, confidence, rest)[half],
                sum_squares=(confidence**2 + 9 * rest**2)[half],
            )
            for half in (slice(0, count // 2), slice(count // 2, count))
        ]
        pooled[contender] = pool({"pets": made[:1], "cars": made[1:]})
    return compare_pooled(pooled, "own", resampling=Resampling(resamples=200, seed=seed))


def test_equal_methods_are_called_different_in_at_most_5_of_100_reports() -> None:
    telling = [family_verdict(simulated(seed, EQUAL)).is_telling for seed in range(200)]
    assert sum(telling) <= 10


def test_nothing_told_apart_is_a_verdict_with_the_size_that_could_be_seen() -> None:
    text = family_verdict(simulated(0, EQUAL)).text
    assert text.startswith("Own images, 300 pictures: ")
    assert "Nothing can be told apart here" in text
    assert "With 300 pictures a difference in accuracy has to be about" in text
    assert "TPT" not in text


def test_one_size_that_could_be_seen_is_said_once() -> None:
    text = family_verdict(simulated(0, {ZERO_SHOT: (0.0, 0.0), AVERAGED: (0.0, 0.0)})).text
    assert re.search(r"has to be about \d+\.\d points to be seen", text)


def test_where_nothing_was_compared_nothing_is_said_of_differences() -> None:
    compared = replace(simulated(0, EQUAL), comparisons=(), against=())
    assert "may be chance" not in family_verdict(compared).text
    assert "No two methods were compared here." in family_verdict(compared).text


def test_no_visible_change_is_not_called_none() -> None:
    effects = {ZERO_SHOT: (0.0, 0.1), TPT: (0.0, 0.1), TEMPERED: (0.0, -0.3)}
    text = family_verdict(simulated(1, effects)).text
    assert "does not change its distance to confidence visibly" in text


@pytest.fixture(scope="module")
def story() -> str:
    return family_verdict(simulated(1, STORY, count=6000)).text


def test_planted_harm_and_repair_are_found(story) -> None:
    assert "sure on average: overconfident by 3.0 points." in story
    harm = (
        r"\(TPT\) raises accuracy by 2\.9 points \[1\.\d, 4\.\d\], but moves confidence further "
        r"from accuracy, by 7\.1 points \[5\.\d, 8\.\d\], to 10\.0\."
    )
    assert re.search(harm, story)
    assert (
        "D-TPT (λ = 10⁵) takes back 4.7 points of that gap and costs 3.3 points of accuracy."
    ) in story
    assert "C-TPT (λ = 50) cannot be told from TPT in this." in story


def test_ways_without_tuning_are_told(story) -> None:
    assert (
        "Averaging the answers over the views, without any tuning, leaves the model overconfident "
        "by 3.5 points, nearer to accuracy than TPT, and adds 1.6 points of accuracy."
    ) in story
    assert "changes no answer and leaves the model overconfident by 0.7 points, nearer" in story
    assert "By the Brier score, which counts both, " in story


def test_methods_beside_the_papers_are_summed_up() -> None:
    effects = {**STORY, Contender("r-tpt"): (0.03, 0.0), Contender("vte"): (0.03, 0.2)}
    text = family_verdict(simulated(1, effects, count=6000)).text
    assert "Of 2 further methods 1 narrow it, most R-TPT, which takes back" in text
    assert "; 1 widen it." in text


def test_a_temperature_that_goes_too_far_is_called_so() -> None:
    effects = {ZERO_SHOT: (0.0, 0.03), TPT: (0.0, 0.1), TEMPERED: (0.0, -0.09)}
    text = family_verdict(simulated(4, effects, count=3000)).text
    assert "leaves the model underconfident by" in text
    assert "which cannot be told from TPT's distance" in text


def test_an_underconfident_model_is_called_so() -> None:
    effects = {ZERO_SHOT: (0.1, -0.1), TPT: (0.1, -0.03)}
    text = family_verdict(simulated(2, effects, count=3000)).text
    assert "sure on average: underconfident by 9.3 points." in text
    assert "moves confidence closer to accuracy, by 6." in text


def test_a_method_at_several_weights_is_judged_at_the_chosen_one() -> None:
    chosen = Contender("d-tpt", derived="chosen")
    effects = {**STORY, Contender("d-tpt", 1e6): (0.0, 0.0), chosen: (0.0, 0.0)}
    text = family_verdict(simulated(3, effects, count=3000)).text
    assert "D-TPT (λ chosen on the other sets) takes back" in text
    assert "10⁵" not in text.split("By the Brier")[0]
