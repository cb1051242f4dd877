"""The paper, one short file per method.

Read in this order:

    algorithm_1.py     Algorithm 1 as printed: CLIP, TPT, D-TPT in one function
    zero_shot.py       section 3: CLIP as it is
    tpt.py             equation 1: entropy minimisation over confident views
    d_tpt.py           equations 3 and 4: dimensional entropy maximisation, the paper's own method
    c_tpt.py, o_tpt.py section 4.3: the methods it is compared with
    dominant.py        section 4.1: dominant dimensions, and prediction without them
    posthoc.py         section 2: temperature scaling and SaLS

    a_tpt.py, r_tpt.py, soc.py    peers that are not in the paper
    mean_views.py, vte.py, zero.py, mta.py    predictions from many views, without a gradient
    tps.py             a shift of the text features instead of a prompt
    tda.py, dmn.py, onzeta.py, bca.py, dota.py    streams: state from image to image
    random_direction.py    a null control

    base.py            what a method is, and what it costs
    table.py           all of them by name
    plugins.py         methods of other packages
    parse.py           names with λ, modifiers and variants:  d-tpt@1e6  tpt+sals  d-tpt-static

A method is TPT plus, at most, one function of the text features. To add one, write that function
and one line in `METHODS` (or register a `Method` in the entry-point group `dtpt.methods`); engine,
command line, sweeps, tables, legends and the page take it from there. docs/own-regulariser.md has
an example. Importing this package loads no torch.
"""

from dtpt.methods.base import (
    PROTOCOLS,
    AutoLambda,
    Look,
    Method,
    ResolvedMethod,
    method_cost,
    method_label,
    recipe_groups,
    regularised,
    shared_recipe,
)
from dtpt.methods.parse import (
    expand_views,
    find_method,
    known_methods,
    lambda_text,
    method_look,
    method_names,
    method_title,
    parse_label,
    resolve_method,
    shift_label,
)
from dtpt.methods.plugins import load_plugins
from dtpt.methods.table import METHODS, MODIFIERS, PAPER_METHODS

__all__ = [
    "METHODS",
    "MODIFIERS",
    "PAPER_METHODS",
    "PROTOCOLS",
    "AutoLambda",
    "Look",
    "Method",
    "ResolvedMethod",
    "expand_views",
    "find_method",
    "known_methods",
    "lambda_text",
    "load_plugins",
    "method_cost",
    "method_label",
    "method_look",
    "method_names",
    "method_title",
    "parse_label",
    "recipe_groups",
    "regularised",
    "resolve_method",
    "shared_recipe",
    "shift_label",
]
