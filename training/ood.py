"""Fit and evaluate the rule of the OOD warning: drawings against other images.

    python -m training.ood --photographs FOLDER

In distribution are OpenMoji in all six presentations, in colour and as line art, and the ten styles
that `pocket` was trained on. Out of distribution are photographs (`--photographs`, a folder of tar
files), as they are and pasted onto white (a white border alone does not make a drawing), and noise.
The rule is fitted on one half (every second image; an OpenMoji concept is in the same half in all
its drawings) and measured on the other half, and on images of kinds that it was not fitted on:
other icon sets, single colours, drawn screenshots, grey photographs.
"""

from __future__ import annotations

import argparse
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont

from dtpt.clip.loading.build import load_model
from dtpt.clip.model import Clip
from dtpt.data.openmoji import PRESENTATIONS, load_openmoji
from dtpt.images import open_image
from dtpt.prediction.ood import Rule, image_statistics
from training.artwork import WORK, build, fetch, load, render

OTHER_ICONS = ("streamline-emojis", "flat-color-icons", "fluent-color", "meteocons", "mdi", "logos")
ICONS_PER_SET = 400
FALSE_ALARMS = 0.01  # of the drawings of the first half
PENALTY = 1e-6  # on the squared weights
SENTENCE = (
    "This may not be a drawing like those of emoji that the embedded model pocket was trained on "
    "(2.6 % of those get this warning too); on other images its answer and confidence mean "
    "nothing. Use a general CLIP for photographs."
)


@dataclass(frozen=True)
class Kind:
    """What the rule sees of one kind of image: (n, D) features and (n, 8) statistics."""

    name: str
    features: npt.NDArray[np.float64]
    statistics: npt.NDArray[np.float64]

    def half(self, which: int) -> Kind:
        """Return the even (0) or the odd (1) images."""
        return Kind(self.name, self.features[which::2], self.statistics[which::2])


def look(model: Clip, name: str, *, images: Iterable[Image.Image]) -> Kind:
    """Encode images and compute their statistics."""
    crops = [np.asarray(model.preprocessing.cropped(image)) for image in images]
    pixels = torch.from_numpy(np.stack([model.preprocessing.normalise(crop) for crop in crops]))
    features = torch.cat([model.encode_image(part) for part in torch.split(pixels, 64)])
    print(f"{name}: {len(crops)} images", flush=True)
    return Kind(name, features.double().numpy(), np.stack([image_statistics(c) for c in crops]))


def drawings(model: Clip) -> list[Kind]:
    """Return OpenMoji by style and presentation, and the ten trained styles on white."""
    found = []
    for style in ("openmoji", "openmoji-line"):
        for presentation in PRESENTATIONS:
            samples = load_openmoji(style, presentation=presentation).samples
            images = (sample.image.open() for sample in samples)
            found.append(look(model, f"{style} {presentation}", images=images))
    if not (WORK / "drawings.npy").exists():
        build()
    artwork = load()
    for number, name in enumerate(artwork.styles):
        members = np.flatnonzero(artwork.style == number)[::2]
        images = (on_white(Image.fromarray(np.asarray(artwork.pixels[m]))) for m in members)
        found.append(look(model, f"trained style {name}", images=images))
    return found


def photographs(model: Clip, folder: Path) -> tuple[list[Kind], list[Kind], list[Kind]]:
    """Return the photographs of each tar file: as they are, pasted onto white, in grey."""
    plain, framed, grey = [], [], []
    for path in sorted(folder.glob("*.tar")):
        name = path.stem
        plain.append(look(model, f"photographs {name}", images=in_tar(path)))
        pasted = (on_larger_white(image) for image in in_tar(path))
        framed.append(look(model, f"photographs {name} on white", images=pasted))
        colourless = (image.convert("L").convert("RGB") for image in in_tar(path))
        grey.append(look(model, f"photographs {name} in grey", images=colourless))
    return plain, framed, grey


