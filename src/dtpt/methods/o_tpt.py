"""O-TPT: make the text features orthogonal to each other.

With the Gram matrix G = T Tᵀ of the normalised features,

    L_O-TPT = L_TPT + λ · 1/C Σ_i ( ‖G_i‖₂ - 1 )

Paper and released code differ: the paper prints ‖T Tᵀ - I‖²; the released code reflects each row
of G onto its own axis with C Householder matrices (C×C×C numbers), which equals the row norm above
and needs C×C. The printed form is `o-tpt:printed`. Scripts use λ = 18 (fine-grained) and 2
(shifts).
"""

from dataclasses import replace

from dtpt.methods.base import Look, Tensor, regularised
from dtpt.methods.tpt import at_least_float32


def gram_row_excess(text: Tensor) -> Tensor:
    """Return the mean over classes of ‖G_i‖₂ - 1; zero exactly when all are orthogonal."""
    text = at_least_float32(text)
    gram = text @ text.T  # (C, C)
    row_norms: Tensor = gram.norm(dim=-1)
    return (row_norms - 1.0).mean()


def squared_gram_error(text: Tensor) -> Tensor:
    """Return ‖T Tᵀ - I‖² summed over all entries, as the paper prints it."""
    text = at_least_float32(text)
    gram = text @ text.T  # (C, C)
    return (gram - gram.new_ones(len(gram)).diag()).square().sum()


O_TPT = regularised(
    "o-tpt",
    gram_row_excess,
    lambda_={"fine-grained": 18.0, "natural-shifts": 2.0},
    summary="orthogonal text features",
    grid=(1, 2, 5, 10, 18, 50, 100),
    look=Look("O-TPT", "#a5609b", "D", (0, (1, 1.3)), "xxxx"),
)
O_TPT_PRINTED = replace(
    O_TPT,
    name="o-tpt:printed",
    regulariser=squared_gram_error,
    summary="O-TPT as the paper prints it",
    look=Look("O-TPT printed", "#a5609b", "d", (0, (2, 3)), "xx"),
)
