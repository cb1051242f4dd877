"""What readers must know before they believe a table: missing rows, failures, mixtures."""

from collections.abc import Iterable, Sequence

from dtpt.report.gathering.scored_cells import Condition, Source
from dtpt.report.set_titles import set_title
from dtpt.runs.sessions import session_remarks

SHOWN = 20


def remarks(sources: Sequence[Source], conditions: Sequence[Condition]) -> Iterable[str]:
    """Say what is missing, failed, partial or mixed, in sentences."""
    for condition in conditions:
        yield from _missing_remarks(condition)
    yield from _failure_remarks(sources)
    yield from _partial_remarks(conditions)
    yield from _source_remarks(sources)
    sessions = [session for source in sources for session in source.sessions]
    yield from session_remarks(sessions)
    versions = dict.fromkeys(source.spec.code_version for source in sources)
    if len(versions) > 1:
        yield f"The runs were computed by different versions of dtpt: {', '.join(versions)}."
    yield from _sharing_remarks(conditions)
    yield from _title_remarks(conditions)


def _missing_remarks(condition: Condition) -> Iterable[str]:
    unfinished = [cell for cell in condition.cells.values() if not cell.is_finished]
    for cell in unfinished[:SHOWN]:
        yield (
            f"{condition.model}, {cell.dataset}, {cell.contender.label}, seed {cell.seed}: "
            f"{cell.effective:,} of {cell.expected:,} pictures are evaluated; it enters no mean."
        )
    if len(unfinished) > SHOWN:
        yield f"{len(unfinished) - SHOWN} further cells are unfinished and enter no mean."


def _failure_remarks(sources: Sequence[Source]) -> Iterable[str]:
    seen = sorted({failure for source in sources for failure in source.failures})
    for name in dict.fromkeys(dataset for dataset, _, _ in seen):
        failed = [failure for failure in seen if failure[0] == name]
        yield (
            f"{name}: {len(failed)} pictures could not be read and are in no metric, first "
            f"{failed[0][1]} ({failed[0][2]})."
        )


def _partial_remarks(conditions: Sequence[Condition]) -> Iterable[str]:
    """Say which sets were not evaluated as a whole (`--limit`, `--partial`)."""
    entries = {n: entry for c in conditions for n, entry in c.datasets.items() if entry.is_partial}
    if entries:
        sizes = ", ".join(f"{set_title(n)} {entry.size_text}" for n, entry in entries.items())
        yield f"Only a part of these sets was evaluated: {sizes}."


def _source_remarks(sources: Sequence[Source]) -> Iterable[str]:
    """Repeat what the runs say about their data sets and models, each once."""
    mixtures = {text for source in sources for text in session_remarks(source.sessions)}
    found = dict.fromkeys(remark for source in sources for remark in source.remarks)
    for name, text in found:
        if text not in mixtures:  # said once for all stores together
            yield f"{name}: {text}" if name else text


def _sharing_remarks(conditions: Sequence[Condition]) -> Iterable[str]:
    for name in dict.fromkeys(condition.model for condition in conditions):
        prints = {condition.fingerprint for condition in conditions if condition.model == name}
        if len(prints) > 1:
            short = ", ".join(sorted(text[:12] for text in prints))
            yield f"{name} stands for {len(prints)} different models ({short}): tables are apart."


def _title_remarks(conditions: Sequence[Condition]) -> Iterable[str]:
    """Say which data sets bear one title, such as the last folder of their paths."""
    titles: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for condition in conditions for name in condition.datasets):
        titles.setdefault(set_title(name), []).append(name)
    for title, names in titles.items():
        if len(names) > 1:
            yield f"{title!r} stands for {len(names)} data sets, in this order: {', '.join(names)}."
