"""D-TPT: dimensional entropy maximisation (equations 3 and 4), the paper's own method.

    L_DEM   = 1/C Σ_c KL( softmax(t̄_c) ‖ U ),   U uniform over the D dimensions
    L_D-TPT = L_TPT + λ · L_DEM,                 λ = 1e5

A single dominant dimension carries the modality gap; pulling the softmax over a feature's
dimensions towards uniform lowers it. λ is large because a softmax over coordinates of size 1/√D is
almost flat: the loss lies between 0 and about 1/D.

Where the paper is open: Algorithm 1 prints neither the normalisation nor the mean over classes that
equation 3 has (we follow the equation). `d-tpt:mean-kl` divides by D, as torch's default reduction
would; `d-tpt:reverse-kl` is KL(U ‖ softmax). No code of the authors is public.

`d-tpt:aligned` is ours. L_DEM depends on the basis of the joint space, which nothing else in CLIP
does: rotate both towers' outputs by one orthogonal matrix and every other method predicts as
before. The aligned form takes one direction, m, the unit mean of the text features before tuning,
as the first axis and drops the others:

    L = 1/C Σ_c KL( softmax( t̄_c·m, 0, …, 0 ) ‖ U )

It is the same in every basis, so λ carries over from model to model.
"""

from dataclasses import replace

from dtpt.methods.base import Look, Tensor, regularised
from dtpt.methods.tpt import at_least_float32


def relative_log_softmax(text: Tensor) -> Tensor:
    """Return log( D · softmax(t) ) per dimension, exactly 0 for a constant vector.

    Written with log1p and expm1 around the largest coordinate: the plain difference of log-softmax
    and log(1/D) loses most digits in float32, because both are near 6 and their difference is 0.01.
    """
    text = at_least_float32(text)
    shifted = text - text.amax(dim=-1, keepdim=True)
    return shifted - shifted.expm1().mean(dim=-1, keepdim=True).log1p()


def dimensional_entropy(text: Tensor) -> Tensor:
    """Return L_DEM: the mean over classes of KL(softmax(t_c) ‖ U) in nats, over all dimensions."""
    log_ratio = relative_log_softmax(text)  # log(p / u), (C, D)
    return (log_ratio.exp() * log_ratio).mean(dim=-1).mean()  # p = exp(log_ratio) / D


def dimensional_entropy_mean(text: Tensor) -> Tensor:
    """Return the same divided by D: torch's default `mean` reduction of a KL divergence."""
    return dimensional_entropy(text) / text.shape[-1]


def reverse_dimensional_entropy(text: Tensor) -> Tensor:
    """Return the mean over classes of KL(U ‖ softmax(t_c))."""
    return -relative_log_softmax(text).mean(dim=-1).mean()


def mean_direction(text: Tensor) -> Tensor:
    """Return the unit vector (D,) along the mean of (C, D) features."""
    mean = at_least_float32(text).mean(dim=0)
    length: Tensor = mean.norm()
    return mean / length.clamp_min(1e-12)


def aligned_dimensional_entropy(text: Tensor, initial: Tensor) -> Tensor:
    """Return L_DEM of each feature's part along the mean initial feature, in D dimensions."""
    text = at_least_float32(text)
    along = text @ mean_direction(initial.detach()).to(text)  # (C,)
    first_axis = text.new_zeros(text.shape[-1])
    first_axis[0] = 1.0
    return dimensional_entropy(along[:, None] * first_axis)  # (C, D)


D_TPT = regularised(
    "d-tpt",
    dimensional_entropy,
    lambda_=1e5,
    summary="dimensional entropy maximisation",
    grid=(1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6),
    look=Look("D-TPT", "#2c7fb8", "P", "-", "\\\\\\\\"),
)
D_TPT_MEAN_KL = replace(
    D_TPT,
    name="d-tpt:mean-kl",
    regulariser=dimensional_entropy_mean,
    summary="D-TPT, KL divided by D",
    look=Look("D-TPT mean-KL", "#2c7fb8", "p", (0, (4, 2)), "\\\\"),
)
D_TPT_REVERSE_KL = replace(
    D_TPT,
    name="d-tpt:reverse-kl",
    regulariser=reverse_dimensional_entropy,
    summary="D-TPT, KL from the uniform distribution",
    look=Look("D-TPT reverse-KL", "#2c7fb8", "8", (0, (1, 2)), "\\\\"),
)
D_TPT_ALIGNED = replace(
    D_TPT,
    name="d-tpt:aligned",
    regulariser=None,
    anchored=aligned_dimensional_entropy,
    summary="D-TPT along the mean text feature, the same in every basis",
    look=Look("D-TPT aligned", "#1d5f8f", "*", (0, (3, 1)), "\\\\"),
)
