"""Fetch the training artwork by npm package name and rasterise it once.

The same concept ("two-hump camel") exists in ten complete drawing styles. This module downloads the
ten packages, finds out which drawing shows which Unicode emoji, renders each one at 96 px with
transparency, and leaves three files in the work folder:

* ``drawings.npy`` — uint8 (n, 96, 96, 4), straight (not premultiplied) RGBA;
* ``drawings.json`` — concept and style of every drawing, names and group of every concept;
* ``licences.json`` — licence and author of each package, as the package itself states them.

OpenMoji is not among the styles: it is the test set and is never seen in training.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tarfile
import unicodedata
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import emoji
import numpy as np
import numpy.typing as npt
import resvg_py
from PIL import Image

STYLES: tuple[str, ...] = (
    "noto",
    "noto-v1",
    "twemoji",
    "fluent-emoji",
    "fluent-emoji-flat",
    "fluent-emoji-high-contrast",
    "emojione",
    "emojione-v1",
    "emojione-monotone",
    "fxemoji",
)
SIZE = 96
WORK = Path(__file__).parent / "work"
Names = dict[str, tuple[str, tuple[str, ...]]]

_NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
_SKIN = {chr(c) for c in range(0x1F3FB, 0x1F400)}
_GENDER = {"\u2640", "\u2642"}
_UNWANTED_GROUPS = {"Flags", "Component"}
# Lettering rather than drawings, and people that differ by gender or direction only.
_LETTERS = ("_button", "keycap", "input_")
_PEOPLE = (":man_", ":woman_", ":family", ":couple_with_heart_", ":kiss_", "facing_right")


@dataclass(frozen=True)
class Concept:
    """One emoji.

    Attributes:
        char: The emoji itself, in its fully qualified form.
        name: The official English name; identical to the class names of the test sets.
        aliases: Other names of the same thing, without the official one.
        group: Unicode group as the packages state it ("Animals & Nature"), or "".
    """

    char: str
    name: str
    aliases: tuple[str, ...]
    group: str


@dataclass(frozen=True)
class Package:
    """One unpacked `@iconify-json` package."""

    style: str
    icons: Mapping[str, Any]
    chars: Mapping[str, str]
    info: Mapping[str, Any]
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Artwork:
    """All drawings of all styles.

    Attributes:
        pixels: uint8 (n, size, size, 4), straight RGBA.
        concept: int64 (n,), index into ``concepts``.
        style: int64 (n,), index into ``styles``.
        concepts: The concepts, in a fixed order.
        styles: Names of the styles.
    """

    pixels: npt.NDArray[np.uint8]
    concept: npt.NDArray[np.int64]
    style: npt.NDArray[np.int64]
    concepts: tuple[Concept, ...]
    styles: tuple[str, ...]


def fetch(style: str, folder: Path) -> Package:
    """Download one package by name with `npm pack` (once) and read its JSON files."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"iconify-json-{style}-"
    found = [p for p in sorted(folder.glob(f"{name}*.tgz")) if p.name[len(name)].isdigit()]
    if not found:
        subprocess.run(
            ["npm", "pack", "--silent", f"@iconify-json/{style}"], cwd=folder, check=True
        )
        found = [p for p in sorted(folder.glob(f"{name}*.tgz")) if p.name[len(name)].isdigit()]
    with tarfile.open(found[-1]) as archive:
        members = {Path(m.name).name: m for m in archive.getmembers()}

        def read(file: str) -> dict[str, Any]:
            stream = archive.extractfile(members[file]) if file in members else None
            content = json.loads(stream.read()) if stream else {}
            return content if isinstance(content, dict) else {}

        package = read("package.json")
        info = read("info.json") | {"package": package["name"], "version": package["version"]}
        return Package(style, read("icons.json"), read("chars.json"), info, read("metadata.json"))


def slug(text: str) -> str:
    """Reduce a name to lower-case ASCII letters and digits, so that spellings can be compared."""
    plain = unicodedata.normalize("NFKD", text.casefold()).encode("ascii", "ignore").decode()
    return "".join(c for c in plain if c.isalnum())


def _spoken(name: str) -> str:
    return name.strip(":").replace("_", " ")


