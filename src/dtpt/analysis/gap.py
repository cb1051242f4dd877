"""The modality gap: how far the two clouds of features are apart, and which dimensions carry it."""

import numpy as np
import numpy.typing as npt

from dtpt.analysis.dominant import FloatArray, checked_features
from dtpt.analysis.feature_results import GapShare, ModalityGap
from dtpt.errors import MetricError

SHOWN_SHARES = 10


def modality_gap(
    text: npt.ArrayLike, images: npt.ArrayLike, *, labels: npt.ArrayLike, top: int = SHOWN_SHARES
) -> ModalityGap:
    """Measure the gap between (C, D) text and (n, D) image features.

    Args:
        text: Unit features of the classes.
        images: Unit features of the images.
        labels: (n,) true class of every image.
        top: How many dimensions to name.
    """
    words = checked_features(text)
    pictures = checked_features(images, dimensions=words.shape[1])
    matched = (pictures * words[np.asarray(labels, dtype=np.int64)]).sum(axis=1)
    return gap_of_centroids(
        words.mean(axis=0), pictures.mean(axis=0), matched_cosine=float(matched.mean()), top=top
    )


def gap_of_centroids(
    text: FloatArray, image: FloatArray, *, matched_cosine: float, top: int = SHOWN_SHARES
) -> ModalityGap:
    """Measure the gap from the (D,) centroids of text and image features.

    The mean cosine over all pairs of unit vectors is the inner product of the centroids.
    """
    if text.shape != image.shape or text.ndim != 1:
        raise MetricError(f"Centroids of shapes {text.shape} and {image.shape} do not fit.")
    difference = text - image
    squared = float(difference @ difference)
    shares = difference**2 / squared if squared > 0 else np.zeros_like(difference)
    product = float(text @ image)
    norms = float(np.linalg.norm(text) * np.linalg.norm(image))
    return ModalityGap(
        distance=squared**0.5,
        cosine=product / norms if norms > 0 else 0.0,
        matched_cosine=matched_cosine,
        all_pairs_cosine=product,
        shares=tuple(
            GapShare(int(index), float(difference[index]), float(shares[index]))
            for index in np.argsort(-shares, kind="stable")[:top]
        ),
    )
