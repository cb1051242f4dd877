"""The machine is described in every result, and its peak bounds every rate."""

from dataclasses import asdict

import pytest

from dtpt.bench.machine import (
    count_gflop,
    describe_machine,
    matmul_peak_gflops,
    torch_threads,
)
from dtpt.errors import BenchmarkError


def test_a_description_has_all_that_decides_about_speed():
    machine = asdict(describe_machine())
    assert set(machine) >= {"processor", "cores", "threads", "load", "torch", "numpy", "pillow"}
    assert all(value not in ("", None) for value in machine.values())


def test_threads_are_set_inside_and_restored_after_an_error():
    import torch

    def fail_inside():
        with torch_threads(2):
            seen.append(torch.get_num_threads())
            raise ZeroDivisionError

    seen, before = [], torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert seen == [2]
    assert torch.get_num_threads() == before
    with pytest.raises(BenchmarkError, match="--threads"), torch_threads(0):
        pass


def test_work_is_counted_in_multiplications_and_additions():
    import torch

    picture, filters = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
    gflop = count_gflop(lambda: torch.conv2d(picture, filters))
    assert gflop == pytest.approx(2 * 36 * 4 * 27 / 1e9)


def test_the_peak_is_a_rate():
    assert matmul_peak_gflops(64, repeat=1) > 0


def test_attention_and_packed_products_are_counted_as_the_products_they_are():
    import torch

    from dtpt.clip.packed import PackedWeights

    q, kv = torch.ones(2, 3, 5, 8, requires_grad=True), torch.ones(2, 3, 7, 8, requires_grad=True)
    scores = 2 * 2 * 3 * 5 * 7 * 8 / 1e9  # of two times three heads, (5, 8) by (8, 7)

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(q, kv, kv)

    assert count_gflop(attend) == pytest.approx(2 * scores)
    assert count_gflop(lambda: attend().sum().backward()) == pytest.approx((2 + 5) * scores)
    x, weight = torch.ones(3, 4, 256), torch.ones(512, 256)
    packed = count_gflop(lambda: PackedWeights().linear(x, weight, bias=torch.zeros(512), name="w"))
    assert packed == pytest.approx(2 * 12 * 256 * 512 / 1e9)
