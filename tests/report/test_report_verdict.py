"""The verdict claims no difference that is chance, and finds one that is there."""

from dataclasses import replace

import numpy as np
import pytest

from dtpt.metrics import Predictions, pool
from dtpt.report import Variant
from dtpt.report.derived import TEMPERED, TPT
from dtpt.report.facts import Resampling, compare_pooled
from dtpt.report.words import AVERAGED, ZERO_SHOT, Effect, Verdict, family_paragraph

D_TPT = Variant("d-tpt", 1e5)
C_TPT = Variant("c-tpt", 50.0)
EQUAL = {ZERO_SHOT: (0.0, 0.0), TPT: (0.0, 0.0), C_TPT: (0.0, 0.0), D_TPT: (0.0, 0.0)}
PLANTED = {
    ZERO_SHOT: (0.0, 0.03),
    TPT: (0.03, 0.10),
    C_TPT: (0.03, 0.10),
    D_TPT: (0.0, 0.05),
    AVERAGED: (0.05, 0.03),
    TEMPERED: (0.03, 0.01),
}


def simulated(seed: int, effects, *, count: int = 300, noise: float = 0.1):
    """Methods on the same images; an effect is added accuracy and overconfidence.

    An image has a difficulty and a luck that methods share up to some noise of their own.
    """
    rng = np.random.default_rng(seed)
    ease, luck = rng.uniform(0.25, 0.8, count), rng.uniform(size=count)
    pooled = {}
    for variant, (skill, boast) in effects.items():
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
        pooled[variant] = pool({"pets": made[:1], "cars": made[1:]})
    return compare_pooled(pooled, "own", resampling=Resampling(resamples=200, seed=seed))


def verdict_on(seed: int, effects, **options) -> Verdict:
    return Verdict(simulated(seed, effects, **options))


def test_equal_methods_are_called_different_in_at_most_5_of_100_reports() -> None:
    decisions = [verdict_on(seed, EQUAL, count=200).decision for seed in range(100)]
    assert decisions.count("significant") <= 5


def test_nothing_significant_is_a_verdict_with_the_size_that_would_be() -> None:
    verdict = verdict_on(0, EQUAL)
    assert verdict.decision == "nothing significant"
    assert verdict.facts.images == 300
    least, most = verdict.visible
    assert 0.01 < least <= most < 0.2
    text = family_paragraph(verdict.facts).text
    assert "Nothing is significantly different" in text
    assert "TPT" not in text


def test_where_nothing_was_compared_nothing_is_claimed() -> None:
    verdict = Verdict(replace(simulated(0, EQUAL), comparisons=(), against=()))
    assert verdict.decision == "nothing compared"
    assert verdict.tuning is None
    assert verdict.repairs == []


@pytest.fixture(scope="module")
def planted() -> Verdict:
    return verdict_on(1, PLANTED, count=6000)


def effect_of(verdict: Verdict, variant: Variant) -> Effect:
    return next(effect for effect in verdict.repairs if effect.variant == variant)


def test_planted_harm_and_repair_are_found(planted) -> None:
    assert planted.direction == "over"
    assert planted.tuning.accuracy.better == TPT.label
    assert planted.tuning.gap.better == ZERO_SHOT.label
    assert planted.tuning.gap.estimate == pytest.approx(0.07, abs=0.01)
    repair = effect_of(planted, D_TPT)
    assert repair.is_closer
    assert repair.gap.estimate == pytest.approx(-0.05, abs=0.01)
    assert repair.accuracy.estimate == pytest.approx(-0.03, abs=0.01)
    assert not effect_of(planted, C_TPT).gap.significant
    assert planted.averaged.is_closer
    assert planted.tempered.signed_gap == pytest.approx(0.01, abs=0.01)


def test_methods_beside_the_papers_are_apart() -> None:
    effects = {**PLANTED, Variant("r-tpt"): (0.03, 0.0), Variant("vte"): (0.03, 0.2)}
    found = {e.variant.method: e for e in verdict_on(1, effects, count=6000).others}
    assert found["r-tpt"].is_closer
    assert found["vte"].is_further


def test_an_underconfident_model_is_called_so() -> None:
    effects = {ZERO_SHOT: (0.1, -0.1), TPT: (0.1, -0.03)}
    verdict = verdict_on(2, effects, count=3000)
    assert verdict.direction == "under"
    assert verdict.tuning.gap.better == TPT.label


def test_a_temperature_that_goes_too_far_is_not_called_closer() -> None:
    effects = {ZERO_SHOT: (0.0, 0.03), TPT: (0.0, 0.1), TEMPERED: (0.0, -0.09)}
    tempered = verdict_on(4, effects, count=3000).tempered
    assert tempered.signed_gap < 0
    assert not tempered.is_closer


def test_a_method_at_several_lambdas_is_judged_at_the_chosen_one() -> None:
    chosen = Variant("d-tpt", derived="chosen")
    effects = {**PLANTED, Variant("d-tpt", 1e6): (0.0, 0.0), chosen: (0.0, 0.0)}
    verdict = verdict_on(3, effects, count=3000)
    assert [e.variant for e in verdict.repairs if e.variant.method == "d-tpt"] == [chosen]


def test_the_words_of_a_verdict(planted) -> None:
    """The one snapshot of the wording."""
    assert family_paragraph(planted.facts).sentences == (
        "Without tuning, accuracy is 52.6 % and mean confidence 55.6 %: overconfident by 3.0 "
        "points.",
        "Tuning the prompt on each image (TPT) raises accuracy by 2.9 points [1.5, 4.3], but moves "
        "confidence further from accuracy, by 7.1 points [5.7, 8.5], to 10.0.",
        "D-TPT (λ = 10⁵) reduces that gap by 4.7 points and costs 3.3 points of accuracy.",
        "C-TPT (λ = 50) is not significantly different from TPT in this.",
        "Averaging the predictions over the views, without any tuning, leaves the model "
        "overconfident by 3.5 points, closer to accuracy than TPT, and adds 1.6 points of "
        "accuracy.",
        "A temperature for TPT, fitted leave-one-dataset-out, changes no prediction and leaves the "
        "model overconfident by 0.7 points, closer to accuracy than TPT.",
        "By the Brier score, which counts both, no method is significantly better than all others.",
    )
