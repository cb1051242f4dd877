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
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, ArgumentCollection, CycloptsError, Group, Parameter, Token
from cyclopts.config import Dict

from dtpt.errors import OptionError, explain, os_error, short_repr
from dtpt.files import printable, read_limited

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext
    from pydantic import BaseModel

MOST_CONFIG_BYTES = 10**6
WHOLE_NUMBERS = (int, int | None, int | Literal[0])  # types of parameters of functions
# Variables with another name than DTPT_<OPTION>; DTPT_CACHE is the folder of the cache.
VARIABLES = {"data_root": "DTPT_DATA", "cache": ""}


def offer_models(_: "CompletionContext") -> list[str]:
    from dtpt.clip.loading.names import EMBEDDED, added_models, catalog, hub_models

    return list(dict.fromkeys([EMBEDDED, *catalog(), *hub_models(), *added_models()]))


def offer_methods(context: "CompletionContext") -> list[str]:
    from dtpt.methods import method_names

    return _listed(method_names(), context.incomplete)


def offer_datasets(context: "CompletionContext") -> list[str]:
    from dtpt.data import DATASETS, GROUPS

    return _listed([*DATASETS, *GROUPS], context.incomplete)


def offer_targets(_: "CompletionContext") -> Iterable[str]:
    from dtpt.report.paper.targets import target_names

    return target_names()


def _listed(names: Iterable[str], typed: str) -> list[str]:
    """Prepend what is typed before the last comma to every name."""
    before = typed[: typed.rfind(",") + 1]
    return [before + name for name in names]


# How a field looks on the command line, and where the help lists it, in every class that has it.
_LOOKS = {
    "dataset": Parameter(completer=offer_datasets),
    "method": Parameter(completer=offer_methods),
    "model": Parameter(completer=offer_models),
    "augmix": Parameter(negative="no-augmix"),
    "cache": Parameter(negative="no-cache"),
}
_GROUPS = {
    "Model and prompt": "model activation max_model_size template templates descriptions context "
    "views augmix",
    "Tuning": "steps learning_rate weight_decay rho entropy",
    "Execution": "device precision threads workers view_workers batch executor shard max_failures "
    "keep fresh cache",
    "Limits of requests": "max_body_bytes body_seconds header_seconds max_pixels waiting deadline "
    "cache_mb",
}
_GROUP_OF = {
    name: Parameter(group=Group(title, sort_key=index))
    for index, (title, names) in enumerate(_GROUPS.items(), start=1)
    for name in names.split()
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
DataRoot = Annotated[
    Path | None,
    Parameter(env_var="DTPT_DATA", help="Folder that holds the paper's data sets."),
]
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
        looks = [table[name] for table in (_LOOKS, _GROUP_OF) if name in table]
        looks += [Parameter(show_default=defaults[name])] if name in defaults else []
        # a new list: classes share the one of a field that they inherit
        field.metadata = [*field.metadata, *(look for look in looks if look not in field.metadata)]
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


def check_whole_numbers(_app: App, _words: object, arguments: ArgumentCollection) -> None:
    """Refuse fractions for whole numbers; cyclopts rounds them in parameters of functions."""
    for argument in arguments:
        if not argument.keys and argument.hint in WHOLE_NUMBERS:
            for token in argument.tokens:
                if not re.fullmatch(r"[+-]?\d{1,30}", token.value):
                    value = short_repr(token.value)
                    raise OptionError(f"{argument.name}: must be a whole number, got {value}.")


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
    except RecursionError:
        raise OptionError(f"--config {printable(path)} nests too many brackets.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"Cannot read --config {printable(path)}: {os_error(error)}.") from error


def explain_usage(error: CycloptsError) -> str:
    """Return one line for a wrong command line; a wrong value is named with its source."""
    cause: Any = error.__cause__
    if hasattr(cause, "errors") and error.argument is not None:  # pydantic's
        names = _sources(error.argument.children) or {"": error.argument.name}
        return f"{explain(cause, names=names)}."
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
