"""What a study of the views asks for; no torch, because the command's flags are made from it."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from dtpt.options import EvalOptions, Listed

Share = Annotated[float, Field(gt=0, le=1)]


class ViewsOptions(EvalOptions):
    """The options of `dtpt analyze views`.

    Example:
        >>> ViewsOptions(dataset="dtd", counts="16,64").counts
        (16, 64)
    """

    method: Annotated[
        tuple[str, ...],
        Listed,
        Field(min_length=1, description="Methods, comma-separated; zero-shot is always added."),
    ] = ("tpt", "c-tpt", "o-tpt", "d-tpt")
    counts: Annotated[
        tuple[Annotated[int, Field(ge=1, le=4096)], ...],
        Listed,
        Field(min_length=1, description="Numbers of views to compare with the largest of them."),
    ] = (8, 16, 32, 48, 64)
    kept: Annotated[
        tuple[Share, ...],
        Listed,
        Field(min_length=1, description="Shares of the views to tune on (rho)."),
    ] = (0.1, 0.3)
    shares: Annotated[
        tuple[Share, ...],
        Listed,
        Field(min_length=1, description="Shares of the confident views to read the answer from."),
    ] = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
    output: Annotated[
        Path, Field(description="Folder of the study; the same command again resumes there.")
    ] = Path("runs/views")
