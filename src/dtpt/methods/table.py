"""The one table of methods and the one of modifiers."""

from dtpt.methods.a_tpt import A_TPT
from dtpt.methods.base import Method, Modifier
from dtpt.methods.c_tpt import C_TPT
from dtpt.methods.d_tpt import D_TPT, D_TPT_ALIGNED, D_TPT_MEAN_KL, D_TPT_REVERSE_KL
from dtpt.methods.dominant import NO_IDD, NO_TDD, NO_TDD_ALIGNED
from dtpt.methods.mean_views import MEAN_VIEWS
from dtpt.methods.mta import MTA
from dtpt.methods.o_tpt import O_TPT, O_TPT_PRINTED
from dtpt.methods.posthoc import SALS
from dtpt.methods.r_tpt import R_TPT
from dtpt.methods.random_direction import RANDOM_TPT, RANDOM_TPT_1
from dtpt.methods.tps import C_TPS, D_TPS, D_TPS_ALIGNED, O_TPS, TPS
from dtpt.methods.tpt import TPT
from dtpt.methods.vte import VTE
from dtpt.methods.zero import ZERO
from dtpt.methods.zero_shot import ZERO_SHOT

METHODS: dict[str, Method] = {
    # the paper
    "zero-shot": ZERO_SHOT,
    "tpt": TPT,
    "c-tpt": C_TPT,
    "o-tpt": O_TPT,
    "d-tpt": D_TPT,
    # other readings of the paper, and the one that no basis changes
    "o-tpt:printed": O_TPT_PRINTED,
    "d-tpt:mean-kl": D_TPT_MEAN_KL,
    "d-tpt:reverse-kl": D_TPT_REVERSE_KL,
    "d-tpt:aligned": D_TPT_ALIGNED,
    # peers that tune the prompt
    "a-tpt": A_TPT,
    "r-tpt": R_TPT,
    # predictions from many views, without a gradient
    "mean-views": MEAN_VIEWS,
    "vte": VTE,
    "zero": ZERO,
    "mta": MTA,
    # a shift of the text features instead of a prompt
    "tps": TPS,
    "c-tps": C_TPS,
    "o-tps": O_TPS,
    "d-tps": D_TPS,
    "d-tps:aligned": D_TPS_ALIGNED,
    # null controls
    "random-tpt": RANDOM_TPT,
    "random-tpt:1": RANDOM_TPT_1,
}
PAPER_METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt")
MODIFIERS: dict[str, Modifier] = {
    "no-tdd": NO_TDD,
    "no-tdd:aligned": NO_TDD_ALIGNED,
    "no-idd": NO_IDD,
    "sals": SALS,
}
