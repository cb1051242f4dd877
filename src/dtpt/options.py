"""The options of commands: the one place where an option has a type, default, bounds, description.

Flags, environment variables and TOML files (`dtpt.cli.flags`), `dtpt.evaluate` and the service
take their options from these classes. No torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from dtpt.clip.config import MAX_MODEL_SIZE
from dtpt.errors import OptionError, explain
from dtpt.methods.table import DEFAULT_METHOD
from dtpt.tuning.settings import TuningSettings

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.clip.model import Clip

LARGEST_SEED = 2**63 - 1  # SQLite's integers


def split_list(value: object) -> object:
    """Turn "a,b" and ["a,b", "c"] into ["a", "b", "c"]; leave other values to the validation.

    Example:
        >>> split_list(["0, 1", 2])
        ['0', '1', 2]
    """
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return [value] if isinstance(value, int | float) else value
    parts = [part for item in value for part in _split_item(item)]
    return [part.strip() if isinstance(part, str) else part for part in parts if part != ""]


def _split_item(item: object) -> list[object]:
    return list(item.split(",")) if isinstance(item, str) else [item]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Listed = BeforeValidator(split_list)
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Lambda = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# Parameters of commands without an options class; cyclopts validates them with pydantic too.
Fraction = Annotated[float, Field(gt=0, lt=1)]
Bins = Annotated[int, Field(ge=1, le=10_000)]
Resamples = Annotated[int, Field(ge=1, le=100_000)]
Splits = Annotated[int, Field(ge=1, le=100_000)]
ModelSize = Annotated[float, Field(gt=0, le=1 << 20)]  # GiB
# Fields that several classes have, with different defaults.
Datasets = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_list),  # a folder's name may have commas; `expand_names` splits
    Field(
        min_length=1,
        description="Data sets or groups, comma-separated; `dtpt datasets` lists them.",
    ),
]
Methods = Annotated[
    tuple[str, ...],
    Listed,
    Field(
        min_length=1,
        description="Methods, comma-separated: name[+modifier][@lambda]; `dtpt methods` lists "
        "them.",
    ),
]
RunFolder = Annotated[
    Path, Field(description="Folder of the run; the same command again resumes it.")
]


class Options(BaseModel):
    """Options that can be set by flags, DTPT_* variables, a TOML file and from Python."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Validate values by field name.

        Raises:
            OptionError: A value is invalid or missing; the message names the field and the value.
        """
        try:
            return cls(**given)
        except ValidationError as error:
            raise OptionError(f"{explain(error)}.") from error

    def given(self) -> dict[str, Any]:
        """Return the values that were set, without the defaults."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class LoadOptions(Options):
    """Which model is loaded, and where."""

    model: str = Field(default="pocket", description="Model name; `dtpt models` lists them.")
    activation: Literal["gelu", "quick_gelu"] | None = Field(
        default=None,
        description="Activation of a checkpoint of your own that does not name it itself.",
    )
    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:1 or mps.")
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32",
        description="In which the towers compute; half precision is for accelerators.",
    )
    max_model_size: ModelSize = Field(
        default=MAX_MODEL_SIZE,
        description="GiB of weights (in float32) that a checkpoint may declare.",
    )

    def load(self) -> "Clip":
        """Load the model."""
        from dtpt.clip.loading import load_model

        return load_model(
            self.model,
            device=self.device,
            activation=self.activation,
            precision=self.precision,
            max_model_size=self.max_model_size,
        )


class PromptOptions(Options, TuningSettings):
    """Prompt, views and tuning: what decides predictions beside model, classes and method."""

    template: str = Field(
        default="a photo of a {}.", description="Prompt with {} for the class name."
    )
    views: int = Field(
        default=64, ge=1, le=4096, description="Views per image, the original included."
    )

    @property
    def tuning(self) -> TuningSettings:
        return TuningSettings(**self.model_dump(include=set(TuningSettings.model_fields)))


class ImageOptions(PromptOptions):
    """The options of one prediction: of `dtpt predict` and of a request to the service."""

    seed: Seed = Field(default=0, description="Seed of the views.")
    augmix: bool = Field(default=True, description="Use AugMix in the random views.")


class ModelOptions(LoadOptions, PromptOptions):
    """Options of every command that runs a model on images."""

    templates: str = Field(
        default="",
        description="Several templates, averaged for each class: a file with one on each line, or "
        "imagenet-80. For methods that do not tune the prompt.",
    )
    descriptions: Path | None = Field(
        default=None,
        description="JSON file with sentences for each class (as CuPL's), instead of a template.",
    )
    context: Path | None = Field(
        default=None,
        description="File with a trained context (CoOp's), instead of the template's words.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="torch threads of each worker; 1 by default, on every machine, because "
        "numbers depend on it in their last bits.",
    )

    def prompt(self, context: "Tensor | None") -> str:
        """Return the template, or several on lines of their own, or one for a trained context."""
        from dtpt.clip.ensembles import read_templates
        from dtpt.clip.prompts import placeholder_template

        if bool(self.templates) + (self.descriptions is not None) + (context is not None) > 1:
            raise OptionError("Give one of --templates, --descriptions and --context.")
        if self.templates:
            return read_templates(self.templates)
        return self.template if context is None else placeholder_template(len(context))


