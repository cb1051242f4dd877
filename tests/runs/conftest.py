"""A tiny random CLIP, generated images, and runs on them in well under a second."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))

from tiny_runs import TINY_OPTIONS, draw_images, make_home, tiny_clip

from dtpt.clip.model import Clip
from dtpt.data import Dataset, load_dataset
from dtpt.runs import EvalOptions, Run, run_options


@pytest.fixture(scope="session")
def tiny_model() -> Clip:
    torch.set_num_threads(1)
    return tiny_clip()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the user's cache or is changed by the user's variables."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "DTPT_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DTPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tiny model and 36 images, which other processes can load by name."""
    return make_home(tmp_path_factory.mktemp("home"), per_class=12)


@pytest.fixture
def images(tmp_path: Path) -> Dataset:
    """Three classes with ten small images each."""
    draw_images(tmp_path / "images", per_class=10)
    return load_dataset(f"folder:{tmp_path / 'images'}")


@pytest.fixture
def run_tiny(tiny_model: Clip, images: Dataset, tmp_path: Path) -> Callable[..., Run]:
    """Evaluates on the images; keyword arguments are options."""

    def run(**changes: object) -> Run:
        dataset = changes.pop("dataset_object", images)
        options = EvalOptions(
            **{"output": tmp_path / "run", "dataset": (dataset.name,), **TINY_OPTIONS, **changes}
        )
        return run_options(options, model=tiny_model, datasets=[dataset])

    return run


@pytest.fixture
def noise() -> Callable[[Path], None]:
    def save(path: Path) -> None:
        values = np.random.default_rng(7).integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(values).save(path)

    return save
