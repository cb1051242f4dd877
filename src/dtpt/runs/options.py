"""What a user asks for, from four sources: command line > environment > TOML file > default."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from dtpt.errors import RunError

ENVIRONMENT_PREFIX = "DTPT_"
# options whose variable has another name than DTPT_<OPTION>
VARIABLES = {"data_root": "DTPT_DATA"}
# TOML tables in which options may stand, so that one file can serve several commands
TABLES = ("eval", "sweep")


def split_list(value: object) -> object:
    """Turn "a,b" and ["a,b", "c"] into ["a", "b", "c"]; leave other values to the validation."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        return [value] if isinstance(value, int | float) else value
    parts = [part for item in value for part in _split_item(item)]
    return [part.strip() if isinstance(part, str) else part for part in parts if part != ""]


def _split_item(item: object) -> list[object]:
    return list(item.split(",")) if isinstance(item, str) else [item]


def _as_texts(value: object) -> object:
    return [value] if isinstance(value, str) else value


Listed = BeforeValidator(split_list)


class EvalOptions(BaseModel):
    """The options of `dtpt eval`, with their defaults.

    Attributes:
        model: Name of the model.
        dataset: Names or groups of data sets; `expand_names` splits them.
        method: Method names, `name+modifier@lambda`.
        lambda_: Weights for all regularised methods without their own `@lambda`.
        seed: Seeds of the views.
        views: Views per image, the original included.
        limit: Samples per data set; None for all.
        presentation: Kind of picture (emoji sets only).
        template: Prompt with {} for the class name.
        context: File with a trained initial context (CoOp), which replaces the template's words.
        steps: AdamW steps per image.
        learning_rate: Of AdamW.
        rho: Share of views kept.
        entropy: "of-mean" or "mean-of".
        output: Folder of the run.
        data_root: Folder of all data sets.
        workers: Processes that decode and make views; 0 for none beside the main one.
        threads: torch threads; None for torch's own choice (OMP_NUM_THREADS, else all cores).
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        shard: "i/n" with i from 1; None for the environment's (RANK, SLURM), else no shards.
        max_failures: Largest share of unreadable images before the run stops.
        cache: Keep view features for later runs.
        fresh: Move an existing store aside and start anew.
        quiet: No progress.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    model: str = "pocket"
    dataset: Annotated[tuple[str, ...], BeforeValidator(_as_texts), Field(min_length=1)]
    method: Annotated[tuple[str, ...], Listed, Field(min_length=1)] = ("zero-shot", "tpt", "d-tpt")
    lambda_: Annotated[tuple[float, ...], Listed, Field(alias="lambda")] = ()
    seed: Annotated[tuple[int, ...], Listed, Field(min_length=1)] = (0,)
    views: Annotated[int, Field(ge=1, le=4096)] = 64
    limit: Annotated[int, Field(ge=1)] | None = None
    presentation: str | None = None
    template: str = "a photo of a {}."
    context: Path | None = None
    steps: Annotated[int, Field(ge=0)] = 1
    learning_rate: Annotated[float, Field(gt=0)] = 5e-3
    rho: Annotated[float, Field(gt=0, le=1)] = 0.1
    entropy: str = "of-mean"
    output: Path = Path("runs/latest")
    data_root: Path | None = None
    workers: Annotated[int, Field(ge=0, le=256)] = 0
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    device: str = "auto"
    shard: str | None = None
    max_failures: Annotated[float, Field(ge=0, le=1)] = 0.01
    cache: bool = True
    fresh: bool = False
    quiet: bool = False

    @field_validator("seed", "method", "lambda_", "dataset")
    @classmethod
    def _without_repetition(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(value))

    @classmethod
    def layered(
        cls,
        given: Mapping[str, Any],
        *,
        config: Path | None = None,
        environment: Mapping[str, str] | None = None,
        table: str = "eval",
        defaults: Mapping[str, Any] | None = None,
    ) -> Self:
        """Put the four sources together; the earlier one wins.

        Args:
            given: From the command line; None means not given.
            config: TOML file; options at top level or in its table `[eval]` / `[sweep]`.
            environment: `DTPT_<OPTION>` variables; `os.environ` when not given.
            table: Which table of the file to read beside the top level.
            defaults: A command's own defaults, which win over those of this class.

        Raises:
            RunError: A source has an unknown option or a value that makes no sense.
        """
        from_file = read_config(config, table) if config else {}
        from_shell = read_environment(os.environ if environment is None else environment)
        typed = {_field(name): value for name, value in given.items() if value is not None}
        merged = {**(defaults or {}), **from_file, **from_shell, **typed}
        if "dataset" not in merged:
            raise RunError("No data set is given: use --dataset NAME (`dtpt datasets` lists them).")
        try:
            return cls(**merged)
        except ValidationError as error:
            raise RunError(_explain(error)) from error


def _field(name: str) -> str:
    plain = name.replace("-", "_")
    return "lambda_" if plain == "lambda" else plain


def read_config(path: Path, table: str) -> dict[str, Any]:
    """Read the options of a TOML file: its top level, then its table, which wins."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"Cannot read the configuration {path}: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise RunError(f"{path} is not TOML: {error}.") from error
    tables = {name: content.pop(name, {}) for name in TABLES}
    merged = {_field(name): value for name, value in {**content, **tables[table]}.items()}
    unknown = [name for name in merged if name not in EvalOptions.model_fields]
    if unknown:
        known = ", ".join(sorted(EvalOptions.model_fields)).replace("lambda_", "lambda")
        raise RunError(f"{path}: unknown option {unknown[0]!r}; known are {known}.")
    return merged


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Pick the options that the environment sets (`DTPT_MODEL`, `DTPT_LAMBDA`, ...)."""
    found = {}
    for name in EvalOptions.model_fields:
        if name == "cache":
            continue  # DTPT_CACHE is the cache's folder
        default = ENVIRONMENT_PREFIX + name.rstrip("_").upper()
        value = environment.get(VARIABLES.get(name, default), "")
        if value:
            found[name] = value
    return found


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"]).removesuffix("_").replace("_", "-")
    return f"Option --{place}: {first['msg']} (got {first['input']!r})."
