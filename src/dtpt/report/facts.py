"""What was run, in words: facts for page and card, and the sentences that sum a report up."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtpt.data import family_title
from dtpt.report.cells import Block, Gathered
from dtpt.report.columns import method_title
from dtpt.report.names import set_title
from dtpt.report.tables import Row, Table

if TYPE_CHECKING:
    from dtpt.report.content import Content


def block_facts(block: Block) -> list[tuple[str, str]]:
    """Return (name, value) pairs that say what one block evaluates and how."""
    methods = ", ".join(method_title(*pair) for pair in block.labels_of(block.datasets))
    views = dict.fromkeys(str(entry.views.get("count", "?")) for entry in block.datasets.values())
    tuning = block.tuning
    pictures = sum(entry.samples for entry in block.datasets.values())
    return [
        ("Model", block.model),
        ("Weights (sha256)", block.fingerprint[:16]),
        ("Prompt", f"“{block.template}”" + (" and a trained context" if block.context else "")),
        ("Methods", methods),
        ("Seeds", ", ".join(str(seed) for seed in block.seeds)),
        ("Pictures", f"{pictures:,} in {len(block.datasets)} data sets"),
        ("Views per picture", ", ".join(views)),
        (
            "Tuning",
            f"{tuning.get('steps')} AdamW step, learning rate {tuning.get('learning_rate')}, "
            f"ρ = {tuning.get('rho')}, entropy {tuning.get('entropy')}",
        ),
    ]


def dataset_rows(block: Block) -> list[list[str]]:
    """Return a line per data set: title, family, classes, pictures, views, fingerprint."""
    return [
        [
            set_title(name),
            family_title(entry.family),
            f"{entry.classes:,}",
            f"{entry.samples:,}" + (" (limited)" if entry.limit is not None else ""),
            f"{entry.views.get('count', '?')}{' with AugMix' if entry.views.get('augmix') else ''}",
            entry.fingerprint[:12],
        ]
        for name, entry in block.datasets.items()
    ]


def environment_facts(gathered: Gathered) -> list[tuple[str, str]]:
    """Return where, when and how long the runs were computed."""
    sessions = [session for source in gathered.sources for session in source.sessions]
    seconds = sum(session.get("seconds") or 0.0 for session in sessions)
    started = sorted(str(session["started"]) for session in sessions)
    facts = [
        ("Stores", ", ".join(str(source.path) for source in gathered.sources)),
        ("First started", started[0] if started else "not recorded"),
        ("Time", f"{seconds / 60:.1f} minutes in {len(sessions)} sessions"),
    ]
    known: dict[str, dict[str, None]] = {}
    for session in sessions:
        for name, value in session.items():
            if name not in ("started", "seconds", "encoded_images") and value is not None:
                known.setdefault(name, {})[str(value)] = None
    return facts + [(name.replace("_", " "), ", ".join(values)) for name, values in known.items()]


def summary_sentences(content: "Content") -> list[str]:
    """Sum the tables of means up in a sentence each; the first block only."""
    sentences = []
    for table in content.blocks[0].means:
        sentence = _summary(table)
        if sentence:
            sentences.append(sentence)
    return sentences or ["No mean over data sets is complete yet; see what is missing below."]


def _summary(table: Table) -> str:
    """Compare the calibration of the paper's methods in one sentence."""
    finished = [row for row in table.rows if row.entries[0].value is not None]
    where = _where(table)
    own = [row for row in finished if row.method == "d-tpt"]  # one for each λ
    base = next((row for row in finished if row.method == "tpt"), None)
    plain = next((row for row in finished if row.method == "zero-shot"), None)
    if own and base is not None:
        compared = [*([plain] if plain else []), base, *own]
        parts = [f"{row.title} {_percent(row, 1)} at {_percent(row, 0)}" for row in compared]
        return f"{where}, expected calibration error at accuracy: {'; '.join(parts)}."
    if not finished:
        return ""
    best = min(finished, key=lambda row: _value(row, 1))
    count = f"of {len(finished)} methods " if len(finished) > 1 else ""
    verb = "is calibrated best" if len(finished) > 1 else "was run alone"
    return (
        f"{where}, {count}{best.title} {verb}: {_percent(best, 1)} expected calibration error at "
        f"{_percent(best, 0)} accuracy."
    )


def _where(table: Table) -> str:
    kind = table.title.partition(",")[0].lower()
    if len(table.sets) == 1:
        return f"On {set_title(table.sets[0])}"
    return f"Over {len(table.sets)} sets of {kind}"


def _value(row: Row, column: int) -> float:
    return row.entries[column].value or 0.0


def _percent(row: Row, column: int) -> str:
    return f"{100 * _value(row, column):.1f} %"


def listed(names: Sequence[str], *, most: int = 8) -> str:
    """Join names for a sentence, cut after `most`."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