def wanted(char: str, entry: Mapping[str, Any]) -> bool:
    """Tell whether an emoji is a concept: no skin tones, genders, flags, letters, keycaps."""
    if entry["status"] > 2 or _SKIN & set(char) or _GENDER & set(char) or "\u20e3" in char:
        return False
    if any(0x1F1E6 <= ord(c) <= 0x1F1FF or ord(c) >= 0xE0000 for c in char):
        return False
    if "\u200d" in char and any(word in entry["en"] for word in _PEOPLE):
        return False
    return not any(word in entry["en"] for word in _LETTERS)


def official_names() -> Names:
    """Return ``{char: (official name, aliases)}`` of all wanted emoji of the package `emoji`."""
    names: dict[str, tuple[str, tuple[str, ...]]] = {}
    for char, entry in emoji.EMOJI_DATA.items():
        if wanted(char, entry):
            name = _spoken(entry["en"])
            base = char.replace("\ufe0f", "")
            formal = [unicodedata.name(base, "").lower()] if len(base) == 1 else []
            spoken = [_spoken(a) for a in entry.get("alias", [])]
            aliases = dict.fromkeys(a for a in [*spoken, *formal] if a)
            names[char] = (name, tuple(a for a in aliases if slug(a) != slug(name)))
    return names


def slugs_to_chars(packages: list[Package]) -> dict[str, str]:
    """Map every known spelling of a name to its emoji; official names win over aliases."""
    names = official_names()
    bare = {c.replace("\ufe0f", ""): c for c in names}
    table: dict[str, str] = {}
    for char, (name, _) in names.items():
        table.setdefault(slug(name), char)
    for package in packages:
        for code, icon in package.chars.items():
            text = "".join(chr(int(c, 16)) for c in code.split("-")).replace("\ufe0f", "")
            if text in bare:
                table.setdefault(slug(icon), bare[text])
    for char, (_, aliases) in names.items():
        for alias in aliases:
            table.setdefault(slug(alias), char)
    return table


def _svg(package: Package, name: str) -> str:
    """Return one icon as a complete SVG document; aliases may mirror their parent."""
    icons = package.icons["icons"]
    alias = {} if name in icons else package.icons["aliases"][name]
    icon = icons[name] if name in icons else icons[alias["parent"]]
    width = icon.get("width", package.icons.get("width", 16))
    height = icon.get("height", package.icons.get("height", 16))
    left, top = icon.get("left", 0), icon.get("top", 0)
    body = icon["body"].replace("currentColor", "#000000")
    if alias.get("hFlip"):
        body = f'<g transform="translate({width + 2 * left} 0) scale(-1 1)">{body}</g>'
    box = f'viewBox="{left} {top} {width} {height}"'
    return f"<svg {_NAMESPACES} {box}>{body}</svg>"


def _other_names(style: str) -> dict[str, str]:
    """Icon names that mean something else than the official ones, or are unlike any of them."""
    path = Path(__file__).parent / f"{style}_names.json"
    content: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return content


