"""Measure a model on the emoji benchmark: `python -m training.evaluate --model pocket`.

Zero-shot with the template "a photo of a {}." over the classes of each group, in colour and as line
art, for every presentation: accuracy, expected calibration error (20 bins), mean confidence. Also
what a reader of the model card wants to know about the model itself.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dtpt.clip.loading.build import load_model
from dtpt.clip.model import Clip
from dtpt.data.openmoji import BENCHMARK_GROUPS, PRESENTATIONS, load_openmoji
from dtpt.metrics import ece
from training.artwork import WORK

TEMPLATE = "a photo of a {}."
BINS = 20


def draw_images(name: str, presentation: str, *, model: Clip, cache: Path) -> npt.NDArray[np.uint8]:
    """Draw one presentation of a set at the model's size, (n, S, S, 3), once per work folder."""
    size = model.preprocessing.size
    path = cache / f"{name.replace('/', '-')}-{presentation}-{size}.npy"
    if not path.exists():
        samples = load_openmoji(name, presentation=presentation).samples
        drawn = [np.asarray(model.preprocessing.cropped(s.image.open())) for s in samples]
        cache.mkdir(parents=True, exist_ok=True)
        np.save(path, np.stack(drawn))
    loaded: npt.NDArray[np.uint8] = np.load(path)
    return loaded


def image_features(model: Clip, drawn: npt.NDArray[np.uint8]) -> Tensor:
    """(n, S, S, 3) -> (n, D)."""
    pixels = np.stack([model.preprocessing.normalise(image) for image in drawn])
    return torch.cat(
        [model.encode_image(part) for part in torch.split(torch.from_numpy(pixels), 64)]
    )


def zero_shot(model: Clip, images: Tensor, *, texts: Tensor) -> dict[str, float]:
    """Score image k against class k: accuracy, calibration error, mean confidence."""
    probabilities = (model.logit_scale * images @ texts.T).softmax(dim=1).numpy()
    labels = np.arange(len(texts))
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == labels
    return {
        "accuracy": float(correct.mean()),
        "ece": float(ece(confidence, correct, bins=BINS)),
        "confidence": float(confidence.mean()),
    }


def benchmark(
    model: Clip, *, cache: Path, presentations: tuple[str, ...]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return ``{set: {presentation: scores}}`` for all groups and the whole sets, both styles."""
    results: dict[str, dict[str, dict[str, float]]] = {}
    for style in ("openmoji", "openmoji-line"):
        classes = load_openmoji(style, presentation="plain").classes
        texts = dict(
            zip(classes, model.encode_text([TEMPLATE.format(c) for c in classes]), strict=True)
        )
        for kind in presentations:
            features = image_features(model, draw_images(style, kind, model=model, cache=cache))
            images = dict(zip(classes, features, strict=True))
            for group in ("", *BENCHMARK_GROUPS):
                name = f"{style}/{group}" if group else style
                members = load_openmoji(name, presentation="plain").classes
                scores = zero_shot(
                    model,
                    torch.stack([images[c] for c in members]),
                    texts=torch.stack([texts[c] for c in members]),
                )
                results.setdefault(name, {})[kind] = scores
    return results


def anatomy(model: Clip, *, cache: Path) -> dict[str, float]:
    """Measure what kind of CLIP this is.

    Modality gap: distance between the mean image and the mean text feature. Dominant dimensions:
    how many of the D text dimensions hold half of the mean energy, and the largest one's fraction.
    """
    classes = load_openmoji("openmoji", presentation="plain").classes
    texts = model.encode_text([TEMPLATE.format(c) for c in classes])
    images = image_features(model, draw_images("openmoji", "plain", model=model, cache=cache))
    energy = texts.square().mean(dim=0).sort(descending=True).values  # (D,), sums to 1
    return {
        "logit_scale": model.logit_scale,
        "token_embedding_std": float(model.require_text().token_embedding.weight.std()),
        "modality_gap": float((images.mean(0) - texts.mean(0)).norm()),
        "mean_cosine_between_texts": float((texts @ texts.T).mean()),
        "mean_cosine_between_images": float((images @ images.T).mean()),
        "largest_text_dimension_fraction": float(energy[0]),
        "text_dimensions_with_half_of_the_energy": int((energy.cumsum(0) < 0.5).sum()) + 1,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds_for_64_views": _seconds_for_views(model),
    }


def mistakes(model: Clip, *, cache: Path, count: int = 20) -> list[tuple[str, str, float]]:
    """List the most confident mistakes on plain colour images: (is, taken for, how sure)."""
    classes = load_openmoji("openmoji", presentation="plain").classes
    texts = model.encode_text([TEMPLATE.format(c) for c in classes])
    images = image_features(model, draw_images("openmoji", "plain", model=model, cache=cache))
    sure, guess = (model.logit_scale * images @ texts.T).softmax(dim=1).max(dim=1)
    wrong = (guess != torch.arange(len(classes))).nonzero()[:, 0]
    worst = wrong[sure[wrong].argsort(descending=True)][:count].tolist()
    return [(classes[k], classes[int(guess[k])], round(float(sure[k]), 3)) for k in worst]


def _seconds_for_views(model: Clip, repeats: int = 10) -> float:
    """Best time of encoding 64 images, in seconds."""
    size = model.preprocessing.size
    pixels = torch.zeros(64, 3, size, size)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        model.encode_image(pixels)
        times.append(time.perf_counter() - start)
    return min(times)


def group_means(results: dict[str, dict[str, dict[str, float]]], kind: str) -> dict[str, float]:
    """Mean accuracy over the six groups, per style, for one presentation ("all": over all)."""
    means = {}
    for style in ("openmoji", "openmoji-line"):
        values = [
            scores["accuracy"]
            for group in BENCHMARK_GROUPS
            for name, scores in results[f"{style}/{group}"].items()
            if kind in ("all", name)
        ]
        means[style] = float(np.mean(values))
    return means


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Accuracy in percent by set and presentation, with the mean and its ECE, as Markdown."""
    kinds = list(next(iter(results.values())))
    rows = ["| set | " + " | ".join(kinds) + " | mean | ECE |", "|" + " --- |" * (len(kinds) + 3)]
    for name, by_kind in results.items():
        values = [100 * by_kind[k]["accuracy"] for k in kinds]
        error = 100 * float(np.mean([by_kind[k]["ece"] for k in kinds]))
        cells = [f"{v:.1f}" for v in [*values, float(np.mean(values)), error]]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    """Evaluate from the command line."""
    parser = argparse.ArgumentParser(description="Measure a model on the emoji benchmark.")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--cache", type=Path, default=WORK / "images")
    parser.add_argument("--plain", action="store_true", help="plain presentation only")
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(options.model)
    kinds = ("plain",) if options.plain else tuple(PRESENTATIONS)
    results = benchmark(model, cache=options.cache, presentations=kinds)
    report: dict[str, Any] = {
        "sets": results,
        "group_means": {kind: group_means(results, kind) for kind in (*kinds, "all")},
        "model": anatomy(model, cache=options.cache),
        "mistakes": mistakes(model, cache=options.cache),
    }
    print(table(results))
    print(json.dumps(report["group_means"]))
    print(json.dumps(report["model"], indent=1))
    print("\n".join(f"{a}: taken for {b} ({sure:.0%})" for a, b, sure in report["mistakes"]))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
