"""The little grammar that names a method with everything that belongs to it.

    BASE[-static][+MODIFIER...][@LAMBDA]     d-tpt  c-tpt@20  tpt+sals  d-tpt-static  d-tpt@auto

`-static` works for every method with a regulariser: it is tuned once per class list by the
regulariser alone, without any image or view, and each image is then plain zero-shot. Modifiers with
a number: `+ts=1.16` (temperature), `+views=0.3` (mean over that share of the confident views),
`+lr=0.002` (learning rate). `+views=auto` stands for many shares in a run, of which
`dtpt calibrate` chooses one. `@auto=0.9` finds the λ that wins nine of ten signs of the first step,
on average over some unlabelled pictures of a set; `@auto-each=0.9` finds it for every picture.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points

from dtpt.errors import MethodError, UnknownName, short_repr
from dtpt.methods.base import (
    PROTOCOLS,
    Method,
    Modifier,
    ResolvedMethod,
    Strength,
    is_number,
)
from dtpt.methods.mean_views import AUTO, mean_over
from dtpt.methods.posthoc import temperature
from dtpt.methods.table import METHODS, MODIFIERS

ENTRY_POINT_GROUP = "dtpt.methods"
STATIC = "-static"


def learning_rate(value: float) -> Modifier:
    """Return the modifier `+lr=<value>`: another size of the step.

    Example:
        >>> learning_rate(0.002).name
        'lr=0.002'
    """
    if not (math.isfinite(value) and value > 0):
        raise MethodError(f"A learning rate must be a positive number, got {value}.")
    return Modifier(f"lr={value:g}", f"step {value:g}", learning_rate=value)


# modifiers that carry a number: what is typed before the equals sign
NUMBERED: dict[str, Callable[[float], Modifier]] = {
    "ts": temperature,
    "views": mean_over,
    "lr": learning_rate,
}


def known_methods() -> dict[str, Method]:
    """Return the table, what plug-ins add to it, and the static variant of regularised methods."""
    known = dict(METHODS)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        known.setdefault(point.name, _load_plugin(point.name))
    static = {f"{name}{STATIC}": _static(m) for name, m in known.items() if m.is_regularised}
    return known | static


def find_method(name: str) -> Method:
    """Return one row of the table, a plug-in or a static variant.

    Raises:
        UnknownName: there is none; the message has the nearest names.
    """
    if name in METHODS:
        return METHODS[name]
    known = known_methods()
    if name not in known:
        raise UnknownName("method", name, known, "`dtpt methods` lists them.")
    return known[name]


def resolve_method(
    spec: str | Method | ResolvedMethod,
    *,
    lambda_: float | None = None,
    protocol: str = PROTOCOLS[0],
) -> ResolvedMethod:
    """Turn what a user writes into what the engine runs.

    Args:
        spec: a name of the grammar above, or a method object.
        lambda_: weight of the regulariser; wins over the default, `@` in the name wins over it.
        protocol: picks default λ and learning rate ("fine-grained" or "natural-shifts").

    Raises:
        UnknownName: no such method or modifier.
        MethodError: a λ that is negative, not finite, or given to a method without a regulariser.

    Example:
        >>> resolve_method("c-tpt+sals@20").name, resolve_method("c-tpt", lambda_=7).lambda_
        ('c-tpt+sals', 7.0)
    """
    if not isinstance(protocol, str):
        raise MethodError(
            f"A protocol is text such as {PROTOCOLS[0]!r}, not {short_repr(protocol)}."
        )
    if isinstance(spec, ResolvedMethod):
        return spec
    if isinstance(spec, Method):
        return _resolved(
            spec, (), weight=_choose_lambda(spec, lambda_, protocol=protocol), protocol=protocol
        )
    if not isinstance(spec, str):
        raise MethodError(f"A method is a name or a Method, not {short_repr(spec)}.")
    body, at, written = spec.strip().partition("@")
    base, *suffixes = body.split("+")
    method = find_method(base)
    modifiers = tuple(find_modifier(suffix) for suffix in suffixes)
    _check_read_outs(spec, method, modifiers=modifiers)
    if at and written.startswith("auto"):
        return _resolved(method, modifiers, weight=_strength(written, method), protocol=protocol)
    chosen = _parse_number(written, spec) if at else lambda_
    weight = _choose_lambda(method, chosen, protocol=protocol)
    return _resolved(method, modifiers, weight=weight, protocol=protocol)


def _resolved(
    method: Method,
    modifiers: tuple[Modifier, ...],
    *,
    weight: float | Strength | None,
    protocol: str,
) -> ResolvedMethod:
    name = "+".join([method.name, *(modifier.name for modifier in modifiers)])
    rates = [m.learning_rate for m in modifiers if m.learning_rate is not None]
    rate = rates[-1] if rates else method.learning_rates.get(protocol)
    if isinstance(weight, Strength):
        return ResolvedMethod(f"{name}@{weight}", method, None, modifiers, weight, rate)
    return ResolvedMethod(name, method, weight, modifiers, None, rate)


def _load_plugin(name: str) -> Method:
    (point, *_) = entry_points(group=ENTRY_POINT_GROUP, name=name)
    method = point.load()
    if not isinstance(method, Method):
        raise MethodError(f"Entry point {point.value!r} of group {ENTRY_POINT_GROUP} is no Method.")
    return replace(method, name=name)


def _static(method: Method) -> Method:
    summary = f"{method.name}'s regulariser alone, tuned once without images"
    look = replace(method.look, title=f"{method.look.title or method.name} static", marker=".")
    return replace(
        method, name=f"{method.name}{STATIC}", summary=summary, lambdas={}, static=True, look=look
    )


def find_modifier(suffix: str) -> Modifier:
    """Return a modifier by what is typed after the plus sign.

    Raises:
        UnknownName: there is none; the message has the nearest names.
        MethodError: its number makes no sense.
    """
    if f"+{suffix}" == AUTO:
        raise MethodError(
            f"{AUTO} is chosen on labelled rows: `dtpt eval` runs all shares, `dtpt calibrate` "
            "chooses one. Here write the share, such as +views=0.3."
        )
    name, equals, value = suffix.partition("=")
    if name in NUMBERED and equals:
        return NUMBERED[name](_parse_number(value, f"+{suffix}"))
    if suffix not in MODIFIERS:
        examples = ("ts=1.16", "views=0.3", "lr=0.002")
        raise UnknownName("modifier", f"+{suffix}", [*MODIFIERS, *examples])
    return MODIFIERS[suffix]


def _check_read_outs(spec: str, method: Method, *, modifiers: tuple[Modifier, ...]) -> None:
    """Refuse two ways of reading one answer from many views."""
    given = [modifier.name for modifier in modifiers if modifier.read_out is not None]
    if method.read_out is not None and given:
        raise MethodError(f"{method.name} has its own way of reading views: drop +{given[0]}.")
    if len(given) > 1:
        raise MethodError(f"{spec!r} reads its views twice: keep one of +{', +'.join(given)}.")


def _strength(written: str, method: Method) -> Strength:
    """Read `auto`, `auto=0.9`, `auto-each` or `auto-each=0.9`."""
    found = re.fullmatch(r"auto(-each)?(?:=(.+))?", written)
    if found is None:
        raise MethodError(f"@{written} is no strength: write @auto, @auto=0.9 or @auto-each=0.9.")
    if not method.is_regularised or method.static:
        raise MethodError(f"{method.name} has no regulariser to weigh: drop @{written}.")
    share = Strength.share if found[2] is None else _parse_number(found[2], f"@{written}")
    if not 0 < share < 1:
        raise MethodError(f"The share of signs in @{written} must lie between 0 and 1.")
    return Strength(share, found[1] is not None)


def _parse_number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MethodError(f"{text!r} in {where!r} is not a number.") from None


def _choose_lambda(method: Method, lambda_: float | None, *, protocol: str) -> float | None:
    if lambda_ is not None and not is_number(lambda_):
        raise MethodError(f"lambda must be a number, got {short_repr(lambda_)}.")
    if not method.is_regularised or method.static:
        if lambda_ is not None:
            raise MethodError(
                f"{method.name} has no regulariser to weigh: drop lambda={lambda_:g}."
            )
        return None
    if lambda_ is None and protocol not in method.lambdas:
        known = ", ".join(method.lambdas)
        raise MethodError(f"{method.name} has no default lambda for {protocol!r} (has: {known}).")
    value = float(method.lambdas[protocol] if lambda_ is None else lambda_)
    if not (math.isfinite(value) and value >= 0):
        raise MethodError(f"lambda of {method.name} must be a number >= 0, got {value}.")
    return value