def sense(model: Clip, path: Path) -> dict[str, float]:
    """Return accuracy and mean confidence, zero-shot, on photographs in folders named by class."""
    with tarfile.open(path) as archive:
        names = sorted(m.name for m in archive.getmembers() if m.name.lower().endswith(".jpg"))
    folders = [Path(name).parent.name for name in names]
    classes = sorted(set(folders))
    texts = model.encode_text([f"a photo of a {name.replace('_', ' ')}." for name in classes])
    pixels = torch.stack([model.preprocess(image) for image in in_tar(path)])
    images = torch.cat([model.encode_image(part) for part in torch.split(pixels, 64)])
    confidence, answer = (model.logit_scale * images @ texts.T).softmax(dim=1).max(dim=1)
    right = [classes[index] == folder for index, folder in zip(answer, folders, strict=True)]
    return {
        "accuracy": float(np.mean(right)),
        "mean_confidence": float(confidence.mean()),
        "chance": 1 / len(classes),
    }


def in_tar(path: Path) -> Iterator[Image.Image]:
    """Yield the images of a tar file in order of their names."""
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None and member.name.lower().endswith((".jpg", ".jpeg", ".png")):
                yield open_image(stream.read(), name=member.name)


def on_white(drawing: Image.Image) -> Image.Image:
    """Return a transparent drawing on white."""
    canvas = Image.new("RGBA", drawing.size, "white")
    return Image.alpha_composite(canvas, drawing.convert("RGBA")).convert("RGB")


def on_larger_white(image: Image.Image, fraction: float = 0.6) -> Image.Image:
    """Paste an image into the middle of a white square of which it takes `fraction` of a side."""
    side = int(max(image.size) / fraction)
    canvas = Image.new("RGB", (side, side), "white")
    canvas.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return canvas


def icons(model: Clip, style: str) -> Kind:
    """Return some icons of a package that was not trained on."""
    package = fetch(style, WORK / "npm")
    names = sorted(package.icons["icons"])
    chosen = np.random.default_rng(0).permutation(len(names))[:ICONS_PER_SET]
    images = []
    for index in chosen:
        icon = package.icons["icons"][names[index]]
        width = icon.get("width", package.icons.get("width", 16))
        height = icon.get("height", package.icons.get("height", 16))
        box = f"{icon.get('left', 0)} {icon.get('top', 0)} {width} {height}"
        space = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        pixels = render(f'<svg {space} viewBox="{box}">{icon["body"]}</svg>', 128)
        if pixels is not None:
            images.append(on_white(Image.fromarray(pixels)))
    return look(model, f"icons {style}", images=images)


def noise(model: Clip) -> list[Kind]:
    """Return noise of three kinds, from grains of many pixels to grains of one, 200 each."""
    random = np.random.default_rng(0)

    def grains() -> tuple[int, int]:
        side = int(random.integers(8, 300))
        return side, side

    def coloured() -> Image.Image:
        return Image.fromarray(random.integers(0, 256, (*grains(), 3), dtype=np.uint8))

    def grey() -> Image.Image:
        levels = np.clip(random.normal(128, random.uniform(10, 80), grains()), 0, 255)
        return Image.fromarray(levels.astype(np.uint8)).convert("RGB")

    def black_and_white() -> Image.Image:
        dots = random.random(grains()) < random.uniform(0.1, 0.9)
        return Image.fromarray(dots.astype(np.uint8) * 255).convert("RGB")

    makers = {"colour": coloured, "grey": grey, "black and white": black_and_white}
    return [
        look(model, f"noise, {name}", images=(make() for _ in range(200)))
        for name, make in makers.items()
    ]


def single_colours(count: int = 200) -> Iterator[Image.Image]:
    """Draw nothing, in one colour."""
    random = np.random.default_rng(0)
    for red, green, blue in random.integers(0, 256, (count, 3)).tolist():
        yield Image.new("RGB", (128, 128), (red, green, blue))


def screenshots(count: int = 200) -> Iterator[Image.Image]:
    """Draw windows with a bar, a side panel, lines of text and boxes, light and dark."""
    random = np.random.default_rng(0)
    words = ("file", "edit", "view", "help", "open", "save", "the", "picture", "was", "moved", "to")

    def colour(low: int, high: int) -> tuple[int, int, int]:
        red, green, blue = random.integers(low, high, 3)
        return int(red), int(green), int(blue)

    for _ in range(count):
        width, height = [(1280, 800), (390, 800), (800, 600)][random.integers(3)]
        dark = random.random() < 0.4
        window = Image.new("RGB", (width, height), colour(15, 45) if dark else colour(235, 256))
        pen, ink = ImageDraw.Draw(window), colour(180, 240) if dark else colour(10, 80)
        font = ImageFont.load_default(size=int(random.integers(12, 22)))
        pen.rectangle((0, 0, width, int(random.integers(30, 70))), fill=colour(30, 220))
        if random.random() < 0.6:
            pen.rectangle((0, 50, int(width * 0.22), height), fill=colour(20, 230))
        for line in range(90, height - 30, int(random.integers(20, 40))):
            text = " ".join(random.choice(words, int(random.integers(2, 14))))
            pen.text((int(width * 0.26), line), text, fill=ink, font=font)
        for _ in range(int(random.integers(0, 5))):
            left, top = int(random.integers(0, width - 150)), int(random.integers(80, height - 60))
            box = (left, top, left + int(random.integers(60, 400)), top + 100)
            pen.rounded_rectangle(box, 8, fill=colour(0, 256))
        yield window


