"""The one table of methods and the one of modifiers."""

from dtpt.methods.a_tpt import A_TPT, A_TPT_RELEASED
from dtpt.methods.anytime import MEAN_VIEWS_ANYTIME
from dtpt.methods.base import Method, Modifier
from dtpt.methods.bca import BCA
from dtpt.methods.c_tpt import C_TPT
from dtpt.methods.d_tpt import D_TPT, D_TPT_ALIGNED, D_TPT_MEAN_KL, D_TPT_REVERSE_KL
from dtpt.methods.dmn import DMN, DMN_VIEWS, DMN_WEAK
from dtpt.methods.dominant import NO_IDD, NO_TDD, NO_TDD_ALIGNED
from dtpt.methods.dota import DOTA
from dtpt.methods.dpe import DPE, DPE_PUBLISHED
from dtpt.methods.mean_views import MEAN_VIEWS
from dtpt.methods.mta import MTA, MTA_PUBLISHED
from dtpt.methods.o_tpt import O_TPT, O_TPT_PRINTED
from dtpt.methods.onzeta import ONZETA
from dtpt.methods.posthoc import SALS
from dtpt.methods.r_tpt import R_TPT
from dtpt.methods.random_direction import RANDOM_TPT, RANDOM_TPT_1
from dtpt.methods.soc import SOC
from dtpt.methods.stream_temperature import STREAM_TEMPERATURE
from dtpt.methods.tda import BOOSTADAPTER, TDA, TDA_PUBLISHED, TDA_VIEWS
from dtpt.methods.tps import (
    A_TPS,
    C_TPS,
    D_TPS,
    D_TPS_ALIGNED,
    O_TPS,
    RANDOM_TPS,
    RANDOM_TPS_1,
    TPS,
)
from dtpt.methods.tpt import TPT
from dtpt.methods.vte import MEAN_LOGITS, VTE, VTE_UNIT
from dtpt.methods.zero import ZERO, ZERO_PUBLISHED, ZERO_RELEASED
from dtpt.methods.zero_shot import ZERO_SHOT

PAPER = (ZERO_SHOT, TPT, C_TPT, O_TPT, D_TPT)
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *PAPER,
        *(O_TPT_PRINTED, D_TPT_MEAN_KL, D_TPT_REVERSE_KL, D_TPT_ALIGNED),  # other readings of it
        *(A_TPT, A_TPT_RELEASED, R_TPT, SOC),  # peers that tune the prompt
        # predictions from many views, without a gradient
        *(MEAN_VIEWS, MEAN_VIEWS_ANYTIME, MEAN_LOGITS, VTE, VTE_UNIT),
        *(ZERO, ZERO_RELEASED, ZERO_PUBLISHED, MTA, MTA_PUBLISHED),
        *(TPS, C_TPS, O_TPS, A_TPS, D_TPS, D_TPS_ALIGNED),  # a shift of the text features
        # state from image to image
        *(TDA, TDA_PUBLISHED, TDA_VIEWS, BOOSTADAPTER, DMN, DMN_WEAK, DMN_VIEWS),
        *(DPE, DPE_PUBLISHED, ONZETA, BCA, DOTA),
        *(RANDOM_TPT, RANDOM_TPT_1, RANDOM_TPS, RANDOM_TPS_1),  # null controls
    )
}
DEFAULT_METHOD = MEAN_VIEWS.name  # of predict, Classifier and the playground
PAPER_METHODS = tuple(method.name for method in PAPER)
MODIFIERS: dict[str, Modifier] = {
    m.name: m for m in (NO_TDD, NO_TDD_ALIGNED, NO_IDD, SALS, STREAM_TEMPERATURE)
}
