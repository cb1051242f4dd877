"""`dtpt analyze regularisers`: do the published regularisers take different first steps?"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dtpt.analysis.regularisers_options import RegularisersOptions
from dtpt.cli.flags import AsJson, Flags, flags_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from dtpt.analysis.gradients import GradientAgreement, GradientPair
    from dtpt.analysis.regulariser_study import RegulariserStudy

FIRST = ("model", "dataset", "method", "output", "template")
UNUSED = ("views", "steps", "learning_rate", "weight_decay", "rho", "entropy")
PER_TABLE = 4


@flags_of(RegularisersOptions, first=FIRST, leave_out=UNUSED)
class RegularisersFlags(Flags):
    """The options of the comparison."""


def regularisers(*, flags: RegularisersFlags | None = None, as_json: AsJson = False) -> None:
    """Compare the first steps of all regularisers, from the text tower alone.

    For every pair of methods: the cosine of their gradients at the initial context, and the share
    of the context's numbers that both would move the same way (50 % by chance). No picture is
    needed. regularisers.json under --output has every number.

    Args:
        flags: The options.
        as_json: Print the content of regularisers.json.
    """
    options = (flags or RegularisersFlags()).options(RegularisersOptions)
    from dtpt.analysis.regulariser_study import study_regularisers
    from dtpt.cli.study_output import publish

    publish(
        study_regularisers(options),
        options.output,
        name="regularisers",
        tables=regulariser_tables,
        as_json=as_json,
        quiet=options.quiet,
    )


def regulariser_tables(study: "RegulariserStudy") -> "Iterator[RenderableType]":
    """Yield the tables of all pairs, a few pairs side by side."""
    from rich.markup import escape

    from dtpt.cli.study_output import headline

    yield headline(study.model, f", {study.template!r}: cosine, and share of equal signs")
    pairs = [(pair.first, pair.second) for pair in study.lists[0].pairs]
    for start in range(0, len(pairs), PER_TABLE):
        yield _table(study.lists, pairs[start : start + PER_TABLE])
    for name, reason in study.left_out.items():
        yield escape(f"Without {name}: {reason}")
    yield "50 % of the signs agree by chance; a cosine of 1 is the same step up to its strength."


def _table(lists: "tuple[GradientAgreement, ...]", pairs: list[tuple[str, str]]) -> "Table":
    from dtpt.cli.study_output import narrow_table

    rows = []
    for entry in lists:
        found = {(pair.first, pair.second): pair for pair in entry.pairs}
        rows.append([entry.class_list, str(entry.classes), *(_cell(found[p]) for p in pairs)])
    heads = ["class list", "classes", *(f"{first} ~\n{second}" for first, second in pairs)]
    return narrow_table("", heads, rows=rows)


def _cell(pair: "GradientPair") -> str:
    return f"{pair.cosine:+.3f} {100 * pair.same_signs:.0f} %"
