"""ZERO: the confident views vote.

Each of the ⌊0.3 N⌋ views with the lowest entropy votes for its arg max; the class with most votes
wins, and its fraction of the votes is the confidence, as in the paper. That is a softmax at
temperature zero, averaged: not differentiable, with few distinct values, and overconfident.

`zero:released` is what the released code computes. It divides cosines by the machine precision of
their type, which under automatic mixed precision is that of float16, 2⁻¹⁰: a mean of softmax(1024 ·
cos), ten times sharper than CLIP and not yet votes (two classes whose cosines differ by 0.001 share
a vote 74 : 26). That code also rounds cosines to float16 and does not normalise the sum; here
neither. `zero:published` are votes over views without AugMix, as paper and code have on every set.

A tie is broken as published: walk the remaining views by rising entropy; the first whose arg max is
among the tied classes decides. If none is, the largest logit among the tied classes at the most
confident remaining view decides. (Released code differs in this last case: it indexes with a
bitwise-inverted integer tensor.) Softmaxes tie only where their sums are exactly equal.
"""

from dataclasses import replace

from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.tpt import at_least_float32, entropy, select_confident
from dtpt.methods.zero_shot import class_logits

FRACTION = 0.3
RELEASED_SCALE = 1024.0  # of cosines: one divided by the machine precision of float16
NO_VOTE = 1e-12  # probability of a class without votes, so that its logarithm exists
EDGE = 1e-6  # the winner of a tie is this much above the others


def votes(views: Tensor, text: Tensor, *, logit_scale: float) -> Tensor:
    """Return the log of each class's fraction of the votes (C,), the winner of a tie on top."""
    logits = at_least_float32(class_logits(views, text, logit_scale=logit_scale))  # (N, C)
    ballots = logits[select_confident(logits, FRACTION)].argmax(dim=-1)  # (K,)
    counts = logits.new_zeros(logits.shape[1]).index_add(0, ballots, logits.new_ones(len(ballots)))
    return _elect(logits, counts / len(ballots))


def sharp_mean(views: Tensor, text: Tensor, *, logit_scale: float) -> Tensor:
    """Return the log of the mean (C,) of softmax(1024 · cos), the winner of a tie on top."""
    logits = at_least_float32(class_logits(views, text, logit_scale=logit_scale))  # (N, C)
    kept = at_least_float32(views)[select_confident(logits, FRACTION)]  # (K, D)
    sharp = class_logits(kept, at_least_float32(text), logit_scale=RELEASED_SCALE)
    return _elect(logits, sharp.softmax(dim=-1).mean(dim=0))


def _elect(logits: Tensor, fractions: Tensor) -> Tensor:
    """Return the log of fractions of votes (C,); the views (N, C) decide a tie."""
    result = fractions.clamp_min(NO_VOTE).log()
    tied = (fractions == fractions.max()).nonzero().flatten()
    if len(tied) > 1:
        result[break_tie(logits, tied)] += EDGE
    return result


def break_tie(logits: Tensor, tied: Tensor) -> int:
    """Return the class among `tied` that the views (N, C) beyond the voters prefer."""
    order = entropy(logits).argsort(stable=True)
    # soft votes of one view alone can tie, and then no other is left
    rest = order[len(select_confident(logits, FRACTION)) :] if len(order) > 1 else order
    for favourite in logits[rest].argmax(dim=-1).tolist():
        if favourite in tied.tolist():
            return int(favourite)
    return int(tied[logits[rest[0], tied].argmax()])


ZERO = Method(
    "zero",
    "votes of the 30 % most confident views",
    parameter="nothing",
    read_out=votes,
    look=Look("ZERO", "#b04a3a", "X", (0, (3, 3)), "--"),
)
ZERO_RELEASED = replace(
    ZERO,
    name="zero:released",
    summary="ZERO's released code: softmax(1024 · cos) instead of votes",
    read_out=sharp_mean,
    look=Look("ZERO released", "#d98d80", "X", (0, (3, 1)), "-"),
)
ZERO_PUBLISHED = replace(
    ZERO,
    name="zero:published",
    summary="ZERO on its own views, without AugMix",
    augmix=False,
    look=Look("ZERO published", "#7d2f23", "X", (0, (1, 1)), "-|"),
)
