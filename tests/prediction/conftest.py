"""A classifier whose model is in a folder, as the models of users are."""

import numpy as np
import pytest
from PIL import Image

import dtpt
from dtpt.clip.loading.save import save_model

CLASSES = ["cat", "two_hump camel", "tropical drink"]


@pytest.fixture(scope="session")
def model_folder(make_clip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_model(make_clip(), folder)
    return folder


@pytest.fixture(scope="session")
def model(model_folder):
    return dtpt.load_model(f"local-dir:{model_folder}", device="cpu")


@pytest.fixture(scope="session")
def images():
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (40, 56, 3), dtype=np.uint8)) for _ in range(6)]


@pytest.fixture
def classifier(model):
    return dtpt.Classifier(model, CLASSES, method="d-tpt", views=16)
