"""D-TPT: dimensional entropy maximisation (equations 3 and 4), the paper's own method.

    L_DEM   = 1/C Σ_c KL( softmax(t̄_c) ‖ U ),   U uniform over the D dimensions
    L_D-TPT = L_TPT + λ · L_DEM,                 λ = 1e5

A single dominant dimension carries the modality gap; pulling the softmax over a feature's
dimensions towards uniform takes weight from it. λ is large because a softmax over coordinates of
size 1/√D is almost flat: the loss lives between 0 and about 1/D.

Where the paper is open: Algorithm 1 prints neither the normalisation nor the mean over classes that
equation 3 has (we follow the equation). `d-tpt:mean-kl` divides by D, as torch's default reduction
would; `d-tpt:reverse-kl` is KL(U ‖ softmax). No code of the authors is public.
"""

import torch
from torch import Tensor

from dtpt.methods.base import regularised
from dtpt.methods.tpt import at_least_float32

LAMBDA = 1e5


def relative_log_softmax(text: Tensor) -> Tensor:
    """log( D · softmax(t) ) per dimension, exactly 0 for a constant vector.

    Written with log1p and expm1 around the largest coordinate: the plain difference of log-softmax
    and log(1/D) loses most digits in float32, because both are near 6 and their difference is 0.01.
    """
    text = at_least_float32(text)
    shifted = text - text.amax(dim=-1, keepdim=True)
    return shifted - torch.log1p(torch.expm1(shifted).mean(dim=-1, keepdim=True))


def dimensional_entropy(text: Tensor) -> Tensor:
    """L_DEM: mean over classes of KL(softmax(t_c) ‖ U) in nats, summed over dimensions."""
    log_ratio = relative_log_softmax(text)  # log(p / u), (C, D)
    return (log_ratio.exp() * log_ratio).mean(dim=-1).mean()  # p = exp(log_ratio) / D


def dimensional_entropy_mean(text: Tensor) -> Tensor:
    """The same divided by D: torch's default `mean` reduction of a KL divergence."""
    return dimensional_entropy(text) / text.shape[-1]


def reverse_dimensional_entropy(text: Tensor) -> Tensor:
    """Mean over classes of KL(U ‖ softmax(t_c))."""
    return -relative_log_softmax(text).mean(dim=-1).mean()


D_TPT = regularised(
    "d-tpt", dimensional_entropy, lambda_=LAMBDA, summary="dimensional entropy maximisation"
)
D_TPT_MEAN_KL = regularised(
    "d-tpt:mean-kl", dimensional_entropy_mean, lambda_=LAMBDA, summary="D-TPT, KL divided by D"
)
D_TPT_REVERSE_KL = regularised(
    "d-tpt:reverse-kl",
    reverse_dimensional_entropy,
    lambda_=LAMBDA,
    summary="D-TPT, KL from the uniform distribution",
)
