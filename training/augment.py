"""Make a drawing look as if somebody else had drawn it, somewhere else: batch-wise, on one core.

The model must recognise a concept in a style that it has never seen, on any ground, in crops. So
everything that is accidental is redrawn for every sample: two styles of a concept are blended,
shapes are warped, colours are turned, reduced, dropped or replaced by lines, and grounds are
procedural.
All functions take straight tensors of shape (B, C, H, W) in [0, 1] and an explicit generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

OUTPUT = 64


def uniform(count: int, low: float, high: float, *, generator: Generator) -> Tensor:
    """Draw (count, 1, 1, 1) numbers, to be broadcast over images."""
    return torch.rand(count, 1, 1, 1, generator=generator) * (high - low) + low


def chance(count: int, probability: float, *, generator: Generator) -> Tensor:
    """Draw (count, 1, 1, 1) zeros and ones, to switch an operation on per sample."""
    return (torch.rand(count, 1, 1, 1, generator=generator) < probability).float()


def sometimes(
    x: Tensor, probability: float, *, change: Callable[[Tensor], Tensor], generator: Generator
) -> Tensor:
    """Apply `change` to a random part of the batch; the rest is not computed."""
    chosen = (torch.rand(x.shape[0], generator=generator) < probability).nonzero()[:, 0]
    if len(chosen) == 0:
        return x
    return x.index_copy(0, chosen, change(x[chosen]))


def pick(condition: Tensor, when_one: Tensor, when_zero: Tensor) -> Tensor:
    """Choose per sample between two versions of a batch."""
    return torch.where(condition > 0.5, when_one, when_zero)


def luminance(rgb: Tensor) -> Tensor:
    """(B, 3, H, W) -> (B, 1, H, W)."""
    weights = rgb.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return (rgb * weights).sum(dim=1, keepdim=True)


def smooth(x: Tensor, times: int = 1) -> Tensor:
    """Average over 3x3 neighbourhoods, `times` times: close to a Gaussian blur."""
    for _ in range(times):
        x = F.pad(x, (1, 1, 1, 1), mode="replicate")
        x = x[..., :-2] + x[..., 1:-1] + x[..., 2:]
        x = (x[..., :-2, :] + x[..., 1:-1, :] + x[..., 2:, :]).div_(9)
    return x


def lines(rgb: Tensor, alpha: Tensor, *, generator: Generator) -> Tensor:
    """Return (B, 1, H, W): how much of a pen line is at each pixel.

    Lines run where the drawing, put on white, changes. Darkness and threshold differ per sample;
    some lines are thickened.
    """
    count = rgb.shape[0]
    on_white = torch.cat([rgb * alpha + 1 - alpha, alpha], dim=1)  # (B, 4, H, W)
    on_white = smooth(on_white)
    across = on_white[..., 1:-1, 2:] - on_white[..., 1:-1, :-2]
    down = on_white[..., 2:, 1:-1] - on_white[..., :-2, 1:-1]
    edge = F.pad((across.square() + down.square()).sum(dim=1, keepdim=True).sqrt(), (1, 1, 1, 1))
    threshold = uniform(count, 0.08, 0.35, generator=generator)
    gain = uniform(count, 3.0, 10.0, generator=generator)
    pen = ((edge - threshold) * gain).clamp(0, 1)
    thick = F.max_pool2d(pen, 3, stride=1, padding=1)
    return pick(chance(count, 0.2, generator=generator), thick, pen)


def recolour(rgb: Tensor, *, strength: float, generator: Generator) -> Tensor:
    """Turn hues, change saturation, contrast and brightness, differently for every sample."""
    count = rgb.shape[0]
    angle = torch.randn(count, generator=generator) * strength * 0.8
    angle = torch.where(torch.rand(count, generator=generator) < 0.5, angle, angle * 0.1)
    saturation = 1 + (torch.rand(count, generator=generator) * 2 - 1) * strength
    matrix = _hue_matrix(angle, saturation)  # (B, 3, 3)
    turned = torch.einsum("bij,bjhw->bihw", matrix, rgb)
    contrast = uniform(count, 1 - 0.5 * strength, 1 + 0.5 * strength, generator=generator)
    shift = uniform(count, -0.25 * strength, 0.25 * strength, generator=generator)
    return ((turned - 0.5) * contrast + 0.5 + shift).clamp(0, 1)


def _hue_matrix(angle: Tensor, saturation: Tensor) -> Tensor:
    """Rotation about the grey axis, then scaling of the distance from it: (B,) -> (B, 3, 3)."""
    grey = torch.full((3, 3), 1 / 3)
    cross = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / math.sqrt(3)
    cos, sin = angle.cos().view(-1, 1, 1), angle.sin().view(-1, 1, 1)
    turn = cos * torch.eye(3) + sin * cross + (1 - cos) * grey
    return grey + saturation.view(-1, 1, 1) * (turn - grey)


def restyle(rgba: Tensor, *, generator: Generator) -> Tensor:
    """Change how the drawing is drawn: colours, posterising, outlines, or lines only."""
    rgb, alpha = rgba[:, :3], rgba[:, 3:]

    def turned(x: Tensor) -> Tensor:
        return recolour(x, strength=0.6, generator=generator)

    def posterised(x: Tensor) -> Tensor:
        levels = uniform(len(x), 2.0, 5.0, generator=generator).round()
        return (x * levels).round() / levels

    def penned(x: Tensor) -> Tensor:
        return _with_lines(x, generator=generator)

    rgb = sometimes(rgb, 0.6, change=turned, generator=generator)
    rgb = sometimes(rgb, 0.1, change=posterised, generator=generator)
    rgb = sometimes(rgb, 0.1, change=_grey, generator=generator)
    return sometimes(torch.cat([rgb, alpha], dim=1), 0.45, change=penned, generator=generator)


def _grey(rgb: Tensor) -> Tensor:
    return luminance(rgb).expand_as(rgb)


def _with_lines(rgba: Tensor, *, generator: Generator) -> Tensor:
    """Draw ink where lines run: over the colours, over a white or pale shape, or on nothing."""
    count = rgba.shape[0]
    rgb, alpha = rgba[:, :3], rgba[:, 3:]
    pen = lines(rgb, alpha, generator=generator)
    shade = uniform(count, 0.0, 0.3, generator=generator)
    ink = shade * torch.rand(count, 3, 1, 1, generator=generator)
    kind = torch.rand(count, 1, 1, 1, generator=generator)
    pale = torch.where(kind < 0.5, 0.0, torch.where(kind < 0.6, 0.75, 1.0))
    rgb = (rgb * (1 - pale) + pale) * (1 - pen) + ink * pen
    bare = (kind > 0.72).float()  # a quarter is ink alone, without a shape below
    return torch.cat([pick(bare, ink.expand_as(rgb), rgb), pick(bare, pen, alpha)], dim=1)


def placement(count: int, *, generator: Generator) -> Tensor:
    """Draw affine maps (B, 2, 3) from the frame to the drawing.

    Half of the samples show the whole drawing at about its own size, a quarter show it small
    and off centre, a quarter are crops of it. All are turned, sheared and stretched a little.
    """
    kind = torch.rand(count, generator=generator)
    draw = torch.rand(count, generator=generator)
    size = 0.75 + 0.4 * draw  # width of the drawing, in frames
    size = torch.where(kind < 0.25, 0.42 + 0.33 * draw, size)
    size = torch.where(kind > 0.75, 1.1 + 1.0 * draw.square(), size)
    room = torch.where(size < 1.1, (1 - size).abs() + 0.1, size - 0.8)
    move = (torch.rand(count, 2, generator=generator) * 2 - 1) * room[:, None]
    angle = torch.randn(count, generator=generator) * 0.17
    shear = torch.randn(count, generator=generator) * 0.08
    stretch = torch.exp(torch.randn(count, generator=generator) * 0.1)
    cos, sin = angle.cos() / size, angle.sin() / size
    return torch.stack(
        [
            torch.stack([cos * stretch, -sin + shear / size, -move[:, 0] / size], dim=1),
            torch.stack([sin, cos / stretch, -move[:, 1] / size], dim=1),
        ],
        dim=1,
    )


def place(
    premultiplied: Tensor, flippable: Tensor, *, still: Tensor, generator: Generator
) -> Tensor:
    """Move, crop, mirror, warp: premultiplied (B, 4, S, S) -> straight (B, 4, 64, 64).

    Where `still` (B,) is 1, the drawing stays as it is.
    """
    count = premultiplied.shape[0]
    maps = placement(count, generator=generator)
    maps = torch.where(still.view(-1, 1, 1) > 0.5, torch.eye(2, 3), maps)
    mirrored = flippable * (torch.rand(count, generator=generator) < 0.4).float()
    maps[:, 0] = maps[:, 0] * (1 - 2 * mirrored)[:, None]
    grid = F.affine_grid(maps, [count, 4, OUTPUT, OUTPUT], align_corners=False)
    coarse = torch.randn(count, 2, 4, 4, generator=generator)
    bend = F.interpolate(coarse, size=(OUTPUT, OUTPUT), mode="bicubic", align_corners=True)
    amount = uniform(count, 0.0, 0.07, generator=generator) * chance(
        count, 0.6, generator=generator
    )
    amount = amount * (1 - still).view(-1, 1, 1, 1)
    grid = grid + (bend * amount).permute(0, 2, 3, 1)
    shrunk = (maps[:, 1, 1].abs() > 1.25).nonzero()[:, 0]  # smoothed first, against aliasing
    premultiplied[shrunk] = smooth(premultiplied[shrunk])
    placed = F.grid_sample(premultiplied, grid, mode="bilinear", align_corners=False)
    rgb, alpha = placed[:, :3], placed[:, 3:]
    return torch.cat([(rgb / alpha.clamp(min=1e-3)).clamp(0, 1), alpha], dim=1)


def _pattern(count: int, *, generator: Generator) -> Tensor:
    """Draw (B, 1, 64, 64) values in [0, 1]: ramps, waves, squares or clouds of several scales."""
    axis = torch.linspace(-1, 1, OUTPUT)
    angle = uniform(count, 0, math.pi, generator=generator)
    along = angle.cos() * axis.view(1, 1, 1, -1) + angle.sin() * axis.view(1, 1, -1, 1)
    across = angle.cos() * axis.view(1, 1, -1, 1) - angle.sin() * axis.view(1, 1, 1, -1)
    speed = uniform(count, 4, 24, generator=generator)
    sharp = uniform(count, 0.6, 4, generator=generator)
    phase = uniform(count, 0, 6, generator=generator)
    wave = ((along * speed + phase).sin() * sharp * 0.5 + 0.5).clamp(0, 1)
    squares = ((along * speed + phase).sin() * (across * speed).sin() * sharp + 0.5).clamp(0, 1)
    clouds = sum(
        F.interpolate(
            torch.rand(count, 1, side, side, generator=generator),
            size=(OUTPUT, OUTPUT),
            mode="bilinear",
        )
        * weight
        for side, weight in ((3, 0.45), (9, 0.35), (24, 0.2))
    )
    assert isinstance(clouds, Tensor)
    kind = torch.rand(count, 1, 1, 1, generator=generator)
    ramp = (along * 0.5 + 0.5).clamp(0, 1)
    result = torch.where(kind < 0.3, ramp, torch.where(kind < 0.5, wave, squares))
    return torch.where(kind > 0.7, clouds, result)


def grounds(count: int, *, generator: Generator) -> Tensor:
    """Draw backgrounds (B, 3, 64, 64): half white, the rest one or two colours, mostly light."""

    def coloured(x: Tensor) -> Tensor:
        count = x.shape[0]
        colours = torch.rand(2, count, 3, 1, 1, generator=generator)
        light = torch.rand(1, count, 1, 1, 1, generator=generator) < 0.75
        colours = torch.where(light, 0.45 + 0.55 * colours, colours)
        mix = sometimes(x[:, :1] * 0, 0.7, change=patterned, generator=generator)
        return colours[0] * (1 - mix) + colours[1] * mix

    def patterned(x: Tensor) -> Tensor:
        return _pattern(x.shape[0], generator=generator)

    white = torch.ones(count, 3, OUTPUT, OUTPUT)
    return sometimes(white, 0.5, change=coloured, generator=generator)


def degrade(rgb: Tensor, *, generator: Generator) -> Tensor:
    """Blur, fade, invert, cover a patch, add noise: what happens to images after drawing."""

    def noisy(x: Tensor) -> Tensor:
        amount = uniform(len(x), 0.0, 0.12, generator=generator)
        return x + torch.randn(x.shape, generator=generator) * amount

    def faded(x: Tensor) -> Tensor:
        return _fade(x, generator=generator)

    def covered(x: Tensor) -> Tensor:
        return _cover(x, generator=generator)

    rgb = sometimes(rgb, 0.18, change=smooth, generator=generator)
    rgb = sometimes(rgb, 0.12, change=lambda x: smooth(x, 2), generator=generator)
    rgb = sometimes(rgb, 0.2, change=faded, generator=generator)
    rgb = sometimes(rgb, 0.03, change=lambda x: 1 - x, generator=generator)
    rgb = sometimes(rgb, 0.07, change=_grey, generator=generator)
    rgb = sometimes(rgb, 0.15, change=covered, generator=generator)
    return sometimes(rgb, 0.3, change=noisy, generator=generator).clamp(0, 1)


def _fade(rgb: Tensor, *, generator: Generator) -> Tensor:
    """Take contrast and saturation from images, towards a light paper tone."""
    paper = 0.7 + 0.3 * torch.rand(len(rgb), 3, 1, 1, generator=generator)
    left = uniform(len(rgb), 0.25, 0.8, generator=generator)
    muted = 0.5 * rgb + 0.5 * luminance(rgb)
    return paper + left * (muted - 1)


def _cover(rgb: Tensor, *, generator: Generator) -> Tensor:
    """Cover a rectangle with one colour."""
    count, _, height, width = rgb.shape
    centre = torch.rand(count, 2, 1, 1, generator=generator)
    half = torch.rand(count, 2, 1, 1, generator=generator) * 0.15 + 0.05
    rows = (torch.linspace(0, 1, height).view(1, -1, 1) - centre[:, 0]).abs() < half[:, 0]
    columns = (torch.linspace(0, 1, width).view(1, 1, -1) - centre[:, 1]).abs() < half[:, 1]
    patch = (rows & columns).unsqueeze(1).float()
    return rgb * (1 - patch) + patch * torch.rand(count, 3, 1, 1, generator=generator)


def augment(
    first: Tensor,
    second: Tensor,
    *,
    flippable: Tensor,
    still: float,
    hard: float,
    generator: Generator,
) -> Tensor:
    """Turn drawings into training images.

    Args:
        first: uint8 (B, S, S, 4), straight RGBA.
        second: The same concepts in other styles; blended in for some samples.
        flippable: float (B,), 1 where mirroring keeps the meaning.
        still: Fraction of samples that are only put on white.
        hard: Fraction of samples that get everything; what is left is placed and warped, on white.
        generator: The only source of randomness.

    Returns:
        uint8 (B, 3, 64, 64).
    """
    count = first.shape[0]
    fraction = uniform(count, 0.0, 0.6, generator=generator) * chance(
        count, 0.25, generator=generator
    )
    blended = _premultiplied(first) * (1 - fraction)
    mixed = fraction.flatten().nonzero()[:, 0]
    blended[mixed] += _premultiplied(second[mixed]) * fraction[mixed]
    kind = torch.rand(count, generator=generator)
    placed = place(blended, flippable, still=(kind < still).float(), generator=generator)
    image = placed[:, :3] * placed[:, 3:] + 1 - placed[:, 3:]
    chosen = (kind >= 1 - hard).nonzero()[:, 0]
    rgba = restyle(placed[chosen], generator=generator)
    rgb, alpha = rgba[:, :3], rgba[:, 3:]
    redrawn = rgb * alpha + grounds(len(chosen), generator=generator) * (1 - alpha)
    image[chosen] = degrade(redrawn, generator=generator)
    return image.mul(255).round_().to(torch.uint8)


def _premultiplied(drawings: Tensor) -> Tensor:
    """uint8 (B, S, S, 4) -> float (B, 4, S, S) with colours weighted by opacity."""
    rgba = drawings.permute(0, 3, 1, 2).contiguous().float().div_(255)
    rgba[:, :3] *= rgba[:, 3:]
    return rgba
