"""Tangent, normal and binormal parts, and the state of the text features."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.analysis.geometry import (
    geometry_state,
    geometry_sums,
    mean_geometry,
    split_movement,
)


def gram_schmidt(vectors):
    basis = []
    for vector in vectors:
        for known in basis:
            vector = vector - (vector @ known) * known
        basis.append(vector / vector.norm())
    return basis


def geometry(text, tuned, images, *, scale=50.0):
    sums = sum(
        geometry_sums(text, after, image=image, label=0, logit_scale=scale)
        for image, after in zip(images, tuned, strict=True)
    )
    return mean_geometry("tpt", sums, images=len(images))


def movement_of(before, after, image):
    return geometry(before, [after], [image]).every_class


def test_parts_are_coordinates_in_an_explicit_gram_schmidt_frame(directions):
    before, after = directions(6, 9, seed=1), directions(6, 9, seed=2)
    image = directions(9, seed=3)
    tangents, normals, binormals = split_movement(before, after, image)
    for c in range(6):
        moved = after[c] - before[c]
        normal, tangent, binormal = gram_schmidt([before[c], image, moved])
        assert float(normals[c]) == pytest.approx(float(moved @ normal), abs=1e-12)
        assert float(tangents[c]) == pytest.approx(float(moved @ tangent), abs=1e-12)
        assert float(binormals[c]) == pytest.approx(float(moved @ binormal), abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 8), st.integers(2, 12))
def test_squared_parts_add_up_to_the_squared_movement(seed, classes, dimensions):
    generator = torch.Generator().manual_seed(seed)
    draw = torch.randn(2 * classes + 1, dimensions, generator=generator, dtype=torch.float64)
    rows = torch.nn.functional.normalize(draw, dim=1)
    before, after, image = rows[:classes], rows[classes:-1], rows[-1]
    parts = split_movement(before, after, image)
    squares = (parts**2).sum(dim=0)
    length = (after - before).norm(dim=1) ** 2
    torch.testing.assert_close(squares, length, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(parts[1], -length / 2, rtol=1e-9, atol=1e-12)  # a chord
    movement = movement_of(before, after, image)
    fractions = (movement.tangent_fraction, movement.normal_fraction, movement.binormal_fraction)
    assert sum(fractions) == pytest.approx(1.0)
    assert movement.squared_length == pytest.approx(float(length.mean()))


def test_moving_along_the_geodesic_has_no_binormal_part():
    angle = 0.01
    before = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    image = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    toward = torch.tensor([[math.cos(angle), math.sin(angle), 0.0]], dtype=torch.float64)
    away = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0]], dtype=torch.float64)
    aside = torch.tensor([[math.cos(angle), 0.0, math.sin(angle)]], dtype=torch.float64)
    assert movement_of(before, toward, image).tangent > 0
    assert movement_of(before, away, image).tangent < 0
    for after in (toward, away):
        movement = movement_of(before, after, image)
        assert movement.binormal_fraction == pytest.approx(0, abs=1e-20)
        assert movement.tangent_fraction == pytest.approx(1, abs=1e-4)
    sideways = movement_of(before, aside, image)
    assert sideways.tangent_fraction == 0
    assert sideways.binormal_fraction > 0.999


def test_without_a_tangent_direction_everything_sideways_is_binormal():
    before = torch.tensor([[1.0, 0.0, 0.0]])
    after = torch.tensor([[0.6, 0.8, 0.0]])
    parts = split_movement(before, after, before[0])
    assert float(parts[0]) == 0
    assert float(parts[2]) == pytest.approx(0.8)


def test_no_movement_has_no_fractions(directions):
    text = directions(4, 5)
    movement = movement_of(text, text, directions(5, seed=1))
    assert movement.squared_length == 0
    assert movement.tangent_fraction == movement.normal_fraction == movement.binormal_fraction == 0


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
    found = geometry(text, tuned, images)
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
    found = geometry(directions(1, 4), [directions(1, 4, seed=1)], [directions(4, seed=2)])
    assert found.other_classes is None
    assert found.top_class == found.every_class
