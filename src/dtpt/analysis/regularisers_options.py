"""What the comparison of regularisers asks for; no torch."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from dtpt.options import Listed, ModelOptions, split_list


class RegularisersOptions(ModelOptions):
    """The options of `dtpt analyze regularisers`.

    Example:
        >>> RegularisersOptions(dataset="dtd,eurosat").dataset
        ('dtd', 'eurosat')
    """

    dataset: Annotated[
        tuple[str, ...],
        BeforeValidator(split_list),
        Field(
            min_length=1,
            description="Data sets or groups whose class lists are taken; pictures of the paper's "
            "sets are not needed.",
        ),
    ] = ("all",)
    method: Annotated[
        tuple[str, ...],
        Listed,
        Field(min_length=2, description="Methods with a regulariser, comma-separated."),
    ] = ("c-tpt", "o-tpt", "a-tpt", "d-tpt:aligned", "d-tpt", "random-tpt")
    output: Annotated[Path, Field(description="Folder of regularisers.json.")] = Path(
        "runs/regularisers"
    )
    quiet: Annotated[bool, Field(description="Show no progress.")] = False
