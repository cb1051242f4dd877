"""The paper: each method in one short file, and the table that lists them.

A method is TPT plus, at most, one function of the text features. To add one, write that function
and one line in `METHODS` (or give the entry-point group `dtpt.methods` a `Method`): engine,
command line, sweeps and reports then know it.

>>> from dtpt.methods import METHODS, regularised
>>> sharpen = regularised("sharpen", lambda text: -(text**4).sum(-1).mean(), lambda_=10.0)
>>> METHODS["sharpen"] = sharpen
>>> resolve_method("sharpen").lambda_
10.0
>>> del METHODS["sharpen"]
"""

from dtpt.methods.a_tpt import A_TPT
from dtpt.methods.base import (
    FAMILIES,
    Method,
    Modifier,
    Regulariser,
    ResolvedMethod,
    regularised,
)
from dtpt.methods.c_tpt import C_TPT
from dtpt.methods.d_tpt import D_TPT, D_TPT_MEAN_KL, D_TPT_REVERSE_KL
from dtpt.methods.o_tpt import O_TPT, O_TPT_PRINTED
from dtpt.methods.resolve import METHODS, PAPER_METHODS, known_methods, resolve_method
from dtpt.methods.tpt import TPT
from dtpt.methods.zero_shot import ZERO_SHOT

__all__ = [
    "A_TPT",
    "C_TPT",
    "D_TPT",
    "D_TPT_MEAN_KL",
    "D_TPT_REVERSE_KL",
    "FAMILIES",
    "METHODS",
    "O_TPT",
    "O_TPT_PRINTED",
    "PAPER_METHODS",
    "TPT",
    "ZERO_SHOT",
    "Method",
    "Modifier",
    "Regulariser",
    "ResolvedMethod",
    "known_methods",
    "regularised",
    "resolve_method",
]
