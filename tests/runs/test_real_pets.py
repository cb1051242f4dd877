"""The real Oxford Pets images through a tiny random model: the plumbing, not the accuracy."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from dtpt.data import load_dataset

ARCHIVE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "oxford_pets.tar"


@pytest.mark.skipif(not ARCHIVE.exists(), reason="the real images are not on this machine")
def test_every_pet_has_its_row_and_accuracy_is_chance(run_tiny, tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    pets = load_dataset(f"folder:{tmp_path / 'oxford_pets'}")
    run = run_tiny(dataset_object=pets, method=("zero-shot", "d-tpt"), views=2, limit=111)
    assert run.is_complete
    assert run.failures() == []
    assert len(pets.classes) == 37
    rows = run.rows(method="d-tpt")
    assert len(rows) == 111
    folders = [name.split("/")[0].replace("_", " ") for name in rows.sample]
    assert folders == [pets.classes[label].replace("_", " ") for label in rows.label]
    chance = 1 / 37
    spread = np.sqrt(chance * (1 - chance) / 111)
    assert abs(rows.correct.mean() - chance) < 5 * spread