def fit(model: Clip, in_distribution: list[Kind], *, out_of_distribution: list[Kind]) -> Rule:
    """Fit a logistic regression in which every kind has the same weight on its side.

    The threshold is the score that one in a hundred of the in_distribution images exceeds.
    """
    sides = ((0.0, in_distribution), (1.0, out_of_distribution))
    rows = [_inputs(kind) for _, kinds in sides for kind in kinds]
    target = [np.full(len(_inputs(k)), side) for side, kinds in sides for k in kinds]
    weight = [
        np.full(len(kind.features), 1 / len(kinds) / len(kind.features))
        for _, kinds in sides
        for kind in kinds
    ]
    solved = _logistic(np.concatenate(rows), np.concatenate(target), weight=np.concatenate(weight))
    columns = len(in_distribution[0].features[0])
    scores = np.concatenate([_inputs(kind) @ solved for kind in in_distribution])
    return Rule(
        fingerprint=model.fingerprint,
        sentence=SENTENCE,
        threshold=round(float(np.quantile(scores, 1 - FALSE_ALARMS)), 3),
        feature=tuple(round(float(value), 3) for value in solved[:columns]),
        statistics=tuple(round(float(value), 3) for value in solved[columns:]),
    )


def _inputs(kind: Kind) -> npt.NDArray[np.float64]:
    return np.concatenate([kind.features, kind.statistics], axis=1)  # (n, D + 8)


def _logistic(
    rows: npt.NDArray[np.float64],
    target: npt.NDArray[np.float64],
    *,
    weight: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Minimise the weighted cross-entropy plus a small penalty; the offset goes into the threshold.

    The statistics contain fractions that sum to one, so no separate offset is needed.
    """
    inputs, wanted, scale = (torch.from_numpy(part) for part in (rows, target, weight / 2))
    solution = torch.zeros(rows.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([solution], max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        logits = inputs @ solution
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, wanted, reduction="none"
        )
        loss = (scale * losses).sum() + PENALTY * (solution**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    found: npt.NDArray[np.float64] = solution.detach().numpy()
    return found


def measure(rule: Rule, kinds: Iterable[Kind]) -> dict[str, dict[str, int]]:
    """Count the images of each kind and those that get the warning."""
    table = {}
    for kind in kinds:
        flagged = rule.score(kind.features, kind.statistics) > rule.threshold
        table[kind.name] = {"images": len(flagged), "warned": int(flagged.sum())}
    return table


def main() -> None:
    """Fit, measure, write the rule into the package, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photographs", type=Path, required=True, help="folder of tar files")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--output", type=Path, help="where the rule goes; the package by default")
    chosen = parser.parse_args()
    model = load_model(chosen.model)
    in_distribution, (plain, framed, grey) = drawings(model), photographs(model, chosen.photographs)
    out_of_distribution = [*plain, *framed, *noise(model)]
    rule = fit(
        model,
        [k.half(0) for k in in_distribution],
        out_of_distribution=[k.half(0) for k in out_of_distribution],
    )
    other = [icons(model, style) for style in OTHER_ICONS]
    other.append(look(model, "single colours", images=single_colours()))
    other.append(look(model, "screenshots", images=screenshots()))
    measured = [kind.half(1) for kind in (*in_distribution, *out_of_distribution, *grey)]
    print(json.dumps(measure(rule, [*measured, *other]), indent=1))
    for path in sorted(chosen.photographs.glob("*.tar")):
        print(path.stem, json.dumps(sense(model, path)))
    target = chosen.output or Path(str(resources.files("dtpt"))) / "pocket" / "ood.json"
    target.write_text(rule.model_dump_json(indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
