"""Labelled pictures, and how they are divided: by a hash of their ids, the same everywhere."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtpt.calibration.scores import FloatArray, Stored, as_stored, falling
from dtpt.errors import PromiseError

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

TEMPERATURE_SHARE = 0.25


@dataclass(frozen=True)
class Labelled:
    """Answers of one method to pictures whose class is known.

    Attributes:
        log_probabilities: (n, C), to the digits that runs store.
        labels: (n,) true classes.
        predictions: (n,) predicted classes.
        is_ranked: whether the classes of each row are numbered by falling probability.
    """

    log_probabilities: Stored
    labels: IntArray
    predictions: IntArray
    is_ranked: bool = False

    @classmethod
    def of(
        cls, log_probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, predictions: npt.ArrayLike
    ) -> "Labelled":
        """Check and take over answers.

        Raises:
            PromiseError: lengths differ, or a label is no class.

        Example:
            >>> len(Labelled.of(np.log([[0.8, 0.2]]), [1], predictions=[0]))
            1
        """
        rows = as_stored(log_probabilities)
        truth, said = np.asarray(labels), np.asarray(predictions)
        if not (len(rows) == len(truth) == len(said)):
            raise PromiseError(
                f"{len(rows)} rows of probabilities, {len(truth)} labels and {len(said)} "
                "predictions do not belong together."
            )
        for name, values in (("label", truth), ("prediction", said)):
            outside = (values < 0) | (values >= rows.shape[1])
            if outside.any():
                odd = values[outside][0]
                raise PromiseError(f"A {name} is {odd}; expected 0 to {rows.shape[1] - 1}.")
        return cls(rows, truth.astype(np.int64), said.astype(np.int64))

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.labels)

    @property
    def wrong(self) -> BoolArray:
        """(n,) whether the prediction is not the label."""
        return np.not_equal(self.predictions, self.labels)

    def ranked(self) -> "Labelled":
        """Return the same answers with the classes of each row numbered by falling probability.

        No temperature changes that order, and no score depends on the numbering; what is asked many
        times is then sorted once.
        """
        order = falling(self.log_probabilities)  # (n, C)
        place = np.argsort(order, axis=1)
        row = np.arange(len(self))
        return Labelled(
            np.take_along_axis(self.log_probabilities, order, axis=1),
            place[row, self.labels],
            place[row, self.predictions],
            is_ranked=True,
        )

    def take(self, chosen: BoolArray | IntArray) -> "Labelled":
        """Return some of the pictures."""
        return Labelled(
            self.log_probabilities[chosen],
            self.labels[chosen],
            self.predictions[chosen],
            is_ranked=self.is_ranked,
        )


def hash_shares(ids: Iterable[str], purpose: str) -> FloatArray:
    """Return a number from 0 to 1 for each id that looks random and never changes.

    Args:
        ids: of samples.
        purpose: different purposes divide the same ids independently.

    Example:
        >>> hash_shares(["a", "b"], "temperature").round(3).tolist()
        [0.007, 0.194]
    """
    texts = (f"dtpt {purpose}:{name}".encode() for name in ids)
    digests = (hashlib.sha256(text).digest()[:8] for text in texts)
    return np.array([int.from_bytes(digest, "big") / 2**64 for digest in digests], np.float64)


def temperature_part(ids: Iterable[str]) -> BoolArray:
    """Return which samples are for the temperature and the thresholds' order: about a quarter.

    Example:
        >>> temperature_part(["a", "b", "c", "d"]).tolist()
        [True, True, False, False]
    """
    return hash_shares(ids, "temperature") < TEMPERATURE_SHARE
