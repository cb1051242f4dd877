"""The foreign libraries whose checkpoints are loaded; tests skip when they are missing."""

import pytest
import torch


@pytest.fixture(scope="session")
def transformers(torchvision):
    return pytest.importorskip("transformers")


@pytest.fixture
def pixels():
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(7))
