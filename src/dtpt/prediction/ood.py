"""Out-of-distribution warning: whether an image differs from those that a model was trained on.

A model predicts every image, also one it cannot make sense of, and its confidence does not show it:
`pocket` was trained on drawings of emoji and is about as confident on photographs. So a model may
carry a rule: a weighted sum of the image feature and of eight simple statistics of its pixels,
compared with a threshold. The rule of `pocket` lies beside its weights (`ood.json`);
`training/ood.py` fitted and measured it (docs/pocket.md has the error rates).
"""

import json
from functools import lru_cache
from importlib import resources

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from dtpt.clip.model import Clip

# Largest difference of two neighbouring pixels, over the colours, in grey levels.
DIFFERENCE_EDGES = (0, 2, 5, 10, 20, 40, 80, 256)


class Rule(BaseModel):
    """A linear rule about one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str  # of the model that it belongs to
    sentence: str  # the warning
    threshold: float  # scores above it are out of distribution
    feature: tuple[float, ...]  # (D,) weights of the image feature
    statistics: tuple[float, ...]  # (8,) weights of `image_statistics`

    def score(
        self, features: npt.NDArray[np.float64], statistics: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Return the sums (n,) for features (n, D) and statistics (n, 8)."""
        weights = np.array([*self.feature, *self.statistics])
        sums: npt.NDArray[np.float64] = np.concatenate([features, statistics], axis=1) @ weights
        return sums


def ood_warning(model: Clip, image_feature: Tensor, *, image: Image.Image) -> str | None:
    """Warn about an image, with its feature (D,), that differs from what the model was trained on.

    None when the image is in distribution or the model has no rule.

    Example:
        >>> from dtpt.clip.loading import load_model
        >>> pocket = load_model("pocket")
        >>> noise = np.random.default_rng(0).integers(0, 256, (80, 80, 3), dtype=np.uint8)
        >>> feature = pocket.encode_image(pocket.preprocess(noise)[None])[0]
        >>> ood_warning(pocket, feature, image=Image.fromarray(noise))[:40]
        'This may not be a drawing like those of '
    """
    rule = rule_of(model)
    if rule is None:
        return None
    crop = np.asarray(model.preprocessing.cropped(image))
    feature = image_feature.detach().cpu().double().numpy()
    score = rule.score(feature[None], image_statistics(crop)[None])[0]
    return rule.sentence if score > rule.threshold else None


def rule_of(model: Clip) -> Rule | None:
    rule = _embedded_rule()
    return rule if rule is not None and rule.fingerprint == model.fingerprint else None


@lru_cache(maxsize=1)
def _embedded_rule() -> Rule | None:
    file = resources.files("dtpt") / "pocket" / "ood.json"
    return Rule.model_validate(json.loads(file.read_text("utf-8"))) if file.is_file() else None


def image_statistics(crop: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return eight numbers that separate flat drawings from grainy photographs.

    Seven are the fractions of neighbouring pixels whose difference lies between two
    `DIFFERENCE_EDGES` (drawings have almost only the first and the last of them), the eighth is how
    much the pixels along the border differ, in units of 50 grey levels. `crop` (S, S, 3) is the
    model's input before normalisation.

    Example:
        >>> image_statistics(np.zeros((8, 8, 3), np.uint8)).tolist()
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    levels = crop.astype(np.int16)
    across = np.abs(np.diff(levels, axis=1)).max(axis=2)  # (S, S - 1)
    down = np.abs(np.diff(levels, axis=0)).max(axis=2)  # (S - 1, S)
    differences = np.concatenate([across.ravel(), down.ravel()])
    counts, _ = np.histogram(differences, bins=DIFFERENCE_EDGES)
    border = np.concatenate([levels[0], levels[-1], levels[:, 0], levels[:, -1]])  # (4 S, 3)
    spread = border.astype(np.float64).std(axis=0).mean() / 50
    return np.append(counts / len(differences), spread)
