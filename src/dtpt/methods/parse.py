"""The grammar of method names; the only place that takes one apart or puts one together.

    BASE[-static][+MODIFIER...][@LAMBDA]     d-tpt  c-tpt@20  tpt+sals  d-tpt-static  d-tpt@auto

`-static` exists for every method with a regulariser: it is tuned once per class list by the
regulariser alone, without any image, and each image is then plain zero-shot. Modifiers with a
number: `+ts=1.16` (temperature), `+views=0.3` (mean over that fraction of the views, the most
confident ones), `+lr=0.002` (learning rate), `+anytime=0.1` (stop taking views once the answer
changes by less). `+views=auto` means many fractions in a run, of which
`dtpt calibrate` selects one. `@auto=0.9` selects the λ that wins 90 % of the signs of the first
step, on average over some unlabelled images of a data set; `@auto-each=0.9` selects it per image.

`parse_label` splits text and knows no methods; `resolve_method` looks the parts up.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from dtpt.errors import DtptError, MethodError, UnknownName, short_repr
from dtpt.methods.anytime import stop_within
from dtpt.methods.base import (
    PROTOCOLS,
    AutoLambda,
    Look,
    Method,
    Modifier,
    ResolvedMethod,
    is_number,
    lambda_word,
    of_protocol,
    power_of_ten,
)
from dtpt.methods.mean_views import FRACTIONS, mean_over
from dtpt.methods.plugins import find_plugins, load_plugin, load_plugins
from dtpt.methods.posthoc import temperature
from dtpt.methods.table import METHODS, MODIFIERS

STATIC = "-static"
VIEWS = "views="
VIEWS_AUTO = f"{VIEWS}auto"


@dataclass(frozen=True)
class ParsedName:
    """The parts of a method name as written; `str` puts them together again."""

    base: str  # "d-tpt"
    modifiers: tuple[str, ...] = ()  # ("views=0.3",)
    rule: str = ""  # λ as written: "1e6" or "auto=0.9"; empty for none

    def __str__(self) -> str:
        return f"{self.name}@{self.rule}" if self.rule else self.name

    @property
    def name(self) -> str:
        """Base and modifiers, without λ."""
        return "+".join((self.base, *self.modifiers))

    @property
    def auto(self) -> AutoLambda | None:
        """The rule `auto...`, checked; None for a number or nothing."""
        if not self.rule.startswith("auto"):
            return None
        written = re.fullmatch(r"auto(-each)?(?:=(.+))?", self.rule)
        if written is None:
            use = "use @auto, @auto=0.9 or @auto-each=0.9"
            raise MethodError(f"Invalid λ rule '@{self.rule}': {use}.")
        quantile = AutoLambda.quantile
        if written[2] is not None:
            quantile = _parse_number(written[2], f"@{self.rule}")
        if not 0 < quantile < 1:
            raise MethodError(f"The fraction of signs in @{self.rule} must lie between 0 and 1.")
        return AutoLambda(quantile, written[1] is not None)

    @property
    def lambda_(self) -> float | None:
        """The λ that was written as a number; None for a rule or nothing."""
        if not self.rule or self.auto is not None:
            return None
        return _parse_number(self.rule, str(self))

    @property
    def views(self) -> float | None:
        """The fraction of `+views=0.3`; None without that modifier."""
        written = [m.removeprefix(VIEWS) for m in self.modifiers if m.startswith(VIEWS)]
        return _parse_number(written[-1], str(self)) if written else None

    def with_lambda(self, value: float | str | AutoLambda) -> "ParsedName":
        """Return the name with another λ: a number, or a rule as written; "" removes it."""
        return replace(
            self, rule=lambda_word(value) if isinstance(value, float | int) else str(value)
        )

    def with_modifier(self, modifier: str) -> "ParsedName":
        return replace(self, modifiers=(*self.modifiers, modifier))

    def without_views(self) -> "ParsedName":
        """Return the name that reads the original view: without `+views=...`."""
        kept = tuple(m for m in self.modifiers if not m.startswith(VIEWS))
        return replace(self, modifiers=kept)

    def matches(self, name: str, lambda_: float | None = None) -> bool:
        """Return whether a resolved name with its λ is what this label means.

        Without λ a label means every number, but no `@auto` rule; `@auto` means `@auto=0.9`, and
        `+views=auto` every fraction.
        """
        wanted, other = self, parse_label(name)
        if VIEWS_AUTO in self.modifiers and other.views is not None:
            wanted, other = self.without_views(), other.without_views()
        is_same = wanted.name == other.name and wanted.auto == other.auto
        return is_same and wanted.lambda_ in (None, lambda_)


def parse_label(text: str) -> ParsedName:
    """Split a method name into base, modifiers and λ; nothing is looked up."""
    name, _, rule = text.strip().partition("@")
    base, *modifiers = name.split("+")
    return ParsedName(base, tuple(modifiers), rule)


def expand_views(text: str) -> tuple[str, ...]:
    """Return a name with `+views=auto` as one name per fraction; others as they are."""
    if VIEWS_AUTO not in parse_label(text).modifiers:
        return (text,)
    return tuple(text.replace(VIEWS_AUTO, f"{VIEWS}{fraction:g}") for fraction in FRACTIONS)


def learning_rate(value: float) -> Modifier:
    """Return the modifier `+lr=<value>`."""
    if not (math.isfinite(value) and value > 0):
        raise MethodError(f"A learning rate must be a positive number, got {value}.")
    return Modifier(f"lr={value:g}", f"step {value:g}", learning_rate=value)


# modifiers that carry a number: what is typed before the equals sign
NUMBERED: dict[str, Callable[[float], Modifier]] = {
    "ts": temperature,
    "views": mean_over,
    "lr": learning_rate,
    "anytime": stop_within,
}


def known_methods() -> dict[str, Method]:
    """Return the table, what plug-ins add to it, and the static variant of regularised methods.

    Plug-ins that cannot be used are left out; `load_plugins` has the reasons.
    """
    known = METHODS | load_plugins()[0]
    static = {f"{name}{STATIC}": _static(m) for name, m in known.items() if m.is_regularised}
    return known | static


def method_names() -> list[str]:
    """Return the names of all methods; no plug-in is imported."""
    static = [f"{name}{STATIC}" for name, method in METHODS.items() if method.is_regularised]
    return list(dict.fromkeys([*METHODS, *find_plugins(), *static]))


def find_method(name: str) -> Method:
    """Return one row of the table, a plug-in or a static variant; UnknownName has the nearest."""
    if name in METHODS:
        return METHODS[name]
    base = name.removesuffix(STATIC)
    method = METHODS.get(base)
    if method is None:
        plugins = find_plugins()
        base = name if name in plugins else base
        method = load_plugin(plugins[base]) if base in plugins else None
    if method is None or not (base == name or method.is_regularised):
        raise UnknownName("method", name, method_names(), "`dtpt methods` lists them.")
    return method if base == name else _static(method)


def shift_label(label: str) -> str:
    """Return the method that tunes a shift of the text features with the same regulariser.

    Example:
        >>> shift_label("d-tpt:aligned+views=0.3"), shift_label("zero-shot")
        ('d-tps:aligned+views=0.3', 'zero-shot')
    """
    parsed = parse_label(label)
    if find_method(parsed.base).parameter != "context":
        return label
    moved = replace(parsed, base=parsed.base.replace("tpt", "tps"))
    if find_method(moved.base).parameter != "shift":  # a name without "tpt"
        raise MethodError(f"{label} has no variant that tunes a shift of the text features.")
    return str(moved)


def find_modifier(suffix: str) -> Modifier:
    """Return a modifier by what is typed after the plus sign."""
    if suffix == VIEWS_AUTO:
        raise MethodError(
            f"+{VIEWS_AUTO} is selected on labelled rows: `dtpt eval` runs all fractions, "
            "`dtpt calibrate` selects one. Here write the fraction, such as +views=0.3."
        )
    name, equals, value = suffix.partition("=")
    if name in NUMBERED and equals:
        return NUMBERED[name](_parse_number(value, f"+{suffix}"))
    if suffix not in MODIFIERS:
        examples = ("ts=1.16", "views=0.3", "lr=0.002")
        raise UnknownName("modifier", f"+{suffix}", [*MODIFIERS, *examples])
    return MODIFIERS[suffix]


def resolve_method(
    spec: str | Method | ResolvedMethod,
    *,
    lambda_: float | None = None,
    protocol: str = PROTOCOLS[0],
) -> ResolvedMethod:
    """Turn what a user writes into what the engine runs.

    Args:
        spec: a name of the grammar above, or a method object.
        lambda_: wins over the default, `@` in the name wins over it.
        protocol: picks default λ and learning rate ("fine-grained", "natural-shifts", "imagenet").

    Raises:
        UnknownName: no such method or modifier.
        MethodError: a λ that is negative, not finite, or given to a method without a regulariser.

    Example:
        >>> resolve_method("c-tpt+sals@20").name, resolve_method("c-tpt", lambda_=7).label
        ('c-tpt+sals', 'c-tpt@7')
    """
    if not isinstance(protocol, str):
        raise MethodError(f"Invalid protocol {short_repr(protocol)}: use {' or '.join(PROTOCOLS)}.")
    if isinstance(spec, ResolvedMethod):
        return spec
    if isinstance(spec, Method):
        value = _choose_lambda(spec, lambda_, protocol=protocol)
        rate = of_protocol(spec.learning_rates, protocol)
        return ResolvedMethod(spec.name, spec, value, learning_rate=rate)
    if not isinstance(spec, str):
        raise MethodError(f"Invalid method {short_repr(spec)}: use a name or a Method.")
    parsed = parse_label(spec)
    method = find_method(parsed.base)
    modifiers = tuple(find_modifier(suffix) for suffix in parsed.modifiers)
    for modifier in modifiers:
        method = method if modifier.stream is None else modifier.stream(method)
    _check_read_outs(spec, method, modifiers=modifiers)
    _check_anytime(method, modifiers=modifiers)
    name, auto = "+".join([method.name, *(m.name for m in modifiers)]), parsed.auto
    rates = [m.learning_rate for m in modifiers if m.learning_rate is not None]
    rate = rates[-1] if rates else of_protocol(method.learning_rates, protocol)
    if auto is not None:
        _check_takes_lambda(method, f"@{parsed.rule}")
        return ResolvedMethod(f"{name}@{auto}", method, None, modifiers, auto, rate)
    chosen = parsed.lambda_ if parsed.rule else lambda_
    value = _choose_lambda(method, chosen, protocol=protocol)
    return ResolvedMethod(name, method, value, modifiers, None, rate)


def _static(method: Method) -> Method:
    summary = f"{method.name}'s regulariser alone, tuned once without images"
    look = replace(method.look, title=f"{method.look.title or method.name} static", marker=".")
    return replace(
        method, name=f"{method.name}{STATIC}", summary=summary, lambdas={}, static=True, look=look
    )


def _check_read_outs(spec: str, method: Method, *, modifiers: tuple[Modifier, ...]) -> None:
    """Refuse two ways of reading one prediction from many views."""
    given = [modifier.name for modifier in modifiers if modifier.read_out is not None]
    if given and (method.read_out is not None or method.is_stateful):
        raise MethodError(f"{method.name} has a read-out already: drop +{given[0]}.")
    if len(given) > 1:
        raise MethodError(f"{spec!r} has two read-outs: keep one of +{', +'.join(given)}.")


def _check_anytime(method: Method, *, modifiers: tuple[Modifier, ...]) -> None:
    """Refuse to stop early without a read-out, or where tuning needs all views anyway."""
    if all(modifier.tolerance is None for modifier in modifiers):
        return
    reads = method.read_out is not None or any(m.read_out is not None for m in modifiers)
    if not reads or method.tunes_on_views:
        raise MethodError(
            f"{method.name} cannot stop early: +anytime is for read-outs over views without "
            "tuning, such as mean-views or zero-shot+views=0.2."
        )


def _check_takes_lambda(method: Method, written: str) -> None:
    if not method.takes_lambda:
        raise MethodError(f"{method.name} has no regulariser to weigh: drop {written}.")


def _parse_number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MethodError(f"{text!r} in {where!r} is not a number.") from None


def _choose_lambda(method: Method, lambda_: float | None, *, protocol: str) -> float | None:
    if lambda_ is not None and not is_number(lambda_):
        raise MethodError(f"lambda must be a number, got {short_repr(lambda_)}.")
    if lambda_ is not None:
        _check_takes_lambda(method, f"lambda={lambda_word(lambda_)}")
    if not method.takes_lambda:
        return None
    chosen = of_protocol(method.lambdas, protocol) if lambda_ is None else lambda_
    if chosen is None:
        known = ", ".join(method.lambdas)
        raise MethodError(f"{method.name} has no default lambda for {protocol!r} (has: {known}).")
    value = float(chosen)
    if not (math.isfinite(value) and value >= 0):
        raise MethodError(f"lambda of {method.name} must be a number >= 0, got {value}.")
    return value


def method_look(name: str) -> Look:
    """Return the look of the method in a name of the grammar; an empty one if it is unknown."""
    try:
        return find_method(parse_label(name).base).look
    except DtptError:
        return Look()


def method_title(name: str, lambda_: float | None = None) -> str:
    """Return a method as the paper writes it, with its λ where it has one.

    Example:
        >>> method_title("tpt+no-tdd"), method_title("d-tpt", 1e5), method_title("d-tpt-static")
        ('TPT w/o TDD', 'D-TPT (λ = 10⁵)', 'D-TPT static')
        >>> method_title("d-tpt+views=0.3@auto=0.9"), method_title("unknown-tpt")
        ('D-TPT mean of 30 % of views (λ auto, 90 % of signs)', 'unknown-tpt')
    """
    parsed = parse_label(name)
    base = method_look(parsed.base).title or parsed.base
    title = " ".join([base, *(_modifier_title(modifier) for modifier in parsed.modifiers)])
    if parsed.rule:
        return f"{title} (λ {_rule_text(parsed)})"
    return title if lambda_ is None else f"{title} (λ = {lambda_text(lambda_)})"


def _modifier_title(suffix: str) -> str:
    try:
        return find_modifier(suffix).title or f"+{suffix}"
    except DtptError:
        return f"+{suffix}"


def _rule_text(parsed: ParsedName) -> str:
    try:
        auto, value = parsed.auto, parsed.lambda_
    except MethodError:
        return parsed.rule
    if auto is None:
        return parsed.rule if value is None else f"= {lambda_text(value)}"
    return f"auto{' for each image' if auto.each else ''}, {100 * auto.quantile:g} % of signs"


def lambda_text(value: float) -> str:
    """Write λ briefly: round numbers from 10³ on with a power of ten.

    Example:
        >>> lambda_text(1e5), lambda_text(3e5), lambda_text(50.0), lambda_text(2512.0)
        ('10⁵', '3·10⁵', '50', '2512')
    """
    parts = power_of_ten(value)
    if parts:
        factor, exponent = parts
        power = "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return power if factor == "1" else f"{factor}·{power}"
    return f"{value:.6g}"
