"""Mixes crops with their chains and normalises, as the last step of AugMix.

The peers convert and normalise the crop and each chain, then mix. Normalising is affine and the
weights add up to one, so it is done once here, as part of the weights and one offset:

    view = −mean/std + Σ_i (share_i / (255 · std)) · picture_i
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dtpt.clip.preprocess import Preprocess
from dtpt.views.augmix import CHAINS, Mixture
from dtpt.views.planes import Planes, Scratch


def mix(
    crops: Sequence[Planes],
    chained: Sequence[Planes],
    *,
    mixtures: Sequence[Mixture],
    preprocessing: Preprocess,
    scratch: Scratch,
    out: npt.NDArray[np.float32],
) -> None:
    """Write the normalised views (n, 3, S, S) into `out`.

    Args:
        crops: n pictures (3, S, S).
        chained: What the chains made of them, 3n pictures: the chains of one view stand together.
        mixtures: n; their shares and weights.
        preprocessing: For mean and standard deviation.
        scratch: Overwritten.
        out: Where the views go.
    """
    factors, offset = _factors(mixtures, preprocessing)
    floats = scratch.words[0][0].view(np.float32)
    for view, (total, crop) in enumerate(zip(out, crops, strict=True)):
        np.copyto(total, crop)
        np.multiply(total, factors[view, 0], out=total)
        np.add(total, offset, out=total)
        chains = chained[CHAINS * view : CHAINS * (view + 1)]
        for picture, factor in zip(chains, factors[view, 1:], strict=True):
            np.copyto(floats, picture)
            np.multiply(floats, factor, out=floats)
            np.add(total, floats, out=total)


def _factors(
    mixtures: Sequence[Mixture], preprocessing: Preprocess
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the factor of each picture and channel (n, 4, 3, 1, 1), and the offset (3, 1, 1)."""
    mean, spread = np.array(preprocessing.mean), np.array(preprocessing.std)
    shares = [[m.keep, *((1 - m.keep) * weight for weight in m.weights)] for m in mixtures]
    factors = np.array(shares)[:, :, None] / (255 * spread)  # (n, 4, 3)
    offset = (-mean / spread)[:, None, None]
    return factors[..., None, None].astype(np.float32), offset.astype(np.float32)
