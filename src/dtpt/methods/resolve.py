"""The tables of methods and modifiers, and the little grammar that names combinations.

    BASE[-static][+MODIFIER...][@LAMBDA]      e.g.  d-tpt   c-tpt@20   tpt+sals   d-tpt-static

`-static` works for every method with a regulariser: the context is tuned once per class list by the
regulariser alone, without any image or view, and each image is then plain zero-shot.
"""

import math
from dataclasses import replace
from importlib.metadata import entry_points

from dtpt.errors import MethodError, UnknownName
from dtpt.methods.a_tpt import A_TPT
from dtpt.methods.base import FAMILIES, Method, Modifier, ResolvedMethod
from dtpt.methods.c_tpt import C_TPT
from dtpt.methods.d_tpt import D_TPT, D_TPT_MEAN_KL, D_TPT_REVERSE_KL
from dtpt.methods.dominant import NO_IDD, NO_TDD
from dtpt.methods.o_tpt import O_TPT, O_TPT_PRINTED
from dtpt.methods.posthoc import SALS, temperature
from dtpt.methods.tpt import TPT
from dtpt.methods.zero_shot import ZERO_SHOT

ENTRY_POINT_GROUP = "dtpt.methods"
STATIC = "-static"

METHODS: dict[str, Method] = {
    "zero-shot": ZERO_SHOT,
    "tpt": TPT,
    "c-tpt": C_TPT,
    "o-tpt": O_TPT,
    "d-tpt": D_TPT,
    "a-tpt": A_TPT,
    "o-tpt:printed": O_TPT_PRINTED,
    "d-tpt:mean-kl": D_TPT_MEAN_KL,
    "d-tpt:reverse-kl": D_TPT_REVERSE_KL,
}
PAPER_METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt")
MODIFIERS: dict[str, Modifier] = {"no-tdd": NO_TDD, "no-idd": NO_IDD, "sals": SALS}


def known_methods() -> dict[str, Method]:
    """The table, what plug-ins add to it, and the static variant of every regularised method."""
    known = dict(METHODS)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        known.setdefault(point.name, _load_plugin(point.name))
    static = {f"{name}{STATIC}": _static(m) for name, m in known.items() if m.regulariser}
    return known | static


def resolve_method(
    spec: str | Method | ResolvedMethod,
    *,
    lambda_: float | None = None,
    family: str = FAMILIES[0],
) -> ResolvedMethod:
    """Turn what a user writes into what the engine runs.

    Args:
        spec: a name of the grammar above, or a method object.
        lambda_: weight of the regulariser; wins over the default, `@` in the name wins over it.
        family: picks the default λ ("fine-grained" or "natural-shifts").

    Raises:
        UnknownName: no such method or modifier.
        MethodError: a λ that is negative, not finite, or given to a method without a regulariser.
    """
    if isinstance(spec, ResolvedMethod):
        return spec
    if isinstance(spec, Method):
        return ResolvedMethod(spec.name, spec, _choose_lambda(spec, lambda_, family))
    body, at, written = spec.strip().partition("@")
    base, *suffixes = body.split("+")
    method = _find(base)
    modifiers = tuple(_modifier(suffix) for suffix in suffixes)
    chosen = _parse_number(written, spec) if at else lambda_
    name = "+".join([method.name, *(modifier.name for modifier in modifiers)])
    return ResolvedMethod(name, method, _choose_lambda(method, chosen, family), modifiers)


def _find(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    known = known_methods()
    if name not in known:
        raise UnknownName("method", name, known, "`dtpt methods` lists them.")
    return known[name]


def _load_plugin(name: str) -> Method:
    (point, *_) = entry_points(group=ENTRY_POINT_GROUP, name=name)
    method = point.load()
    if not isinstance(method, Method):
        raise MethodError(f"Entry point {point.value!r} of group {ENTRY_POINT_GROUP} is no Method.")
    return replace(method, name=name)


def _static(method: Method) -> Method:
    summary = f"{method.name}'s regulariser alone, tuned once without images"
    return replace(method, name=f"{method.name}{STATIC}", summary=summary, lambdas={}, static=True)


def _modifier(suffix: str) -> Modifier:
    name, equals, value = suffix.partition("=")
    if name == "ts" and equals:
        return temperature(_parse_number(value, f"+{suffix}"))
    if suffix not in MODIFIERS:
        raise UnknownName("modifier", f"+{suffix}", [*MODIFIERS, "ts=1.16"])
    return MODIFIERS[suffix]


def _parse_number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MethodError(f"{text!r} in {where!r} is not a number.") from None


def _choose_lambda(method: Method, lambda_: float | None, family: str) -> float | None:
    weighs = method.regulariser is not None and not method.static
    if not weighs:
        if lambda_ is not None:
            raise MethodError(
                f"{method.name} has no regulariser to weigh: drop lambda={lambda_:g}."
            )
        return None
    if lambda_ is None and family not in method.lambdas:
        known = ", ".join(method.lambdas)
        raise MethodError(f"{method.name} has no default lambda for {family!r} (has: {known}).")
    value = method.lambdas[family] if lambda_ is None else float(lambda_)
    if not (math.isfinite(value) and value >= 0):
        raise MethodError(f"lambda of {method.name} must be a number >= 0, got {value}.")
    return value
