"""How option classes become flags, and where their values come from beside the command line.

A command takes an options class (`dtpt.options`) as one parameter; cyclopts makes a flag of every
field and lets the class validate the values:

    def demo(*, options: Annotated[DemoOptions, flags(DemoOptions)], as_json: AsJson = False): ...

Precedence: command line > DTPT_* variables > TOML file (--config) > default. None of this loads
torch.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, ArgumentCollection, CycloptsError, Group, Parameter, Token
from cyclopts.config import Dict

from dtpt.cli.completion import offer_datasets, offer_methods, offer_models
from dtpt.errors import OptionError, explain, os_error
from dtpt.files import printable, read_limited

if TYPE_CHECKING:
    from pydantic import BaseModel

MOST_CONFIG_BYTES = 10**6
# Variables with another name than DTPT_<OPTION>; DTPT_CACHE is the folder of the cache.
VARIABLES = {"data_root": "DTPT_DATA", "cache": ""}

_MODEL = Group("Model and prompt", sort_key=1)
_TUNING = Group("Tuning", sort_key=2)
_MACHINE = Group("Execution", sort_key=3)
_LIMITS = Group("Limits of requests", sort_key=4)
# How a field looks on the command line, in every class that has it.
_LOOKS = {
    "dataset": Parameter(completer=offer_datasets),
    "method": Parameter(completer=offer_methods),
    "model": Parameter(completer=offer_models, group=_MODEL),
    "augmix": Parameter(negative="no-augmix", group=_MODEL),
    "cache": Parameter(negative="no-cache", group=_MACHINE),
    **dict.fromkeys(("template", "context", "views", "activation"), Parameter(group=_MODEL)),
    **dict.fromkeys(
        ("steps", "learning_rate", "weight_decay", "rho", "entropy"), Parameter(group=_TUNING)
    ),
    **dict.fromkeys(
        (
            *("device", "precision", "threads", "workers", "view_workers", "batch"),
            *("executor", "shard", "max_failures", "keep", "fresh"),
        ),
        Parameter(group=_MACHINE),
    ),
    **dict.fromkeys(
        (
            *("max_body_bytes", "body_seconds", "header_seconds", "max_pixels"),
            *("waiting", "deadline", "cache_mb"),
        ),
        Parameter(group=_LIMITS),
    ),
}


def _default_text(value: object) -> str | None:
    """Return what the help shows as default; nothing for switches and empty values."""
    if value is None or isinstance(value, bool) or value == () or value == "":
        return None
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


# Lists are comma-separated or repeated; brackets and braces in values are not JSON.
DEFAULT = Parameter(
    consume_multiple=True,
    negative=(),
    json_list=False,
    json_dict=False,
    show_default=_default_text,
)
AsJson = Annotated[bool, Parameter("--json", help="Print JSON instead of text.")]
Config = Annotated[
    Path | None,
    Parameter(help="TOML file with options; the command line and DTPT_* variables override it."),
]


def flags(
    options: "type[BaseModel]",
    *,
    hide: Iterable[str] = (),
    show: Iterable[str] = (),
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> Parameter:
    """Return the annotation that makes a flag of every field of an options class.

    Args:
        options: The class.
        hide: Fields that the command decides itself.
        show: The only fields that become flags, if given.
        defaults: What the help shows for fields whose default the command decides later.
    """
    for name, field in options.model_fields.items():
        looks = [look for look in (_LOOKS.get(name),) if look and look not in field.metadata]
        looks += [Parameter(show_default=defaults[name])] if name in defaults else []
        field.metadata = [*field.metadata, *looks]
    shown = set(show) or set(options.model_fields)
    hidden = "|".join((set(options.model_fields) - shown) | set(hide))
    return Parameter(name="*", json_list=False, parse=re.compile(rf"^(?!(?:{hidden})$)"))


def read_environment(_app: App, _words: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give options that were not typed the values of their variables."""
    for argument in arguments:
        name = argument.keys[-1] if argument.keys else ""  # parameters of functions have no keys
        variable = VARIABLES.get(name, "DTPT_" + name.rstrip("_").upper())
        value = os.environ.get(variable, "")
        if name and value and argument.parse and not argument.tokens:
            argument.append(Token(keyword=variable, value=value, source="environment"))


def read_config(app: App, words: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give options that have no value yet those of the TOML file: its command's table, its top."""
    given = arguments.get("--config", None)
    if given is None or not given.tokens:
        return
    path = Path(given.tokens[0].value)
    content = _toml(path)
    table = content.get(words[0], {})
    if not isinstance(table, dict):
        raise OptionError(f"{printable(path)}: {words[0]!r} must be a table, [{words[0]}].")
    top = {name: value for name, value in content.items() if not isinstance(value, dict)}
    source = Dict({**top, **table}, use_commands_as_keys=False, source=printable(path))
    source(app, words, arguments)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_limited(path, MOST_CONFIG_BYTES).decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"Cannot read --config {printable(path)}: {os_error(error)}.") from error


def explain_usage(error: CycloptsError) -> str:
    """Return one line for a wrong command line; a wrong value is named with its source."""
    cause: Any = error.__cause__
    if hasattr(cause, "errors") and error.argument is not None:  # pydantic's
        return f"{explain(cause, names=_sources(error.argument.children))}."
    error.verbose = False
    return f"{' '.join(str(error).split())} See --help."


def _sources(arguments: Iterable[Any]) -> dict[str, str]:
    """Return, for every field, how its value was given: --views, DTPT_VIEWS, views in run.toml."""
    names = {}
    for argument in arguments:
        field = argument.keys[-1]
        names[field] = argument.name
        if argument.tokens and argument.tokens[0].source != "cli":
            token = argument.tokens[0]
            is_variable = token.source == "environment"
            names[field] = token.keyword if is_variable else f"{field} in {token.source}"
    return names