class PredictOptions(ModelOptions, ImageOptions):
    """The options of `dtpt predict`, with their defaults.

    Example:
        >>> PredictOptions(classes="cat,dog").method
        'mean-views'
    """

    classes: str | None = Field(default=None, description="Class names, comma-separated.")
    classes_file: Path | None = Field(
        default=None, description="File with one class name per line."
    )
    method: str = Field(
        default=DEFAULT_METHOD,
        description="name[+modifier][@lambda]; `dtpt methods` lists them. @auto finds the "
        "lambda from the images.",
    )
    lambda_: Annotated[
        Lambda | None, Field(alias="lambda", description="λ of the method's regulariser.")
    ] = None
    calibration: Path | None = Field(
        default=None,
        description="File of `dtpt calibrate`: adds calibrated confidence, a prediction set "
        "and abstention; class names and settings that are not given come from it.",
    )
    stream: Path | None = Field(
        default=None,
        description="File with the state of a method that carries one: read if it is there, and "
        "written when all images are predicted, in the order in which they are given.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="torch threads; when not given, 1 of each of several workers, else all cores.",
    )
    workers: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = Field(
        default="auto",
        description="Worker processes; auto: on a CPU as many as cores, memory and the number of "
        "images are worth.",
    )
    output: Path | None = Field(
        default=None,
        description="File of the answers, .csv, .jsonl or .parquet, instead of printing them.",
    )
    quiet: bool = Field(default=False, description="Show no progress.")


class EvalOptions(ModelOptions):
    """The options of `dtpt eval`, with their defaults.

    Example:
        >>> EvalOptions(dataset="dtd", method="tpt,d-tpt", seed="0,1").seed
        (0, 1)
    """

    dataset: Datasets
    method: Methods = ("zero-shot", "tpt", "d-tpt", DEFAULT_METHOD)
    lambda_: Annotated[
        tuple[Lambda, ...],
        Listed,
        Field(
            alias="lambda",
            description="λ of all regularised methods without their own @lambda; several give all "
            "combinations.",
        ),
    ] = ()
    seed: Annotated[
        tuple[Seed, ...],
        Listed,
        Field(min_length=1, description="Seeds of the views, for example 0,1,2."),
    ] = (0,)
    order: str = Field(
        default="shuffled",
        pattern=r"^(shuffled|by-class|dirichlet=\d{1,4}(\.\d{1,4})?|given)$",
        description="Order of the images for methods that carry state: shuffled, by-class, "
        "dirichlet=0.1 or given.",
    )
    order_seeds: Annotated[
        tuple[Seed, ...],
        Listed,
        Field(min_length=1, description="Seeds of the order; every one is a stream of its own."),
    ] = (0,)
    limit: int | None = Field(
        default=None,
        ge=1,
        le=LARGEST_SEED,
        description="Evaluate that many samples of each data set.",
    )
    partial: bool = Field(default=False, description="Accept a named data set that lacks images.")
    presentation: str | None = Field(
        default=None, description="Kind of image (emoji data sets only)."
    )
    cluster_level: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Images below one folder, that many levels below the class folder, are one "
        "cluster (folder:PATH only).",
    )
    output: RunFolder = Path("runs/latest")
    data_root: Path | None = Field(default=None, description="Folder that holds the data sets.")
    workers: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = Field(
        default="auto",
        description="Worker processes, each with a copy of the model; auto: on a CPU as many "
        "as cores and memory allow, else one for each GPU.",
    )
    view_workers: Annotated[int, Field(ge=0, le=256)] | Literal["auto"] = Field(
        default="auto",
        description="Processes that decode images and make views beside each worker; a number "
        "means one worker on a CPU, unless --workers is given.",
    )
    batch: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Images that share forward passes of the text tower; more than 1 pays on "
        "accelerators.",
    )
    keep: Literal["all", "top5"] = Field(
        default="all",
        description="Probabilities in a row: all to three digits, or the five largest.",
    )
    executor: str = Field(
        default="local",
        pattern=r"^(local|ray|ray=\S+)$",
        description="Where tasks run: local (this machine) or ray[=ADDRESS] (a Ray cluster).",
    )
    shard: str | None = Field(
        default=None,
        description="i/n: evaluate shard i of n; also from RANK and WORLD_SIZE, or from Slurm.",
    )
    max_failures: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Fraction of unreadable images at which the run stops.",
    )
    cache: bool = Field(default=True, description="Use the cache of view features.")
    fresh: bool = Field(
        default=False, description="Archive an existing run in the folder and start a new one."
    )
    quiet: bool = Field(default=False, description="Show no progress.")

    @field_validator("seed", "order_seeds", "method", "lambda_", "dataset")
    @classmethod
    def _without_repetition(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(value))
