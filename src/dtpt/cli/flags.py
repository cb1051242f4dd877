"""Flags of commands, made from the classes that hold the options.

An options class (`dtpt.options`) is the one place where an option has a type, a default and a
description. A command says which of them it takes:

    @flags_of(EvalOptions, leave_out=("shard",), defaults={"limit": 64})
    class DemoFlags(Flags):
        full: Switch = None          # flags of its own, as many as it likes

    def demo(*, flags: DemoFlags | None = None, as_json: AsJson = False) -> None:
        options = (flags or DemoFlags()).options(EvalOptions)

Values are taken as texts and checked by the options class alone, so that a wrong one is answered in
the same words wherever it came from. None of this loads torch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from cyclopts import Parameter
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dtpt.cli.completion import offer_datasets, offer_methods, offer_models
from dtpt.options import Options, flag

Words = Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())]
Switch = Annotated[bool | None, Parameter(negative=())]
AsJson = Annotated[
    bool,
    Parameter(
        name="--json", negative=(), show_default=False, help="Print JSON instead of a table."
    ),
]

_METAVARS: dict[object, str] = {int: "INT", float: "FLOAT", Path: "PATH", str: "TEXT"}
# what is offered when somebody presses Tab behind a flag
_OFFERED = {"model": offer_models, "method": offer_methods, "dataset": offer_datasets}

Chosen = TypeVar("Chosen", bound=Options)
FlagsClass = TypeVar("FlagsClass", bound="Flags")


class Flags:
    """What was given on the command line; None where a flag was not used."""

    config: Annotated[
        Path | None,
        Parameter(help="TOML file with options; command line and DTPT_* variables win over it."),
    ] = None
    _defaults: ClassVar[Mapping[str, Any]] = {}

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of some options that were given; `--no-x` is x = False."""
        found: dict[str, Any] = {}
        for name in names:
            if getattr(self, f"no_{name}", None):
                found[name] = False
            elif getattr(self, name, None) is not None:
                found[name] = getattr(self, name)
        return found

    def options(
        self, kind: type[Chosen], *, table: str = "eval", defaults: Mapping[str, Any] | None = None
    ) -> Chosen:
        """Put command line, environment, file and defaults together.

        Args:
            kind: The options class.
            table: Which table of the TOML file to read beside its top level.
            defaults: Further defaults, which win over those of the flags and of the class.

        Raises:
            OptionError: A value makes no sense.
        """
        own = {**self._defaults, **(defaults or {})}
        given = self.given(kind.model_fields)
        return kind.layered(given, config=self.config, table=table, defaults=own)


def flags_of(
    options: type[BaseModel],
    *,
    first: Iterable[str] = (),
    leave_out: Iterable[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[type[FlagsClass]], type[FlagsClass]]:
    """Give a class of flags one flag for each option, beside those that it names itself.

    Args:
        options: Where types, defaults and descriptions come from.
        first: Options to list first in the help, in this order.
        leave_out: Options that the command decides itself.
        defaults: The command's own defaults, which win over those of the options class.
    """
    chosen = dict(defaults or {})
    names = [*first, *(name for name in options.model_fields if name not in set(first))]
    skipped = set(leave_out)

    def add(flags: type[FlagsClass]) -> type[FlagsClass]:
        own = dict(flags.__annotations__)
        derived = {}
        for name in names:
            if name not in skipped and name not in own:
                option = options.model_fields[name]
                default = chosen.get(name, None if option.is_required() else option.get_default())
                derived.update(_flag_field(name, option, default=default))
        flags.__annotations__ = {**derived, **own, **Flags.__annotations__}
        flags._defaults = chosen
        for name in derived:
            setattr(flags, name, None)
        made: type[FlagsClass] = dataclass(frozen=True, kw_only=True)(flags)
        return Parameter(name="*")(made)

    return add


def _flag_field(name: str, option: FieldInfo, *, default: object) -> dict[str, Any]:
    """Return name and annotation of the flag of one option."""
    kind = _plain_type(option.annotation)
    about = _help(option, default)
    if kind is bool:
        if default is True:
            denied = f"Do not {about[:1].lower()}{about[1:]}"
            return {f"no_{name}": Annotated[bool | None, Parameter(negative=(), help=denied)]}
        return {name: Annotated[bool | None, Parameter(negative=(), help=about)]}
    offered = _OFFERED.get(name)
    if get_origin(kind) is tuple:
        several = Parameter(
            flag(name),
            consume_multiple=True,
            negative=(),
            metavar=f"{_metavar(get_args(kind)[0])}...",
            help=about,
            completer=offered,
        )
        return {name: Annotated[list[str] | None, several]}
    one = Parameter(flag(name), metavar=_metavar(kind), help=about, completer=offered)
    # a path is taken as such, because shells then offer files
    return {name: Annotated[(Path if kind is Path else str) | None, one]}


def _metavar(kind: Any) -> str:
    plain = _plain_type(kind)
    return "CHOICE" if get_origin(plain) is Literal else _METAVARS.get(plain, "TEXT")


def _plain_type(annotation: Any) -> Any:
    """Return the type of an option without `| None` and without its bounds."""
    if get_origin(annotation) is Annotated:
        return _plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return _plain_type(next(kind for kind in get_args(annotation) if kind is not type(None)))
    return annotation


def _help(option: FieldInfo, default: object) -> str:
    """Return the description with choices and default, as `--help` shows it."""
    text = option.description or ""
    kind = _plain_type(option.annotation)
    if get_origin(kind) is Literal:
        text += f" One of {', '.join(get_args(kind))}."
    if option.is_required() and default is None:
        return f"{text} [required]"
    if default is None or default == () or isinstance(default, bool):
        return text
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return f"{text} [default: {shown}]"
