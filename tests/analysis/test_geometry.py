"""Tangent, normal and binormal parts, and the state of the text features."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.analysis.collect import GeometryTotals
from dtpt.analysis.geometry import MeanMovement, geometry_state, mean_movement, split_movement
from dtpt.errors import MetricError
from dtpt.methods import resolve_method


def gram_schmidt(vectors):
    basis = []
    for vector in vectors:
        for known in basis:
            vector = vector - (vector @ known) * known
        basis.append(vector / vector.norm())
    return basis


def test_parts_are_coordinates_in_an_explicit_gram_schmidt_frame(directions):
    before, after = directions(6, 9, seed=1), directions(6, 9, seed=2)
    image = directions(9, seed=3)
    parts = split_movement(before, after, image)
    for c in range(6):
        moved = after[c] - before[c]
        normal, tangent, binormal = gram_schmidt([before[c], image, moved])
        assert float(parts.normal[c]) == pytest.approx(float(moved @ normal), abs=1e-12)
        assert float(parts.tangent[c]) == pytest.approx(float(moved @ tangent), abs=1e-12)
        assert float(parts.binormal[c]) == pytest.approx(float(moved @ binormal), abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 8), st.integers(2, 12))
def test_squared_parts_add_up_to_the_squared_movement(seed, classes, dimensions):
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(2 * classes + 1, dimensions, generator=generator, dtype=torch.float64)
    rows = torch.nn.functional.normalize(draw, dim=1)
    before, after, image = rows[:classes], rows[classes:-1], rows[-1]
    parts = split_movement(before, after, image)
    squares = parts.tangent**2 + parts.normal**2 + parts.binormal**2
    length = (after - before).norm(dim=1) ** 2
    torch.testing.assert_close(squares, length, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(parts.normal, -length / 2, rtol=1e-9, atol=1e-12)  # a chord
    movement = mean_movement(parts)
    shares = movement.tangent_share + movement.normal_share + movement.binormal_share
    assert shares == pytest.approx(1.0)
    assert movement.squared_length == pytest.approx(float(length.mean()))


def test_moving_along_the_geodesic_has_no_binormal_part():
    angle = 0.01
    before = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    image = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    toward = torch.tensor([[math.cos(angle), math.sin(angle), 0.0]], dtype=torch.float64)
    away = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0]], dtype=torch.float64)
    aside = torch.tensor([[math.cos(angle), 0.0, math.sin(angle)]], dtype=torch.float64)
    assert mean_movement(split_movement(before, toward, image)).tangent > 0
    assert mean_movement(split_movement(before, away, image)).tangent < 0
    for after in (toward, away):
        movement = mean_movement(split_movement(before, after, image))
        assert movement.binormal_share == pytest.approx(0, abs=1e-20)
        assert movement.tangent_share == pytest.approx(1, abs=1e-4)
    sideways = mean_movement(split_movement(before, aside, image))
    assert sideways.tangent_share == 0
    assert sideways.binormal_share > 0.999


def test_without_a_tangent_direction_everything_sideways_is_binormal():
    before = torch.tensor([[1.0, 0.0, 0.0]])
    after = torch.tensor([[0.6, 0.8, 0.0]])
    parts = split_movement(before, after, before[0])
    assert float(parts.tangent) == 0
    assert float(parts.binormal) == pytest.approx(0.8)


def test_no_movement_has_no_shares(directions):
    text = directions(4, 5)
    movement = mean_movement(split_movement(text, text, directions(5, seed=1)))
    assert movement.squared_length == 0
    assert movement.tangent_share == movement.normal_share == movement.binormal_share == 0


def test_shapes_that_do_not_fit_are_refused(directions):
    with pytest.raises(MetricError, match="do not fit"):
        split_movement(directions(4, 5), directions(4, 5), directions(6))


def test_state_reads_logits_and_dispersion_as_defined():
    text = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    image = torch.tensor([0.6, 0.8])
    state = geometry_state(text, image, top=1, label=0, logit_scale=100.0)
    assert state.logit_range == pytest.approx(140.0, rel=1e-6)
    assert state.logit_mean == pytest.approx(100 * 0.8 / 3, rel=1e-6)
    assert state.cosine == pytest.approx(0.8 / 3, rel=1e-6)
    assert (state.top_cosine, state.label_cosine) == (pytest.approx(0.8), pytest.approx(0.6))
    outer = math.hypot(1, 1 / 3)
    assert state.atfd == pytest.approx((2 * outer + 2 / 3) / 3)


def test_movement_is_averaged_over_images_and_apart_for_the_predicted_class(directions):
    text, images = directions(5, 8, seed=1), directions(3, 8, seed=2)
    tuned = [directions(5, 8, seed=10 + i) for i in range(3)]
    totals = GeometryTotals(text, 50.0)
    for image, after in zip(images, tuned, strict=True):
        totals.add(after, image, label=0)
    found = totals.result(resolve_method("tpt"))
    lengths = torch.stack([(after - text).norm(dim=1) ** 2 for after in tuned])  # (3, 5)
    tops = (images @ text.T).argmax(dim=1)
    top_lengths = lengths[torch.arange(3), tops]
    assert found.every_class.squared_length == pytest.approx(float(lengths.mean()))
    assert found.top_class.squared_length == pytest.approx(float(top_lengths.mean()))
    others = (float(lengths.sum()) - float(top_lengths.sum())) / 12
    assert found.other_classes.squared_length == pytest.approx(others)
    assert found.before.logit_mean == pytest.approx(50 * float((images @ text.T).mean()))
    assert found.angle == pytest.approx(float((images @ text.T).arccos().mean()))


def test_a_single_class_has_no_other_classes(directions):
    totals = GeometryTotals(directions(1, 4), 1.0)
    totals.add(directions(1, 4, seed=1), directions(4, seed=2), label=0)
    assert totals.result(resolve_method("tpt")).other_classes is None
    assert MeanMovement().mean() is None