def drawings(package: Package, table: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return ``{char: (icon name, SVG)}`` for every concept this style draws."""
    found: dict[str, tuple[str, str]] = {}
    aliases = package.icons.get("aliases", {})
    names = [
        *package.icons["icons"],
        *(a for a in aliases if aliases[a]["parent"] in package.icons["icons"]),
    ]
    renamed = _other_names(package.style)
    for name in names:
        char = table.get(slug(renamed.get(name, name)))
        if char is not None and char not in found:
            found[char] = (name, _svg(package, name))
    return found


def render(svg: str, size: int = SIZE) -> npt.NDArray[np.uint8] | None:
    """Rasterise one SVG to straight RGBA, centred in a square; None if nothing can be drawn."""
    try:
        data = bytes(resvg_py.svg_to_bytes(svg_string=svg, width=size, skip_system_fonts=True))
    except ValueError:
        return None
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    if image.size != (size, size):
        image.thumbnail((size, size), Image.Resampling.LANCZOS)
        square = Image.new("RGBA", (size, size))
        square.paste(image, ((size - image.width) // 2, (size - image.height) // 2))
        image = square
    pixels = np.asarray(image)
    return pixels if int((pixels[..., 3] > 127).sum()) > 20 else None


def groups_of(packages: list[Package], table: Mapping[str, str]) -> dict[str, str]:
    """Return ``{char: Unicode group}`` from the packages' own category lists."""
    groups: dict[str, str] = {}
    for package in packages:
        for group, names in package.metadata.get("categories", {}).items():
            for name in names:
                char = table.get(slug(name))
                if char is not None:
                    groups.setdefault(char, group)
    return groups


def _rows(packages: list[Package], table: Mapping[str, str]) -> Iterator[tuple[str, int, str, str]]:
    for index, package in enumerate(packages):
        for char, (name, svg) in sorted(drawings(package, table).items()):
            yield char, index, name, svg


def build(work: Path = WORK, *, workers: int = 2) -> None:
    """Fetch the packages, match names with emoji, rasterise, and write the three files."""
    packages = [fetch(style, work / "npm") for style in STYLES]
    table = slugs_to_chars(packages)
    groups = groups_of(packages, table)
    rows = [r for r in _rows(packages, table) if groups.get(r[0]) not in _UNWANTED_GROUPS]
    with ProcessPoolExecutor(workers) as pool:
        images = list(pool.map(render, (r[3] for r in rows), chunksize=64))
    kept = [(r, i) for r, i in zip(rows, images, strict=True) if i is not None]
    np.save(work / "drawings.npy", np.stack([image for _, image in kept]))
    _write_json(work / "drawings.json", _listing([row for row, _ in kept], groups))
    _write_json(work / "licences.json", [_licence(p) for p in packages])


def _listing(rows: list[tuple[str, int, str, str]], groups: Mapping[str, str]) -> dict[str, Any]:
    """Describe the drawings (emoji, style, icon name, SVG) in the order of their pixels."""
    icons: dict[str, set[str]] = {}
    for char, style, icon, _ in rows:
        own = icons.setdefault(char, set())
        if "-" in icon or STYLES[style] != "fxemoji":  # fxemoji glues its words together
            own.add(icon.replace("-", " "))
    chars, names = sorted(icons), official_names()
    index = {char: number for number, char in enumerate(chars)}
    return {
        "styles": list(STYLES),
        "concepts": [_concept(c, names, group=groups.get(c, ""), icons=icons[c]) for c in chars],
        "concept": [index[row[0]] for row in rows],
        "style": [row[1] for row in rows],
    }


def _concept(char: str, names: Names, *, group: str, icons: set[str]) -> dict[str, Any]:
    name, aliases = names[char]
    known = {slug(name)}
    unique = []
    for alias in [*aliases, *sorted(icons)]:
        if slug(alias) not in known:
            known.add(slug(alias))
            unique.append(alias)
    return {"char": char, "name": name, "aliases": unique, "group": group}


def _licence(package: Package) -> dict[str, Any]:
    info = package.info
    return {
        "package": info["package"],
        "version": info["version"],
        "title": info.get("name", package.style),
        "author": info["author"],
        "licence": info["license"],
    }


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def load(work: Path = WORK, *, without: str = "") -> Artwork:
    """Open what `build` left in the work folder; the pixels are memory-mapped.

    Args:
        work: The work folder.
        without: A style whose drawings are left out, to measure how the others carry over to it.
    """
    listing = json.loads((work / "drawings.json").read_text(encoding="utf-8"))
    concepts = tuple(
        Concept(c["char"], c["name"], tuple(c["aliases"]), c["group"]) for c in listing["concepts"]
    )
    artwork = Artwork(
        pixels=np.load(work / "drawings.npy", mmap_mode="r"),
        concept=np.asarray(listing["concept"], dtype=np.int64),
        style=np.asarray(listing["style"], dtype=np.int64),
        concepts=concepts,
        styles=tuple(listing["styles"]),
    )
    if not without:
        return artwork
    kept = artwork.style != artwork.styles.index(without)
    return replace(
        artwork,
        pixels=artwork.pixels[kept],
        concept=artwork.concept[kept],
        style=artwork.style[kept],
    )


def main() -> None:
    """Fetch and rasterise from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    build(options.work, workers=options.workers)


if __name__ == "__main__":
    main()
