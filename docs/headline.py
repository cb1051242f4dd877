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
    ("tuning adds to accuracy (points)", "tuned", "zero-shot", "accuracy"),
    ("tuning adds to confidence minus accuracy (points)", "tuned", "zero-shot", "signed_gap"),
    ("averaging views instead of tuning, Brier score", "mean-views", "tuned", "brier"),
)
Pair = tuple[str, str, str]


def pairs(tuned: str) -> list[Pair]:
    """Return two methods and a metric for every number."""
    names = {"tuned": tuned}
    return [(names.get(one, one), names.get(two, two), metric) for _, one, two, metric in NUMBERS]


def recorded(facts: FamilyFacts) -> tuple[str, ...]:
    """Return the numbers of one family of the embedded benchmark."""
    found = [
        facts.difference(Variant(first), Variant(second), metric=metric)
        for first, second, metric in pairs("tpt")
    ]
    return tuple(difference_text(pair) if pair else "—" for pair in found)


def of_clip(record: ClipRecord) -> tuple[str, ...]:
    return tuple(
        record.difference_text(first, second, metric=m) for first, second, m in pairs("tps")
    )


def headline(_: str = "") -> str:
    """Return the table of the three numbers with their intervals."""
    record, clip = load_record("pocket"), load_clip_record()
    families = record.families if record else ()
    columns = {f"`pocket`, {f.title.lower()} (TPT)": recorded(f) for f in families}
    if clip is not None:
        columns["CLIP ViT-B/16, ImageNet (TPS)"] = of_clip(clip)
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
