"""Synthetic features with a planted dominant dimension, and a tiny model with images."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dtpt.data import Dataset, load_dataset


def unit_rows(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


@pytest.fixture
def features() -> Callable[..., np.ndarray]:
    """Random unit vectors (rows, dimensions); `spike` adds a value to one dimension."""

    def make(
        rows: int, dimensions: int, *, spike: tuple[int, float] = (0, 0.0), seed: int = 0
    ) -> np.ndarray:
        values = unit_rows(np.random.default_rng(seed).normal(size=(rows, dimensions)))
        values[:, spike[0]] += spike[1]
        return unit_rows(values)

    return make


@pytest.fixture
def directions() -> Callable[..., torch.Tensor]:
    """Random unit vectors as double tensors."""

    def make(*shape: int, seed: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return torch.nn.functional.normalize(values, dim=-1)

    return make


def draw_images(folder: Path) -> Dataset:
    """Write twelve small images of three classes."""
    generator = np.random.default_rng(3)
    for name in ("bird", "cat", "dog"):
        (folder / name).mkdir(parents=True)
        for index in range(4):
            values = generator.integers(0, 255, (36, 44, 3), dtype=np.uint8)
            Image.fromarray(values).save(folder / name / f"{index}.png")
    return load_dataset(f"folder:{folder}")


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Twelve images that no test changes."""
    return draw_images(tmp_path_factory.mktemp("data") / "images")


@pytest.fixture
def own_images(tmp_path: Path) -> Dataset:
    """The same images for one test to damage."""
    return draw_images(tmp_path / "images")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the user's feature cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTPT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
