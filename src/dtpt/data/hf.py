"""Hugging Face data sets: `hf:OWNER/NAME[:SPLIT]` (needs the extra `hub-datasets`).

Expected are an image column and a label column of the type ClassLabel, whose names are the classes.
Nothing that a repository brings along is executed (the library itself no longer does so).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dtpt.data.dataset import Dataset, EncodedRef, Sample, prompt_name
from dtpt.data.manifest import replace_wordnet_ids
from dtpt.errors import DatasetError, ImageError, os_error
from dtpt.files import read_limited

_MOST_IMAGE_BYTES = 1 << 28
_LABEL_COLUMNS = ("label", "labels", "cls", "fine_label")


@dataclass(frozen=True)
class HubRef(EncodedRef):
    """One row of a hub data set; every process opens the (memory-mapped) set for itself."""

    repository: str
    split: str
    column: str
    index: int

    def read(self) -> bytes:
        row = _open(self.repository, self.split)[self.index][self.column]
        fields = row if isinstance(row, dict) else {}
        data = fields.get("bytes")
        if not data and fields.get("path"):
            try:
                data = read_limited(fields["path"], _MOST_IMAGE_BYTES)
            except OSError as error:
                raise ImageError(f"{self.describe()}: {os_error(error)}.") from error
        if not data:
            raise ImageError(f"{self.describe()}: the row holds no image.")
        return bytes(data)

    def stamp(self) -> str:
        # The fingerprint that the library gives to the whole data set.
        return str(getattr(_open(self.repository, self.split), "_fingerprint", ""))

    def describe(self) -> str:
        return f"hf:{self.repository}:{self.split}[{self.index}]"


def load_hub(reference: str, *, name: str) -> Dataset:
    """Load `OWNER/NAME` or `OWNER/NAME:SPLIT`; the split is `test` unless given."""
    repository, _, split = reference.partition(":")
    split = split or "test"
    table = _open(repository, split)
    column = next((c for c, feature in table.features.items() if _is_image(feature)), None)
    if column is None:
        raise DatasetError(f"hf:{reference} has no image column.")
    label_column = next((c for c in _LABEL_COLUMNS if c in table.features), None)
    names = getattr(table.features.get(label_column), "names", None) if label_column else None
    if not names:
        raise DatasetError(f"hf:{reference} has no label column of the type ClassLabel.")
    titles, notes = replace_wordnet_ids(names, source=f"hf:{reference}")
    samples = tuple(
        Sample(str(index), int(label), HubRef(repository, split, column, index))
        for index, label in enumerate(table[label_column])
    )
    classes = tuple(prompt_name(title) for title in titles)
    source = f"hub data set {repository}, split {split}"
    return Dataset(name, classes, samples, source=source, notes=notes)


@lru_cache(maxsize=4)
def _open(repository: str, split: str) -> Any:
    """Open a data set with images left encoded."""
    try:
        import datasets
    except ImportError as error:
        raise DatasetError("hf: needs a package: pip install dtpt[hub-datasets]") from error
    try:
        table = datasets.load_dataset(repository, split=split)
    except (OSError, ValueError) as error:
        raise DatasetError(f"hf:{repository}:{split} cannot be loaded: {error}") from error
    for column, feature in table.features.items():
        if _is_image(feature):
            table = table.cast_column(column, datasets.Image(decode=False))
    return table


def _is_image(feature: object) -> bool:
    return type(feature).__name__ == "Image"
