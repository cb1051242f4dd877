"""Hugging Face data sets: `hf:OWNER/NAME[:SPLIT]` (needs the extra `hub-datasets`).

Expected are an image column and a label column of the type ClassLabel, whose names are the classes.
Nothing that a repository brings along is executed (the library itself no longer does so).
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dtpt.data.dataset import Dataset, Sample, prompt_name
from dtpt.data.labels import spoken_names
from dtpt.errors import DatasetError, ImageError, os_error
from dtpt.files import read_limited

if TYPE_CHECKING:
    from PIL import Image

SCHEME = "hf:"
_MOST_IMAGE_BYTES = 1 << 28
_LABEL_COLUMNS = ("label", "labels", "cls", "fine_label")


@dataclass(frozen=True)
class HubRef:
    """One row of a hub data set; every process opens the (memory-mapped) set for itself."""

    repository: str
    split: str
    column: str
    index: int

    def read(self) -> bytes:
        """Return the encoded image."""
        row = _open(self.repository, self.split)[self.index][self.column]
        data = row.get("bytes") if isinstance(row, dict) else None
        if not data and isinstance(row, dict) and row.get("path"):
            data = self._read_file(row["path"])
        if not data:
            raise ImageError(f"{self._name()}: the row holds no image.")
        return bytes(data)

    def key(self) -> str:
        """Return the SHA-256 of the encoded image."""
        return hashlib.sha256(self.read()).hexdigest()

    def stamp(self) -> str:
        """Return the fingerprint that the library gives to the whole data set."""
        return str(getattr(_open(self.repository, self.split), "_fingerprint", ""))

    def open(self) -> "Image.Image":
        """Decode the image as RGB."""
        from dtpt.images import open_image

        return open_image(self.read(), name=self._name())

    def _read_file(self, path: str) -> bytes:
        try:
            return read_limited(path, _MOST_IMAGE_BYTES)
        except OSError as error:
            raise ImageError(f"{self._name()}: {os_error(error)}.") from error

    def _name(self) -> str:
        return f"{SCHEME}{self.repository}:{self.split}[{self.index}]"


def load_hub(reference: str, *, name: str = "") -> Dataset:
    """Load `OWNER/NAME` or `OWNER/NAME:SPLIT`; the split is `test` unless given."""
    repository, _, split = reference.partition(":")
    split = split or "test"
    table = _open(repository, split)
    column = _image_column(table.features, reference)
    label_column = next((c for c in _LABEL_COLUMNS if c in table.features), None)
    names = getattr(table.features.get(label_column), "names", None) if label_column else None
    if not names:
        raise DatasetError(f"hf:{reference} has no label column of the type ClassLabel.")
    titles, remarks = spoken_names(names, source=f"{SCHEME}{reference}")
    samples = tuple(
        Sample(str(index), int(label), HubRef(repository, split, column, index))
        for index, label in enumerate(table[label_column])
    )
    return Dataset(
        name=name or f"{SCHEME}{reference}",
        classes=tuple(prompt_name(title) for title in titles),
        samples=samples,
        source=f"hub data set {repository}, split {split}",
        remarks=remarks,
    )


@lru_cache(maxsize=4)
def _open(repository: str, split: str) -> Any:
    """Open a data set with images left encoded."""
    try:
        import datasets
    except ImportError as error:
        raise DatasetError(
            "Hub data sets need the package datasets: pip install dtpt[hub-datasets]"
        ) from error
    try:
        table = datasets.load_dataset(repository, split=split)
    except (OSError, ValueError) as error:
        raise DatasetError(f"hf:{repository}:{split} cannot be loaded: {error}") from error
    for column, feature in table.features.items():
        if type(feature).__name__ == "Image":
            table = table.cast_column(column, datasets.Image(decode=False))
    return table


def _image_column(features: Any, reference: str) -> str:
    for column, feature in features.items():
        if type(feature).__name__ == "Image":
            return str(column)
    raise DatasetError(f"hf:{reference} has no image column.")
