"""DPE: text features and class means of a cache, both adapted to each image and evolving with it.

Text features W (the model's at first) and a cache with three images for each predicted class, those
of lowest entropy, give a prototype of unit length for each class: t_c = W_c / |W_c|, and v_c from
the mean of the images of class c where there are any. An image enters the cache before it is
answered, by the mean f of its 10 % most confident views. With the logits

    z_c = s f·t_c + α exp(-β(1 - f·v_c))      (the second term where c has images)

one step of AdamW from zero adds a residual to each W_c and to each mean. It lowers, over the K
classes that have images,

    H(softmax z) + a/K Σ_c -log softmax_c'(s v_c·t_c')_c      (InfoNCE: images find their text)

The answer is z of the original view f with the new prototypes t' and v'. Where its entropy is below
0.1 ln C, W moves to the running mean of all such t', with the model's text features as the first.
The residuals are forgotten. α = 6, β = 5, a = 0.5 and the step 6e-4 on every data set: the authors'
values for ImageNet.

`dpe:published` is the release: the threshold is a fraction of log2 C, though the entropy is in
nats, and every data set has values of its own. (On ImageNet-A the release also answers with the
confident views; here with the original one. It has 1/0.01 in place of s in the InfoNCE, which is
CLIP's.)
"""

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.memory import Memory, empty_memory, remember
from dtpt.methods.tpt import entropy, marginal_entropy, select_confident
from dtpt.methods.zero_shot import class_logits

CAPACITY = 3  # images of a class
FRACTION = 0.1  # of the views
SURE = 0.1  # fraction of the largest entropy
EPSILON = 1e-3  # of AdamW

PUBLISHED = {
    "caltech101": (15.0, 5.0, 6e-4, 0.2),
    "dtd": (6.0, 3.0, 6e-4, 0.2),
    "eurosat": (3.0, 8.0, 5e-5, 0.2),
    "fgvc_aircraft": (6.0, 2.0, 6e-4, 0.2),
    "flowers102": (2.5, 5.0, 1e-4, 0.2),
    "food101": (3.0, 1.0, 2e-4, 0.2),
    "imagenet": (6.0, 5.0, 6e-4, 0.5),
    "imagenet_a": (6.0, 5.0, 3e-4, 2.5),
    "imagenet_r": (3.0, 8.0, 6e-4, 0.0),
    "imagenet_sketch": (7.0, 7.45, 6e-4, 0.2),
    "imagenet_v2": (3.0, 8.0, 5e-4, 0.5),
    "oxford_pets": (4.0, 7.0, 5e-5, 0.2),
    "stanford_cars": (3.0, 7.0, 1e-4, 1.5),
    "sun397": (6.0, 3.0, 2e-4, 0.2),
    "ucf101": (9.0, 8.0, 4e-4, 0.2),
}
"""α, β, step and a of the release, by data set."""


class Evolving(NamedTuple):
    text: Tensor  # (C, D) running mean W
    averaged: Tensor  # () text features in that mean
    images: Memory


class _Prototypes(NamedTuple):
    """What the logits are made of."""

    text: Tensor  # (C, D) unit rows
    images: Tensor  # (K, D) unit rows
    classes: Tensor  # (K,) of the images

    def near(self, feature: Tensor, *, alpha: float, beta: float) -> Tensor:
        return alpha * (-beta * (1 - self.images @ feature)).exp()  # (K,)


def text_prototypes(text: Tensor, *, logit_scale: float) -> Evolving:  # noqa: ARG001
    return Evolving(text.clone(), text.new_ones(()), empty_memory(text, capacity=CAPACITY))


