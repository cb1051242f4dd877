"""What the null controls ask for; no torch."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from dtpt.options import EvalOptions, Listed

Strength = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ControlsOptions(EvalOptions):
    """The options of `dtpt analyze controls`.

    Example:
        >>> ControlsOptions(dataset="dtd", strengths="0.8,0.9").strengths
        (0.8, 0.9)
    """

    method: Annotated[
        tuple[str, ...],
        Listed,
        Field(min_length=1, description="Methods with a regulariser, comma-separated, without @."),
    ] = ("c-tpt", "o-tpt", "a-tpt", "d-tpt", "d-tpt:aligned")
    strengths: Annotated[
        tuple[Strength, ...],
        Listed,
        Field(
            min_length=1,
            description="Shares of the first step's signs that every regulariser shall win.",
        ),
    ] = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
    rates: Annotated[
        tuple[Rate, ...],
        Listed,
        Field(min_length=1, description="Smaller learning rates of TPT, which trace the curve."),
    ] = (0.0005, 0.001, 0.002, 0.003)
    output: Annotated[
        Path, Field(description="Folder of the study; the same command again resumes there.")
    ] = Path("runs/controls")
