import io
import json
import os
import random
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from PIL import Image

from dtpt.data.catalog import CatalogEntry, Layout

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real images and split files, which live beside the repository and never in it."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data is not there")
    return SHARED


@pytest.fixture(scope="session")
def real_tree(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DTD, EuroSAT and Pets as they come: folders named by class, a part of the test images."""
    root = tmp_path_factory.mktemp("real")
    for name in ("dtd", "eurosat", "oxford_pets"):
        with tarfile.open(shared_data / f"{name}.tar") as archive:
            archive.extractall(root, filter="data")
    return root


@pytest.fixture(scope="session")
def jpeg() -> bytes:
    """A small valid image."""
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((12, 8)).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def put(jpeg: bytes) -> Callable[[Path], Path]:
    """Writes the small image to a path, making folders."""

    def write(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg)
        return path

    return write


@pytest.fixture
def plant(put: Callable[[Path], Path]) -> Callable[..., int]:
    """Makes a small tree of one of the paper's sets; file names start with the true label."""

    def make(entry: CatalogEntry, place: Layout, root: Path, *, per_class: int = 1) -> int:
        folder = root / place.folder / place.images
        pairs = [(label, k) for label in range(len(entry.classes)) for k in range(per_class)]
        if entry.folders:
            for label, k in pairs:
                put(folder / entry.folders[label] / f"{label}_{k}.JPEG")
        elif entry.kind == "variants":
            for label, k in pairs:
                put(folder / f"{label}_{k}.jpg")
            lines = [f"{label}_{k} {entry.classes[label]}" for label, k in pairs]
            (root / place.folder / entry.split).write_text("\n".join(lines) + "\n")
        else:
            rows = [[f"sub/{label}_{k}.jpg", label, entry.classes[label]] for label, k in pairs]
            for path, _, _ in rows:
                put(folder / str(path))
            split = {"train": [["sub/absent.jpg", 0, entry.classes[0]]], "val": [], "test": rows}
            (root / place.folder / entry.split).write_text(json.dumps(split))
        return len(pairs)

    return make


@contextmanager
def shuffled_listings(seed: int) -> Iterator[None]:
    """Lets the file system list folders in another order."""
    real, generator = os.scandir, random.Random(seed)

    class Shuffled:
        def __init__(self, path: str = ".") -> None:
            with real(path) as entries:
                self.entries = list(entries)
            generator.shuffle(self.entries)
            self.position = iter(self.entries)

        def __enter__(self) -> "Shuffled":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def __iter__(self) -> "Shuffled":
            return self

        def __next__(self) -> os.DirEntry[str]:
            return next(self.position)

        def close(self) -> None:
            pass

    with patch.object(os, "scandir", Shuffled):
        yield


@pytest.fixture
def shuffled() -> Callable[[int], object]:
    return shuffled_listings
