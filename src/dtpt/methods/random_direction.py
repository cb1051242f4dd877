"""A null control: a "regulariser" without meaning.

    R(T) = 1/C Σ_c t̄_c · a_c,   a_c fixed random vectors

Its gradient is one fixed random direction. With `random-tpt@auto=0.9` it wins as many signs of
TPT's first step as a published regulariser with `@auto=0.9`. A useful regulariser does better.
"""

from functools import partial

from dtpt.methods.base import Look, Method, Tensor, regularised


def random_projection(text: Tensor, *, seed: int) -> Tensor:
    """Return the mean inner product of (C, D) features with random vectors of their own."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(text.shape, generator=generator, dtype=torch.float64)
    return (text * direction.to(text.dtype).to(text.device)).sum(dim=-1).mean()


def random_tpt(name: str, *, seed: int, marker: str) -> Method:
    """Return the null control with one random direction."""
    return regularised(
        name,
        partial(random_projection, seed=seed),
        lambda_=1.0,
        summary=f"null control: a fixed random direction (seed {seed})",
        look=Look(f"Random {seed}", "#6f7680", marker, (0, (1, 2)), "OO"),
    )


RANDOM_TPT = random_tpt("random-tpt", seed=0, marker="d")
RANDOM_TPT_1 = random_tpt("random-tpt:1", seed=1, marker="1")
