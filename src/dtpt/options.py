"""What a user asks for, from four sources: command line > environment > TOML file > default.

The classes here are the one place where an option has a type, a default and a description: the
flags of the commands are made from them (`dtpt.cli.flags`). No torch.
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from dtpt.errors import OptionError, os_error
from dtpt.files import read_limited
from dtpt.tuning.settings import TuningSettings

ENVIRONMENT_PREFIX = "DTPT_"
# options whose variable has another name than DTPT_<OPTION>
VARIABLES = {"data_root": "DTPT_DATA"}
# options that no variable sets: DTPT_CACHE is the cache's folder
WITHOUT_VARIABLE = {"cache"}
# TOML tables in which options may stand, so that one file can serve several commands
TABLES = ("eval", "sweep", "predict")
MOST_CONFIG_BYTES = 10**6
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


def _as_texts(value: object) -> object:
    return [value] if isinstance(value, str) else value


Listed = BeforeValidator(split_list)


class Options(BaseModel):
    """Options of a command that can also stand in the environment and in a TOML file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

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
            config: TOML file; options at top level or in the command's table, such as `[eval]`.
            environment: `DTPT_<OPTION>` variables; `os.environ` when not given.
            table: Which table of the file to read beside the top level.
            defaults: A command's own defaults, which win over those of this class.

        Raises:
            OptionError: A source has an unknown option or a value that makes no sense; the message
                names the source, the value, and what is expected.
        """
        from_file = read_config(config, table, known=cls.model_fields) if config else {}
        shell = os.environ if environment is None else environment
        from_shell = read_environment(shell, known=cls.model_fields)
        typed = {_field(name): value for name, value in given.items() if value is not None}
        merged = {**(defaults or {}), **from_file, **from_shell, **typed}
        places = {name: f"{flag(name)} in {config}" for name in from_file}
        places |= {name: variable(name) for name in from_shell}
        places |= {name: flag(name) for name in typed}
        try:
            return cls(**merged)
        except ValidationError as error:
            raise OptionError(_explain(error, cls, places=places)) from error


class ModelOptions(Options, TuningSettings):
    """What every command needs that runs a model on pictures."""

    model: Annotated[str, Field(description="Model name; `dtpt models` lists them.")] = "pocket"
    template: Annotated[str, Field(description="Prompt with {} for the class name.")] = (
        "a photo of a {}."
    )
    context: Annotated[
        Path | None,
        Field(description="File with a trained context (CoOp's), instead of the template's words."),
    ] = None
    views: Annotated[
        int, Field(ge=1, le=4096, description="Views per image, the original included.")
    ] = 64
    activation: Annotated[
        Literal["gelu", "quick_gelu"] | None,
        Field(description="Activation of a checkpoint of your own that does not name it itself."),
    ] = None
    device: Annotated[str, Field(description="auto, cpu, cuda, cuda:1 or mps.")] = "auto"
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"],
        Field(description="In which the towers compute; half precision is for accelerators."),
    ] = "float32"
    threads: Annotated[
        int | None,
        Field(
            ge=1,
            le=1024,
            description="torch threads of each copy of the model; 1 unless given, on every "
            "machine, because numbers depend on it in their last bits.",
        ),
    ] = None

    @property
    def tuning(self) -> TuningSettings:
        """The part that the engine needs."""
        return TuningSettings(**self.model_dump(include=set(TuningSettings.model_fields)))


Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PredictOptions(ModelOptions):
    """The options of `dtpt predict`, with their defaults.

    Example:
        >>> PredictOptions(classes="cat,dog").method
        'd-tpt'
    """

    classes: Annotated[str | None, Field(description="Class names, comma-separated.")] = None
    classes_file: Annotated[Path | None, Field(description="File with a class name a line.")] = None
    method: Annotated[
        str,
        Field(
            description="name[+modifier][@lambda]; `dtpt methods` lists them. @auto finds the "
            "lambda from the pictures."
        ),
    ] = "d-tpt"
    lambda_: Annotated[
        Weight | None, Field(alias="lambda", description="Weight of the method's regulariser.")
    ] = None
    promise: Annotated[
        Path | None,
        Field(
            description="File of `dtpt calibrate`: adds calibrated confidence, a set, and whether "
            "to answer; class names and settings that are not given come from it."
        ),
    ] = None
    seed: Annotated[Seed, Field(description="Seed of the views.")] = 0
    augmix: Annotated[bool, Field(description="Use AugMix in the random views.")] = True
    threads: Annotated[
        int | None,
        Field(ge=1, le=1024, description="torch threads; its own choice when not given."),
    ] = None
    quiet: Annotated[bool, Field(description="Show no progress.")] = False


class EvalOptions(ModelOptions):
    """The options of `dtpt eval`, with their defaults.

    Example:
        >>> EvalOptions(dataset="dtd", method="tpt,d-tpt", seed="0,1").seed
        (0, 1)
    """

    dataset: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_texts),
        Field(
            min_length=1,
            description="Data sets or groups, comma-separated; `dtpt datasets` lists them.",
        ),
    ]
    method: Annotated[
        tuple[str, ...],
        Listed,
        Field(
            min_length=1,
            description="Methods, comma-separated: name[+modifier][@lambda]; `dtpt methods` lists "
            "them.",
        ),
    ] = ("zero-shot", "tpt", "d-tpt")
    lambda_: Annotated[
        tuple[Weight, ...],
        Listed,
        Field(
            alias="lambda",
            description="Weights for all regularised methods without their own @lambda; several "
            "give all combinations.",
        ),
    ] = ()
    seed: Annotated[
        tuple[Seed, ...],
        Listed,
        Field(min_length=1, description="Seeds of the views, for example 0,1,2."),
    ] = (0,)
    limit: Annotated[
        int | None, Field(ge=1, description="Evaluate that many samples of each data set.")
    ] = None
    partial: Annotated[
        bool,
        Field(description="Take what is there of a named data set that lacks pictures."),
    ] = False
    presentation: Annotated[
        str | None, Field(description="Kind of picture (emoji data sets only).")
    ] = None
    output: Annotated[
        Path, Field(description="Folder of the run; the same command again resumes there.")
    ] = Path("runs/latest")
    data_root: Annotated[Path | None, Field(description="Folder that holds the data sets.")] = None
    replicas: Annotated[
        Annotated[int, Field(ge=1, le=256)] | Literal["auto"],
        Field(
            description="Copies of the model, each in a process of its own; auto: on a CPU as many "
            "as cores and memory allow.",
        ),
    ] = "auto"
    workers: Annotated[
        Annotated[int, Field(ge=0, le=256)] | Literal["auto"],
        Field(
            description="Processes that decode images and make views beside each copy of the "
            "model; a number means one copy, unless --replicas is given.",
        ),
    ] = "auto"
    batch: Annotated[
        int,
        Field(
            ge=1,
            le=256,
            description="Pictures that share forward passes of the text tower; more than 1 pays on "
            "accelerators.",
        ),
    ] = 1
    keep: Annotated[
        Literal["all", "top5"],
        Field(description="Probabilities that a row holds: all to three digits, or five."),
    ] = "all"
    engine: Annotated[
        str,
        Field(
            pattern=r"^(local|ray|ray=\S+)$",
            description="Who works: local (this machine) or ray[=ADDRESS] (a Ray cluster).",
        ),
    ] = "local"
    shard: Annotated[
        str | None,
        Field(
            description="i/n: evaluate share i of n; also from RANK and WORLD_SIZE, or from Slurm."
        ),
    ] = None
    max_failures: Annotated[
        float, Field(ge=0, le=1, description="Share of unreadable images at which the run stops.")
    ] = 0.01
    cache: Annotated[bool, Field(description="Use the cache of view features.")] = True
    fresh: Annotated[
        bool, Field(description="Move an existing run in the folder aside and start anew.")
    ] = False
    quiet: Annotated[bool, Field(description="Show no progress.")] = False

    @field_validator("seed", "method", "lambda_", "dataset")
    @classmethod
    def _without_repetition(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(value))


def _field(name: str) -> str:
    plain = name.replace("-", "_")
    return "lambda_" if plain == "lambda" else plain


def flag(name: str) -> str:
    """Return the flag of an option.

    Example:
        >>> flag("lambda_"), flag("data_root")
        ('--lambda', '--data-root')
    """
    return "--" + name.rstrip("_").replace("_", "-")


def variable(name: str) -> str:
    """Return the environment variable of an option.

    Example:
        >>> variable("views"), variable("data_root")
        ('DTPT_VIEWS', 'DTPT_DATA')
    """
    return VARIABLES.get(name, ENVIRONMENT_PREFIX + name.rstrip("_").upper())


def read_config(path: Path, table: str, *, known: Iterable[str]) -> dict[str, Any]:
    """Read the options of a TOML file: its top level, then its table, which wins."""
    try:
        content = tomllib.loads(read_limited(path, MOST_CONFIG_BYTES).decode("utf-8"))
    except OSError as error:
        reason = os_error(error)
        raise OptionError(f"Cannot read the configuration {path}: {reason}.") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"Cannot read the configuration {path}: it is not UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path} is not TOML: {error}.") from error
    tables = {name: content.pop(name, {}) for name in TABLES}
    if not isinstance(tables[table], dict):
        raise OptionError(f"{path}: {table!r} must be a table, [{table}].")
    merged = {_field(name): value for name, value in {**content, **tables[table]}.items()}
    names = set(known)
    unknown = [name for name in merged if name not in names]
    if unknown:
        listing = ", ".join(sorted(names)).replace("lambda_", "lambda")
        raise OptionError(f"{path}: unknown option {unknown[0]!r}; known are {listing}.")
    return merged


def read_environment(environment: Mapping[str, str], *, known: Iterable[str]) -> dict[str, str]:
    """Pick the options that the environment sets (`DTPT_MODEL`, `DTPT_LAMBDA`, ...)."""
    names = (name for name in known if name not in WITHOUT_VARIABLE)
    found = {name: environment.get(variable(name), "") for name in names}
    return {name: value for name, value in found.items() if value}


def _explain(error: ValidationError, options: type[BaseModel], *, places: Mapping[str, str]) -> str:
    """Say which option has a wrong value, which value, and what is expected instead."""
    first = error.errors()[0]
    name = _field(str(first["loc"][0]))
    if first["type"] == "missing":
        hint = (
            f" ({options.model_fields[name].description})" if name in options.model_fields else ""
        )
        return f"{flag(name)} is not given{hint}"
    place = places.get(name, flag(name))
    return f"{place} is {first['input']!r}; expected {expected(options, name)}."


def expected(options: type[BaseModel], name: str) -> str:
    """Say what values an option takes.

    Example:
        >>> expected(EvalOptions, "views")
        'a whole number from 1 to 4096'
        >>> expected(EvalOptions, "entropy")
        'of-mean or mean-of'
    """
    schema = options.model_json_schema(by_alias=False)["properties"].get(name, {})
    choices = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    return " or ".join(_expected(part) for part in choices)


_NOUNS = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


def _expected(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " or ".join(str(choice) for choice in schema["enum"])
    if schema.get("type") == "array":
        return f"{_expected(schema['items'])}, or several, comma-separated"
    words = _NOUNS.get(str(schema.get("type")), "a text")
    least, most = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        words += f" above {schema['exclusiveMinimum']:g}"
        return words + (f" up to {most:g}" if most is not None else "")
    if least is not None and most is not None:
        return f"{words} from {least} to {most}"
    return words + (f", at least {least}" if least is not None else "")
