"""Draw the folder trees and the tables of `docs/data.md` from the catalogue of data sets.

`python docs/dataset_trees.py` brings the page up to date.
"""

from pathlib import Path
from urllib.parse import urlsplit

from made_parts import brought_up_to_date

from dtpt.data.catalog import NAMED_SETS, CatalogEntry, Layout, catalog_entry
from dtpt.data.download import url_of
from dtpt.data.fetch import origins

PAGE = Path(__file__).with_name("data.md")
_LABELS = {
    "split": "split file",
    "variants": "variant list",
    "wnid-folders": "folders, by WordNet id",
    "number-folders": "folders, by class number",
}


def sets_table() -> str:
    """Return the table of all named sets: name, size, where labels come from, AugMix."""
    rows = ["| name | set | classes | test images | labels from | AugMix |", "|" + " --- |" * 6]
    for name in NAMED_SETS:
        entry = catalog_entry(name)
        rows.append(
            f"| `{name}` | {entry.title} | {len(entry.classes):,} | {entry.images:,} | "
            f"{_LABELS[entry.kind]} | {'yes' if entry.augmix else 'no'} |"
        )
    return "\n".join(rows)


def origins_table() -> str:
    """Return the addresses of all named sets: page, terms, archives of the two sources."""
    rows = ["| name | page and terms | `hub` | `official` |", "|" + " --- |" * 4]
    for name, origin in origins().items():
        hub, official = (
            "<br>".join(f"[{archive.file}]({url_of(archive.address)})" for archive in archives)
            for archives in (origin.hub, origin.official)
        )
        page = f"[{urlsplit(origin.page).hostname}]({origin.page})"
        rows.append(f"| `{name}` | {page}: {origin.terms} | {hub or '—'} | {official or '—'} |")
    return "\n".join(rows)


def trees(name: str) -> str:
    """Return the trees of a set in all layouts, as a block of text.

    Example:
        >>> print(trees("eurosat"))
        ```text
        eurosat/                                  CoOp's layout
            split_zhou_EuroSAT.json
            2750/
                the images that the file lists
        <BLANKLINE>
        eurosat/                                  TPT's layout
            split_zhou_EuroSAT.json
            the images that the file lists
        ```
    """
    entry = catalog_entry(name)
    return "\n".join(["```text", "\n\n".join(tree(entry, place) for place in entry.layouts), "```"])


def tree(entry: CatalogEntry, place: Layout) -> str:
    """Return one layout: folders end in a slash, what lies in them is indented by four."""
    owners = {"coop": "CoOp's layout", "tpt": "TPT's layout", "original": "as the archive unpacks"}
    lines = [f"{place.folder + '/':<54}{owners[place.layout]}"]
    if entry.split:
        lines.append(f"    {entry.split}")
    if place.images:
        lines.append(f"    {place.images}/")
    indent = " " * (8 if place.images else 4)
    if entry.folders:
        lines += [f"{indent}{entry.folders[0]}/", f"{indent}{entry.folders[1]}/", f"{indent}..."]
        lines[-1] += f" {len(entry.folders):,} folders of images"
    else:
        lines.append(f"{indent}the images that the file lists")
    return "\n".join(lines)


def up_to_date() -> str:
    """Return the page with every marked part drawn anew."""

    def drawn(words: str) -> str:
        kind, _, name = words.partition(" ")
        made = {"table": sets_table, "origins": origins_table}
        return made[kind]() if kind in made else trees(name)

    return brought_up_to_date(PAGE.read_text("utf-8"), drawn)


if __name__ == "__main__":
    PAGE.write_text(up_to_date(), "utf-8")
    print(f"{PAGE.name}: {len(NAMED_SETS)} sets")
