"""Where several weights were run, the one is shown that other data sets choose."""

import pytest
from handmade import dataset, write_run

from dtpt.report import Contender, gather
from dtpt.report.chosen_weights import chosen_contender, shown_contenders
from dtpt.report.figures.style import looks_for

GRID = (("tpt", None), ("d-tpt", 1e4), ("d-tpt", 1e5), ("d-tpt", 1e6))
BEST = {"pets": 1e4, "cars": 1e6, "cows": 1e6}


def says(cell, index):
    """Half of the answers are right; the closer to its best weight, the better a set's loss."""
    is_right = index % 2 == 0
    if cell.lambda_ is None:
        return is_right, 0.5
    return is_right, 0.95 if cell.lambda_ != BEST[cell.dataset] else 0.5


@pytest.fixture
def sweep(tmp_path):
    sets = [dataset(name, samples=6, methods=GRID) for name in BEST]
    with gather([write_run(tmp_path, sets, says)]) as gathered:
        yield gathered.conditions[0]


def test_a_set_does_not_choose_its_own_weight(sweep) -> None:
    assert chosen_contender(sweep, "pets", method="d-tpt").lambda_ == 1e6
    shown = shown_contenders(sweep, "pets")
    assert shown == (Contender("tpt"), Contender("d-tpt", 1e6))


def test_a_set_alone_shows_the_authors_weight_or_the_middle_one(tmp_path) -> None:
    for name, grid, expected in (("a", GRID, 1e5), ("b", (GRID[1], GRID[3], ("d-tpt", 1e7)), 1e6)):
        run = write_run(tmp_path / name, [dataset(methods=grid)], lambda cell, i: (i > 0, 0.9))
        with gather([run]) as gathered:
            (condition,) = gathered.conditions
            assert chosen_contender(condition, "pets", method="d-tpt").lambda_ == expected


def test_weights_of_one_method_differ_in_shade_and_marker() -> None:
    weights = [("d-tpt", 10.0**power) for power in range(1, 7)]
    looks = looks_for([("zero-shot", None), ("tpt", None), ("tpt+sals", None), *weights])
    assert len({look.colour for look in looks.values()}) == len(looks)
    assert len({look.marker for look in looks.values()}) == len(looks)
    assert len({look.dash for (name, _), look in looks.items() if name == "d-tpt"}) == 1


def test_a_sweep_draws_each_set_at_the_weight_the_others_choose(sweep) -> None:
    from dtpt.report.figures import run_figures
    from dtpt.report.tables import family_table

    table = family_table(sweep, "fine-grained", key="t")
    figures = {figure.key: figure for figure in run_figures(sweep, [table], prefix="")}
    assert "D-TPT (λ = 10⁶)" in figures["pets-reliability"].alternative
    assert "10⁴" not in figures["pets-risk"].alternative
    assert "that the other sets of the family choose" in figures["pets-reliability"].caption
