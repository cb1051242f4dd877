"""The verdict claims no difference that is chance, and finds one that is there."""

from dataclasses import replace

import numpy as np
import pytest

from dtpt.metrics import Predictions
from dtpt.report import Variant
from dtpt.report.derived import TEMPERED, TPT
from dtpt.report.facts import Resampling, compare_methods
from dtpt.report.tables import difference_tables, headline_table, pooled_table
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


def simulated(seed, effects, *, count=300, noise=0.1, cluster=1, is_known=True):
    """Methods on the same images; an effect is added accuracy and overconfidence.

    An image has a difficulty and a luck that methods share up to some noise of their own. Images of
    a cluster share all of it.
    """
    rng = np.random.default_rng(seed)
    codes = np.arange(count) // cluster

    def uniform(low: float = 0.0, high: float = 1.0):
        return rng.uniform(low, high, count)[codes]

    ease, luck = uniform(0.25, 0.8), uniform()
    methods = {}
    for variant, (skill, boast) in effects.items():
        own = np.where(uniform() < noise, uniform(), luck)
        correct = own < ease + skill
        confidence = np.clip(ease + skill + boast + 0.02 * rng.normal(size=count), 0.01, 0.999)
        rest = (1 - confidence) / 9
        made = [
            Predictions.from_confidence(
                confidence[half],
                correct[half],
                p_label=np.where(correct, confidence, rest)[half],
                sum_squares=(confidence**2 + 9 * rest**2)[half],
                clusters=codes[half] if is_known else None,
            )
            for half in (slice(0, count // 2), slice(count // 2, count))
        ]
        methods[variant] = {"pets": made[:1], "cars": made[1:]}
    return compare_methods(methods, "own", resampling=Resampling(resamples=200, seed=seed))


def verdict_on(seed: int, effects, **options) -> Verdict:
    return Verdict(simulated(seed, effects, **options))


def claims(facts) -> bool:
    """Return whether anything on the page is claimed: bold, direction, sentence."""
    tables = [headline_table(facts, key=""), *difference_tables(facts, prefix="")]
    tables += [pooled_table(facts, key="")] if facts.pooled else []
    bold = any(cell.bold for table in tables for row in table.rows for cell in row.cells)
    return bold or bool(facts.direction) or Verdict(facts).decision == "significant"


def test_anything_false_is_claimed_in_at_most_5_of_100_reports() -> None:
    """Equal calibrated methods, two sets, clusters of five images."""
    false = [claims(simulated(seed, EQUAL, count=600, cluster=6)) for seed in range(100)]
    assert sum(false) <= 5


def test_reports_that_ignore_clusters_make_false_claims() -> None:
    false = [claims(simulated(s, EQUAL, count=200, cluster=5, is_known=False)) for s in range(60)]
    assert sum(false) > 6


def test_nothing_significant_is_a_verdict_with_the_size_that_would_be() -> None:
    verdict = verdict_on(0, EQUAL)
    assert verdict.decision == "nothing significant"
    assert verdict.facts.images == 300
    least, most = verdict.detectable
    assert 0.01 < least <= most < 0.3
    text = family_paragraph(verdict.facts).text
    assert "No difference between the 4 methods is significant" in text
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
    assert planted.facts.direction == "over"
    tuning = planted.tuning
    assert tuning.accuracy.better == TPT.label
    assert tuning.differences["absolute_gap"].better == ZERO_SHOT.label
    assert tuning.differences["absolute_gap"].estimate == pytest.approx(0.07, abs=0.01)
    repair = effect_of(planted, D_TPT)
    assert {"absolute_gap", "squared_ce"} <= set(repair.better)
    assert repair.differences["absolute_gap"].estimate == pytest.approx(-0.05, abs=0.01)
    assert repair.accuracy.estimate == pytest.approx(-0.03, abs=0.01)
    assert effect_of(planted, C_TPT).outcome == "same"
    assert planted.averaged.outcome == "better"
    assert set(planted.averaged.better) == {"absolute_gap", "squared_ce", "brier", "nll"}


def test_methods_beside_the_papers_are_apart() -> None:
    effects = {**PLANTED, Variant("r-tpt"): (0.03, 0.0), Variant("vte"): (0.03, 0.2)}
    found = {e.variant.method: e for e in verdict_on(1, effects, count=6000).others}
    assert found["r-tpt"].outcome == "better"
    assert found["vte"].outcome == "worse"


def test_a_smaller_gap_with_a_worse_likelihood_is_mixed() -> None:
    """Half of the images far too sure, half far too unsure: the gap cancels, nothing else does."""
    facts = simulated(5, {ZERO_SHOT: (0.0, 0.0), TPT: (0.0, 0.06)}, count=2000)
    found = {c.metric: c for c in facts.comparisons}
    worse = replace(found["nll"], estimate=0.1, low=0.05, high=0.15)
    closer = replace(found["absolute_gap"], estimate=-0.05, low=-0.07, high=-0.03)
    effect = Effect(TPT, ZERO_SHOT, {"nll": worse, "absolute_gap": closer})
    assert (effect.better, effect.worse, effect.outcome) == (["absolute_gap"], ["nll"], "mixed")


def test_an_underconfident_model_is_called_so() -> None:
    effects = {ZERO_SHOT: (0.1, -0.1), TPT: (0.1, -0.03)}
    verdict = verdict_on(2, effects, count=3000)
    assert verdict.facts.direction == "under"
    assert "absolute_gap" in verdict.tuning.better


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
        "Tuning the prompt on each image (TPT) raises accuracy by 2.9 points [1.5, 4.4], and is "
        "better than the untuned model in Brier score and NLL and worse in gap (by 7.1 points "
        "[5.6, 8.6]) and squared calibration error.",
        "D-TPT (λ = 10⁵) is better than TPT in gap (by 4.7 points [3.3, 6.2]) and squared "
        "calibration error and worse in Brier score and NLL, and costs 3.3 points of accuracy "
        "[1.8, 4.7].",
        "C-TPT (λ = 50) is not significantly different from TPT in any of these.",
        "Averaging the predictions over the views, without any tuning, is better than TPT in gap "
        "(by 6.6 points [5.2, 8.0]), squared calibration error, Brier score and NLL, and adds 1.6 "
        "points of accuracy [0.2, 3.0].",
        "A temperature for TPT, fitted leave-one-dataset-out, changes no prediction and is better "
        "than TPT in gap (by 9.3 points [8.1, 11.2]) and squared calibration error.",
        "By the Brier score, which counts accuracy and calibration, Mean of views is significantly "
        "better than Zero-shot and TPT.",
    )
