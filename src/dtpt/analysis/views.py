"""How many views does it take, and how many of them should give the prediction?

Every method is evaluated with the first 8, 16, ... views of each image, tuned on several fractions
of them, and compared with itself at the largest number. The *dial* is the fraction of the most
confident views whose mean probability is the prediction: from one view (overconfident) to all of
them (underconfident). Zero-shot, which needs no gradient, is read out that way at every number of
views; the tuned methods at the largest. The anytime read-out, which stops once its answer changes
by less than a tolerance, is one more number of views: the mean of those that it took.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dtpt.analysis.study import (
    Design,
    Folder,
    Fractions,
    Names,
    Part,
    Pooled,
    StudyOptions,
    Variant,
)
from dtpt.methods import method_cost, parse_label, resolve_method
from dtpt.methods.mean_views import FRACTION
from dtpt.options import Listed

UNTUNED = "zero-shot"
FEW_VIEWS = 16
FEW_FRACTIONS = (0.3, 0.4)


class ViewsOptions(StudyOptions):
    """The options of `dtpt analyze views`."""

    method: Annotated[
        Names, Field(description="Methods, comma-separated; zero-shot is always added.")
    ] = ("tpt", "c-tpt", "o-tpt", "d-tpt")
    counts: Annotated[
        tuple[Annotated[int, Field(ge=1, le=4096)], ...],
        Listed,
        Field(min_length=1, description="Numbers of views to compare with the largest of them."),
    ] = (4, 8, 16, 32, 48, 64)
    kept: Annotated[Fractions, Field(description="Fractions of the views to tune on (rho).")] = (
        0.1,
        0.3,
    )
    fractions: Annotated[
        Fractions, Field(description="Fractions of the confident views to read out.")
    ] = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
    tolerances: Annotated[
        Fractions,
        Field(description="Changes of the answer below which the anytime read-out stops."),
    ] = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
    output: Folder = Path("runs/views")


@dataclass(frozen=True)
class Setting:
    """One way to predict."""

    method: str  # with its λ, without the fraction that is read out
    views: int  # made of each image
    rho: float | None  # fraction of them that is tuned on; None where nothing is tuned
    fraction: float | None  # of the confident views that is read out; None for the original view
    tolerance: float | None = None  # of the anytime read-out; None for all views

    @property
    def order(self) -> tuple[float, float, int, float]:
        return self.fraction or 0.0, self.rho or 0.0, -self.views, self.tolerance or 0.0

    def __str__(self) -> str:
        tuned = "" if self.rho is None else f", tuned on {self.rho:g}"
        read = "" if self.fraction is None else f", read from {self.fraction:g}"
        early = "" if self.tolerance is None else f", anytime {self.tolerance:g}"
        return f"{self.method}, {self.views} views{tuned}{read}{early}"

    def facts(self, passes: float | None) -> dict[str, Any]:
        """Return the setting with the passes that one prediction took on average."""
        name = parse_label(self.method)
        if self.fraction is not None:
            name = name.with_modifier(f"views={self.fraction:g}")
        cost = method_cost(resolve_method(str(name)), views=self.views)
        text_passes = cost.text_forward + cost.text_backward
        if passes is not None and passes.is_integer():
            passes = int(passes)
        return asdict(self) | {"image_passes": passes, "text_passes": text_passes}


def plan_parts(options: ViewsOptions) -> list[Part]:
    """Return the runs that are needed, the largest number of views first.

    Example:
        >>> few = {"counts": "8,64", "kept": 0.1, "fractions": 0.3, "tolerances": 0.1}
        >>> for part in plan_parts(ViewsOptions(dataset="x", method="tpt", **few)):
        ...     print(part.name, *(name for name in part.methods if "anytime" not in name))
        views-64-kept-0.1 zero-shot zero-shot+views=0.3 tpt tpt+views=0.3
        views-8-kept-0.1 zero-shot+views=0.3 tpt
    """
    counts = sorted(set(options.counts), reverse=True)
    names = dict.fromkeys(name for name in options.method if name != UNTUNED)
    tuned = [name for name in names if resolve_method(name).method.tunes_on_views]
    others = [name for name in names if name not in tuned]
    parts = []
    for count in counts:
        for rho in dict.fromkeys(options.kept):
            methods = list(tuned)
            if rho == options.kept[0]:  # what is not tuned needs no second fraction
                methods = [*read_out([UNTUNED], options.fractions), *others, *tuned]
            if rho == options.kept[0] and count == counts[0]:
                early = anytime(options.tolerances)
                methods = [UNTUNED, *methods, *early, *read_out(tuned, options.fractions)]
            if methods:
                parts.append(Part(f"views-{count}-kept-{rho:g}", tuple(methods), count, rho))
    return parts


def read_out(methods: Iterable[str], fractions: Iterable[float]) -> list[str]:
    """Return methods that end in the mean over each fraction of the views."""
    modifiers = [f"views={fraction:g}" for fraction in dict.fromkeys(fractions)]
    return [str(parse_label(name).with_modifier(m)) for name in methods for m in modifiers]


def anytime(tolerances: Iterable[float]) -> list[str]:
    """Return the mean over confident views that stops within each tolerance."""
    return [
        f"{UNTUNED}+views={FRACTION:g}+anytime={value:g}" for value in dict.fromkeys(tolerances)
    ]


def setting_of(label: str, part: Part) -> Setting:
    """Read a way to predict from the label of a method and its part.

    Example:
        >>> part = Part("views-64-kept-0.1", (), 64, 0.1)
        >>> str(setting_of("d-tpt+views=0.3@1e6", part))
        'd-tpt@1e6, 64 views, tuned on 0.1, read from 0.3'
    """
    parsed, resolved = parse_label(label), resolve_method(label)
    kept = tuple(m for m in parsed.without_views().modifiers if not m.startswith("anytime="))
    return Setting(
        method=str(replace(parsed, modifiers=kept)),
        views=part.views if resolved.uses_views else 1,
        rho=part.rho if resolved.method.tunes_on_views else None,
        fraction=parsed.views,
        tolerance=resolved.tolerance if parsed.views else None,
    )


def variants(options: ViewsOptions, pooled: Pooled) -> dict[str, Variant]:
    """Return every setting beside the one with the most views."""
    parts = {part.name: part for part in plan_parts(options)}
    settings = {setting_of(label, parts[part]): made for (part, label), made in pooled.items()}
    most = max(setting.views for setting in settings)
    methods = list(dict.fromkeys(setting.method for setting in settings))
    rows = {}
    for setting in sorted(settings, key=lambda s: (methods.index(s.method), *s.order)):
        full = replace(setting, views=most, tolerance=None)
        reference = str(full) if full != setting and full in settings else None
        further = tuple(map(str, _many(settings, most=most))) if setting in FEW else ()
        facts = setting.facts(settings[setting].passes)
        rows[str(setting)] = Variant(setting.method, facts, settings[setting], reference, further)
    return rows


def _many(settings: Collection[Setting], *, most: int) -> list[Setting]:
    """Return what few views without a gradient are compared with: the most views with one."""
    tuned = [s for s in settings if s.views == most and s.rho and s.fraction is None]
    return tuned if most > FEW_VIEWS else []


FEW = [Setting(UNTUNED, FEW_VIEWS, None, fraction) for fraction in FEW_FRACTIONS]
VIEWS = Design(
    "views",
    plan_parts,
    variants,
    heads={
        "views": "views",
        "image_passes": "passes",
        "rho": "tuned on",
        "fraction": "read from",
        "tolerance": "anytime",
    },
    legend="Fewer views than the most are shown as differences from those. Passes: mean number of "
    "views that an image took.",
)
