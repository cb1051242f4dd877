"""ZERO: the confident views vote.

Each of the ⌊0.3 N⌋ views with the lowest entropy votes for its arg max; the class with most votes
wins, and its fraction of the votes is the confidence, as published. That is a softmax at
temperature zero, averaged: not differentiable, with few distinct values, and overconfident.

A tie is broken as published: walk the remaining views by rising entropy; the first whose arg max is
among the tied classes decides. If none is, the largest logit among the tied classes at the most
confident remaining view decides. (Released code differs in this last case: it indexes with a
bitwise-inverted integer tensor.)
"""

from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.tpt import at_least_float32, entropy, select_confident
from dtpt.methods.zero_shot import class_logits

FRACTION = 0.3
NO_VOTE = 1e-12  # probability of a class without votes, so that its logarithm exists
EDGE = 1e-6  # the winner of a tie is this much above the others


def votes(views: Tensor, text: Tensor, *, logit_scale: float) -> Tensor:
    """Return the log of each class's fraction of the votes (C,), the winner of a tie on top."""
    logits = at_least_float32(class_logits(views, text, logit_scale=logit_scale))  # (N, C)
    ballots = logits[select_confident(logits, FRACTION)].argmax(dim=-1)  # (K,)
    counts = logits.new_zeros(logits.shape[1]).index_add(0, ballots, logits.new_ones(len(ballots)))
    result = (counts / len(ballots)).clamp_min(NO_VOTE).log()
    tied = (counts == counts.max()).nonzero().flatten()
    if len(tied) > 1:
        result[break_tie(logits, tied)] += EDGE
    return result


def break_tie(logits: Tensor, tied: Tensor) -> int:
    """Return the class among `tied` that the views (N, C) beyond the voters prefer."""
    order = entropy(logits).argsort(stable=True)
    rest = order[
        len(select_confident(logits, FRACTION)) :
    ]  # never empty: one view alone has no tie
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
