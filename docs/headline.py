"""Write the three numbers of the README and of `docs/index.md`: `python docs/headline.py`.

They are read from the record of the demo and, where it exists, from the record of real CLIP.
"""

from pathlib import Path

from made_parts import brought_up_to_date

from dtpt.report import Variant
from dtpt.report.bars import difference_text
from dtpt.report.clip_record import ClipRecord, load_clip_record
from dtpt.report.facts import FamilyFacts
from dtpt.report.record import load_record
from dtpt.tables import markdown, text_table

PAGES = tuple(Path(__file__).parent / name for name in ("../README.md", "index.md"))
NUMBERS = (
    ("TPT adds to accuracy (points)", "tpt", "zero-shot", "accuracy"),
    ("TPT adds to confidence minus accuracy (points)", "tpt", "zero-shot", "signed_gap"),
    ("averaging views instead of TPT, Brier score", "mean-views", "tpt", "brier"),
)


def recorded(facts: FamilyFacts) -> tuple[str, ...]:
    """Return the numbers of one family of the embedded benchmark."""
    pairs = [
        facts.difference(Variant(first), Variant(second), metric=metric)
        for _, first, second, metric in NUMBERS
    ]
    return tuple(difference_text(pair) if pair else "—" for pair in pairs)


def of_clip(record: ClipRecord) -> tuple[str, ...]:
    return tuple(record.difference_text(first, second, metric=m) for _, first, second, m in NUMBERS)


def headline(_: str = "") -> str:
    """Return the table of the three numbers with their intervals."""
    record, clip = load_record("pocket"), load_clip_record()
    families = record.families if record else ()
    columns = {f"`pocket`, {f.title.lower()}": recorded(f) for f in families}
    if clip is not None:
        columns[f"CLIP {clip.model}"] = of_clip(clip)
    rows = [
        (name, *(texts[index] for texts in columns.values()))
        for index, (name, *_) in enumerate(NUMBERS)
    ]
    heads = ("difference [95 % interval]", *columns)
    text = markdown(text_table("", heads, rows=rows)).split("\n", 2)[2].rstrip("\n")
    return text.replace("\\`", "`").replace("\\[", "[")


def up_to_date(page: Path) -> str:
    return brought_up_to_date(page.read_text("utf-8"), headline)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(up_to_date(page), "utf-8")
