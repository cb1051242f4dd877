"""The numbers of the tuning procedure; defaults are the paper's and its peers'.

No torch here: the descriptions are the help texts of the command line's flags.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dtpt.errors import MethodError, short_repr
from dtpt.methods.base import EntropyReading


class TuningSettings(BaseModel):
    """How one image tunes the context.

    Example:
        >>> TuningSettings(steps=2).learning_rate
        0.005
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: Annotated[
        int, Field(ge=0, le=10_000, description="AdamW steps per image; 0 is zero-shot.")
    ] = 1
    learning_rate: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="Of AdamW; with one step every context number moves by almost this.",
        ),
    ] = 5e-3
    weight_decay: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="Of AdamW; torch's default, as in all peers."),
    ] = 0.01
    rho: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="Fraction of the views that is kept, the most confident ones "
            "(0.1 of 64 is 6 views).",
        ),
    ] = 0.1
    entropy: Annotated[
        EntropyReading,
        Field(
            description="Entropy of the mean prediction, as in all released code, or mean of the "
            "entropies, as the paper's equation 1 is printed."
        ),
    ] = "of-mean"


def checked_settings(settings: object) -> TuningSettings:
    """Return the settings; the defaults for None."""
    if settings is None:
        return TuningSettings()
    if not isinstance(settings, TuningSettings):
        raise MethodError(f"settings must be TuningSettings, not {short_repr(settings)}.")
    return settings
