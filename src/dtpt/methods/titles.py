"""A method as the paper writes it, for tables, figures and sentences."""

from dtpt.errors import DtptError
from dtpt.methods.base import Look
from dtpt.methods.resolve import STATIC, find_method, find_modifier


def method_look(name: str) -> Look:
    """Return the look of the method in a name of the grammar; an empty one if it is not known.

    Example:
        >>> method_look("c-tpt+sals").colour
        '#2f9e77'
        >>> method_look("a method of somebody else")
        Look(title='', colour='', marker='', dash='-', hatch='')
    """
    try:
        return find_method(name.partition("@")[0].partition("+")[0]).look
    except DtptError:
        return Look()


def method_title(name: str, lambda_: float | None = None) -> str:
    """Return a method as the paper writes it, with its λ where it has one.

    Example:
        >>> method_title("tpt+no-tdd"), method_title("d-tpt", 1e5), method_title("d-tpt-static")
        ('TPT w/o TDD', 'D-TPT (λ = 10⁵)', 'D-TPT static')
        >>> method_title("d-tpt+views=0.3@auto=0.9"), method_title("somebody's-tpt")
        ('D-TPT mean of 30 % of views (λ auto, 90 % of signs)', "somebody's-tpt")
    """
    body, _, strength = name.partition("@")
    base, *modifiers = body.split("+")
    stem = base.removesuffix(STATIC)
    title = method_look(base).title or method_look(stem).title
    parts = [title or base, *(_modifier_title(modifier) for modifier in modifiers)]
    if strength:
        return f"{' '.join(parts)} (λ {_strength_text(strength)})"
    weight = "" if lambda_ is None else f" (λ = {lambda_text(lambda_)})"
    return " ".join(parts) + weight


def _modifier_title(suffix: str) -> str:
    try:
        return find_modifier(suffix).title or f"+{suffix}"
    except DtptError:
        return f"+{suffix}"


def _strength_text(written: str) -> str:
    kind, _, share = written.partition("=")
    each = " for each picture" if kind.endswith("-each") else ""
    try:
        return f"auto{each}, {100 * float(share):g} % of signs"
    except ValueError:
        return f"auto{each}"


def lambda_text(value: float) -> str:
    """Write a weight briefly: round numbers from 10³ on with a power of ten.

    Example:
        >>> lambda_text(1e5), lambda_text(3e5), lambda_text(50.0), lambda_text(2512.0)
        ('10⁵', '3·10⁵', '50', '2512')
    """
    if value >= 1000:
        factor, exponent = f"{value:.1e}".split("e+")
        if float(f"{factor}e{exponent}") == value:
            power = "10" + str(int(exponent)).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
            return power if factor == "1.0" else f"{factor.removesuffix('.0')}·{power}"
    return f"{value:.6g}"
