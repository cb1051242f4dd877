"""TPS: tune a shift of the text features instead of the prompt.

    t'_c = (t̄_c + s_c) / ‖t̄_c + s_c‖,   one AdamW step on L_TPT from s = 0

s has a number for every class and dimension. Its gradient ends at the text features, so no image
needs a pass through the text tower, and a thousand classes take milliseconds. The learning rate
5e-3 on ImageNet and its shifts is the authors'; they name none for other sets, and 1e-3 there is
TTA-VLM's. With one prompt per class this is the authors' shift per class on the vanilla prompt; the
rows that they lead with average 80 templates and descriptions by a language model.

`c-tps`, `o-tps`, `a-tps` and `d-tps` are ours: the regularisers of C-TPT, O-TPT, A-TPT and D-TPT on
the shifted features, at the same cost; `random-tps` is the null control. Their λ is larger than for
a context: most of the C·D numbers belong to unlikely classes, whose gradient is almost zero and
whose sign any λ wins; only the few likely classes count. The defaults remove most of the
overconfidence that TPS adds for the embedded model (chosen on a third of the images of three emoji
groups in colour). A signed step per dimension depends on the basis of the joint space, with any
regulariser.
"""

from dataclasses import replace

from dtpt.methods.a_tpt import A_TPT
from dtpt.methods.base import PROTOCOLS, Look, Method, Tensor
from dtpt.methods.c_tpt import C_TPT
from dtpt.methods.d_tpt import D_TPT, D_TPT_ALIGNED
from dtpt.methods.o_tpt import O_TPT
from dtpt.methods.random_direction import RANDOM_TPT, RANDOM_TPT_1

LEARNING_RATES = {"fine-grained": 1e-3, "natural-shifts": 5e-3, "imagenet": 5e-3}


def shifted(text: Tensor, shift: Tensor) -> Tensor:
    """Return (C, D) unit features moved by a shift of the same shape, back on the sphere."""
    moved = text + shift
    length: Tensor = moved.norm(dim=-1, keepdim=True)
    return moved / length


def pull_back(text: Tensor, shift: Tensor, *, gradient: Tensor) -> Tensor:
    """Return the gradient (C, D) for the shift from one for the shifted features.

    Moving along the feature itself changes nothing, because the result is normalised.
    """
    moved = text + shift
    length: Tensor = moved.norm(dim=-1, keepdim=True)
    unit = moved / length
    return (gradient - (gradient * unit).sum(dim=-1, keepdim=True) * unit) / length


def on_features(method: Method, name: str, *, lambda_: float, look: Look) -> Method:
    """Return a prompt-tuning method's regulariser as a method that tunes the shift."""
    return replace(
        method,
        name=name,
        summary=f"TPS with the regulariser of {method.look.title}",
        parameter="shift",
        learning_rates=LEARNING_RATES,
        lambdas=dict.fromkeys(PROTOCOLS, lambda_),
        grid=tuple(lambda_ * factor for factor in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)),
        look=look,
    )


TPS = Method(
    "tps",
    "entropy minimisation over a shift of the text features",
    parameter="shift",
    learning_rates=LEARNING_RATES,
    look=Look("TPS", "#e08a3c", "s", (0, (2, 2)), "/"),
)
C_TPS = on_features(
    C_TPT, "c-tps", lambda_=1e3, look=Look("C-TPS", "#5cbf98", "^", (0, (2, 2)), ".")
)
O_TPS = on_features(
    O_TPT, "o-tps", lambda_=100.0, look=Look("O-TPS", "#c48bbb", "D", (0, (2, 2)), "x")
)
D_TPS = on_features(
    D_TPT, "d-tps", lambda_=2e6, look=Look("D-TPS", "#63a6d4", "P", (0, (2, 2)), "\\")
)
D_TPS_ALIGNED = on_features(
    D_TPT_ALIGNED,
    "d-tps:aligned",
    lambda_=2e5,
    look=Look("D-TPS aligned", "#63a6d4", "*", (0, (1, 2)), "\\"),
)
A_TPS = on_features(
    A_TPT, "a-tps", lambda_=300.0, look=Look("A-TPS", "#d3b25c", "v", (0, (2, 2)), "+")
)
RANDOM_TPS, RANDOM_TPS_1 = (
    on_features(
        control,
        control.name.replace("tpt", "tps"),
        lambda_=1.0,
        look=replace(control.look, title=f"{control.look.title}, TPS", colour="#979da6"),
    )
    for control in (RANDOM_TPT, RANDOM_TPT_1)
)
