"""The settings of the tuning procedure: readable without torch, in step with the methods."""

import subprocess
import sys
from typing import get_args

import pytest
from pydantic import ValidationError

from dtpt.methods.tpt import ENTROPY_LOSSES
from dtpt.tuning import TuningSettings


def test_settings_are_imported_without_torch():
    code = "import sys, dtpt.tuning.settings; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_every_entropy_that_can_be_chosen_has_a_loss():
    choices = get_args(TuningSettings.model_fields["entropy"].annotation)
    assert set(choices) == set(ENTROPY_LOSSES)


@pytest.mark.parametrize(
    "wrong", [{"steps": -1}, {"learning_rate": float("inf")}, {"rho": 0}, {"entropy": "x"}]
)
def test_values_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValidationError):
        TuningSettings(**wrong)
