"""What the study of the basis asks for; no torch."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from dtpt.options import EvalOptions, Lambda, Listed


class BasisOptions(EvalOptions):
    """The options of `dtpt analyze basis`.

    Example:
        >>> BasisOptions(dataset="dtd", weights="1e4,1e5").weights
        (10000.0, 100000.0)
    """

    method: Annotated[
        tuple[str, ...],
        Listed,
        Field(min_length=1, description="Methods that no basis should change, comma-separated."),
    ] = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt:aligned")
    weights: Annotated[
        tuple[Lambda, ...],
        Listed,
        Field(min_length=1, description="Lambdas of D-TPT, which every basis changes."),
    ] = (1e4, 3e4, 1e5, 3e5, 1e6)
    output: Annotated[
        Path, Field(description="Folder of the study; finished data sets are kept there.")
    ] = Path("runs/basis")
