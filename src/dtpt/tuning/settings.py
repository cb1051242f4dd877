"""The numbers of the tuning procedure; defaults are the paper's and its peers'."""

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from dtpt.methods.tpt import EntropyReading


class TuningSettings(BaseModel):
    """How one image tunes the context.

    Attributes:
        steps: AdamW steps per image; 0 is zero-shot.
        learning_rate: of AdamW; with one step every context number moves by almost exactly this.
        weight_decay: torch's default for AdamW, which all peers use.
        rho: share of the views that is kept, the most confident ones (0.1 of 64 = 6 views).
        entropy: "of-mean" as in all released code, "mean-of" as the paper's equation 1 prints.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: NonNegativeInt = 1
    learning_rate: float = Field(default=5e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    rho: float = Field(default=0.1, gt=0, le=1)
    entropy: EntropyReading = "of-mean"