def dpe_step(
    state: Evolving,
    views: Tensor,
    *,
    text: Tensor,  # noqa: ARG001
    logit_scale: float,
    alpha: float = 6.0,
    beta: float = 5.0,
    rate: float = 6e-4,
    align: float = 0.5,
    base: float = math.e,  # of the logarithm in the largest entropy
) -> tuple[Tensor, Evolving]:
    logits = class_logits(views, _unit(state.text), logit_scale=logit_scale)  # (N, C)
    chosen = select_confident(logits, FRACTION)
    mean = views[chosen].mean(dim=0)  # (D,)
    images, _ = remember(
        state.images,
        mean,
        label=int(logits[chosen].mean(dim=0).argmax()),
        entropy=marginal_entropy(logits[chosen]),
        capacity=CAPACITY,
    )
    sums, counts = images.class_sums(state.text)
    classes = counts.nonzero()[:, 0]  # (K,)
    means = sums[classes] / counts[classes, None]  # (K, D)
    here = _Prototypes(_unit(state.text), _unit(means), classes)
    of_text, of_images = _gradients(
        here, mean, logit_scale=logit_scale, alpha=alpha, beta=beta, align=align
    )
    moved = _Prototypes(
        _stepped(state.text, of_text, rate=rate), _stepped(means, of_images, rate=rate), classes
    )
    near = moved.near(views[0], alpha=alpha, beta=beta)
    answer = class_logits(views[0], moved.text, logit_scale=logit_scale)
    answer = answer.index_add(0, classes, near)
    if not bool(entropy(answer) < SURE * math.log(len(answer), base)):
        return answer, Evolving(state.text, state.averaged, images)
    count = state.averaged + 1
    return answer, Evolving(state.text + (moved.text - state.text) / count, count, images)


def _gradients(
    here: _Prototypes,
    feature: Tensor,
    *,
    logit_scale: float,
    alpha: float,
    beta: float,
    align: float,
) -> tuple[Tensor, Tensor]:
    """Return the gradients (C, D) and (K, D) of the loss by the unit prototypes."""
    near, own = here.near(feature, alpha=alpha, beta=beta), here.text[here.classes]  # (K, D)
    logits = class_logits(feature, here.text, logit_scale=logit_scale)
    log_p = logits.index_add(0, here.classes, near).log_softmax(dim=-1)
    p = log_p.exp()
    slope = p * ((p * log_p).sum() - log_p)  # (C,) dH/dz
    of_text = logit_scale * slope[:, None] * feature
    of_images = (beta * near * slope[here.classes])[:, None] * feature
    found = (logit_scale * here.images @ own.T).softmax(dim=-1)  # (K, K)
    found.diagonal().sub_(1)
    found *= align * logit_scale / len(found)
    return of_text.index_add(0, here.classes, found.T @ here.images), of_images + found @ own


def _stepped(start: Tensor, gradient: Tensor, *, rate: float) -> Tensor:
    """Return unit rows after AdamW's first step from `start`, whose unit rows have a gradient."""
    lengths, unit = start.norm(dim=-1, keepdim=True), _unit(start)
    along = (gradient * unit).sum(dim=-1, keepdim=True)
    inner = (gradient - along * unit) / lengths  # by the rows before they are normalised
    return _unit(start - rate * inner / (inner.abs() + EPSILON))


def _unit(rows: Tensor) -> Tensor:
    lengths: Tensor = rows.norm(dim=-1, keepdim=True)
    return rows / lengths


DPE = Method(
    "dpe",
    "text and image prototypes, adapted to each image and evolving",
    parameter="nothing",
    initial=text_prototypes,
    step=dpe_step,
    look=Look("DPE", "#7a4b94", "X", "-", "--"),
)
DPE_PUBLISHED = replace(
    DPE,
    name="dpe:published",
    summary="DPE as released: entropy over log2, settings for each data set",
    step=partial(dpe_step, base=2.0),
    step_of={
        name: partial(dpe_step, base=2.0, alpha=alpha, beta=beta, rate=rate, align=align)
        for name, (alpha, beta, rate, align) in PUBLISHED.items()
    },
    look=Look("DPE as released", "#7a4b94", "*", (0, (5, 2)), "--"),
)
