"""Our AdamW is torch's."""

import pytest
import torch

from dtpt.tuning.engine import AdamW


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_bit_equal_to_torchs_adamw(dtype):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(4, 64, generator=generator, dtype=dtype) * 0.02
    theirs = start.clone().requires_grad_()
    optimiser = torch.optim.AdamW([theirs], lr=5e-3)  # everything else is torch's default
    ours = AdamW(start, learning_rate=5e-3, weight_decay=0.01)
    for scale in (1.0, 1e-9, 1e6, 0.0, 3.0):
        gradient = torch.randn(4, 64, generator=generator, dtype=dtype) * scale
        theirs.grad = gradient
        optimiser.step()
        assert torch.equal(ours.step(gradient), theirs.detach())


def test_the_start_is_left_alone_and_results_are_not_shared():
    start = torch.ones(1, 3)
    descent = AdamW(start, learning_rate=5e-3, weight_decay=0.01)
    first = descent.step(torch.ones(1, 3))
    kept = first.clone()
    descent.step(torch.ones(1, 3))
    assert torch.equal(start, torch.ones(1, 3))
    assert torch.equal(first, kept)
