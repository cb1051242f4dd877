"""What was run, on which pictures and machines, in words: for the page and the card."""

from dtpt.data import family_title
from dtpt.report.gathering.scored_cells import Condition, Gathered
from dtpt.report.set_titles import set_title

DATASET_HEADS = ("Data set", "Family", "Classes", "Pictures", "Views", "Fingerprint")


def condition_facts(condition: Condition) -> list[tuple[str, str]]:
    """Return (name, value) pairs that say what one condition evaluates and how."""
    entries = condition.datasets.values()
    tuning = condition.tuning
    prompt = f"“{condition.template}”" + (" and a trained context" if condition.context else "")
    views = dict.fromkeys(str(entry.views.get("count", "?")) for entry in entries)
    return [
        ("Model", condition.model),
        ("Weights (sha256)", condition.fingerprint[:16]),
        ("Precision", condition.precision),
        ("Prompt", prompt),
        ("Methods", ", ".join(contender.title for contender in condition.stored_contenders())),
        ("Seeds", ", ".join(str(seed) for seed in condition.seeds)),
        (
            "Pictures",
            f"{condition.size_text(condition.datasets)} in {_counted(len(entries), 'data set')}",
        ),
        ("Views per picture", ", ".join(views)),
        (
            "Tuning",
            f"{_counted(tuning.get('steps'), 'AdamW step')}, "
            f"learning rate {tuning.get('learning_rate')}, "
            f"ρ = {tuning.get('rho')}, entropy {tuning.get('entropy')}",
        ),
    ]


def _counted(number: object, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def dataset_rows(condition: Condition) -> list[list[str]]:
    """Return a line per data set, in the order of `DATASET_HEADS`."""
    return [
        [
            set_title(name),
            family_title(entry.family),
            f"{entry.classes:,}",
            entry.size_text.removesuffix(" pictures"),
            f"{entry.views.get('count', '?')}{' with AugMix' if entry.views.get('augmix') else ''}",
            entry.fingerprint[:12],
        ]
        for name, entry in condition.datasets.items()
    ]


def environment_facts(gathered: Gathered) -> list[tuple[str, str]]:
    """Return where, when and how long the runs were computed."""
    sessions = [session for source in gathered.sources for session in source.sessions]
    seconds = sum(session.get("seconds") or 0.0 for session in sessions)
    started = sorted(str(session["started"]) for session in sessions)
    facts = [
        ("Stores", ", ".join(str(source.path) for source in gathered.sources)),
        ("First started", started[0] if started else "not recorded"),
        ("Time", f"{seconds / 60:.1f} minutes in {_counted(len(sessions), 'session')}"),
    ]
    known: dict[str, dict[str, None]] = {}
    for session in sessions:
        environment = session.get("environment")
        for name, value in (environment if isinstance(environment, dict) else {}).items():
            known.setdefault(name, {})[str(value)] = None
    return facts + [(name.replace("_", " "), ", ".join(values)) for name, values in known.items()]
