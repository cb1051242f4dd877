"""How many views does it take, and how many of them should give the answer?

Every method is evaluated with the first 8, 16, ... views of each picture, tuned on several shares
of them, and compared with itself at the largest number. The *dial* is the share of the most
confident views whose mean probability is the answer: from one view (sure of itself) to all of them
(full of doubt). Zero-shot, which needs no gradient, is read out that way at every number of views;
the tuned methods at the largest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dtpt.analysis.estimates import MEASURED, differences
from dtpt.analysis.study_runs import FamilyAnswers, Key, Part, StudyOrigin, run_parts
from dtpt.analysis.views_options import ViewsOptions
from dtpt.methods import method_cost, parse_label, resolve_method
from dtpt.metrics import Comparison, Estimate, PooledPredictions
from dtpt.metrics.comparison import estimates

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset

UNTUNED = "zero-shot"
FEW_VIEWS = 16
FEW_SHARES = (0.3, 0.4)


@dataclass(frozen=True)
class Setting:
    """One way to answer.

    Attributes:
        method: with its λ, without the share that is read out.
        views: made of each picture.
        kept: share of them that is tuned on; None where nothing is tuned.
        share: of the most confident views, from which the answer is read; None for the original.
    """

    method: str
    views: int
    kept: float | None
    share: float | None

    @property
    def original(self) -> "Setting":
        """The same method, read from the original view."""
        return replace(self, share=None, views=1 if self.method == UNTUNED else self.views)

    @property
    def untuned(self) -> "Setting":
        """Zero-shot, read out the same way."""
        return Setting(UNTUNED, 1 if self.share is None else self.views, None, self.share)

    def __str__(self) -> str:
        tuned = "" if self.kept is None else f", tuned on {self.kept:g}"
        read = "" if self.share is None else f", read from {self.share:g}"
        return f"{self.method}, {self.views} views{tuned}{read}"


@dataclass(frozen=True)
class SettingRow:
    """What one way to answer costs and gives.

    Attributes:
        setting: the way.
        image_passes: pictures that the image tower encodes for one answer.
        text_passes: passes over all class prompts, forward and backward.
        estimates: metrics by key.
        to_most: differences to the same with the most views; empty in that row itself.
        to_original: differences to the same method read from the original view.
        to_untuned: with the most views, differences to zero-shot read out the same way.
    """

    setting: Setting
    image_passes: int
    text_passes: int
    estimates: dict[str, Estimate]
    to_most: tuple[Comparison, ...] = ()
    to_original: tuple[Comparison, ...] = ()
    to_untuned: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class FewAgainstMany:
    """Zero-shot read from few views against a tuned method with the most views."""

    few: Setting
    many: Setting
    differences: tuple[Comparison, ...]


@dataclass(frozen=True)
class FamilyViews:
    """The study on the pictures of one family.

    Attributes:
        family: its title.
        sets: names of the data sets with their number of pictures.
        rows: every way to answer.
        few_against_many: what a quarter of the image passes gives up, or not.
    """

    family: str
    sets: tuple[tuple[str, int], ...]
    rows: tuple[SettingRow, ...]
    few_against_many: tuple[FewAgainstMany, ...]


@dataclass(frozen=True)
class ViewStudy:
    """How many views, and how many of them to read."""

    origin: StudyOrigin
    families: tuple[FamilyViews, ...]


def study_views(
    options: ViewsOptions,
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
) -> ViewStudy:
    """Evaluate methods with several numbers of views and shares, and compare.

    Args:
        options: what to compare, and where to store the runs.
        model: used instead of loading `options.model`.
        datasets: used instead of loading `options.dataset`.
    """
    parts = plan_parts(options)
    origin, families = run_parts(options, parts, model=model, datasets=datasets)
    by_name = {part.name: part for part in parts}
    return ViewStudy(origin, tuple(_study_family(family, by_name) for family in families))


def plan_parts(options: ViewsOptions) -> list[Part]:
    """Return the runs that are needed, the largest number of views first.

    Example:
        >>> chosen = ViewsOptions(dataset="dtd", method="tpt", counts="8,64", kept=0.1, shares=0.3)
        >>> for part in plan_parts(chosen):
        ...     print(part.name, *part.methods)
        views-64-kept-0.1 zero-shot zero-shot+views=0.3 tpt tpt+views=0.3
        views-8-kept-0.1 zero-shot+views=0.3 tpt
    """
    counts = sorted(set(options.counts), reverse=True)
    named = dict.fromkeys(name for name in options.method if name != UNTUNED)
    tuned = [name for name in named if resolve_method(name).method.tunes_on_views]
    others = [name for name in named if name not in tuned]
    parts = []
    for count in counts:
        for kept in dict.fromkeys(options.kept):
            methods = list(tuned)
            if kept == options.kept[0]:  # what is not tuned needs no second share
                methods = [*read_out([UNTUNED], options.shares), *others, *tuned]
            if kept == options.kept[0] and count == counts[0]:
                dial = read_out(tuned, options.shares)
                methods = [UNTUNED, *methods, *dial]
            if methods:
                parts.append(Part(f"views-{count}-kept-{kept:g}", tuple(methods), count, kept))
    return parts


def read_out(methods: Iterable[str], shares: Iterable[float]) -> list[str]:
    """Return methods that end in the mean over each share of the views.

    Example:
        >>> read_out(["d-tpt@1e6"], [0.1, 0.3])
        ['d-tpt+views=0.1@1e6', 'd-tpt+views=0.3@1e6']
    """
    found = []
    for name in methods:
        parsed = parse_label(name)
        found += [str(parsed.with_modifier(f"views={share:g}")) for share in dict.fromkeys(shares)]
    return found


def setting_of(key: Key, part: Part) -> Setting:
    """Read a way to answer from the label of a method and its part.

    Example:
        >>> part = Part("views-64-kept-0.1", (), 64, 0.1)
        >>> str(setting_of(Key(part.name, "d-tpt+views=0.3@1e6"), part))
        'd-tpt@1e6, 64 views, tuned on 0.1, read from 0.3'
    """
    parsed, resolved = parse_label(key.label), resolve_method(key.label)
    return Setting(
        method=str(parsed.without_views()),
        views=part.views if resolved.uses_views else 1,
        kept=part.kept if resolved.method.tunes_on_views else None,
        share=parsed.views,
    )


def _study_family(family: FamilyAnswers, parts: Mapping[str, Part]) -> FamilyViews:
    answers = {setting_of(key, parts[key.part]): found for key, found in family.answers.items()}
    most = max(setting.views for setting in answers)
    rows = []
    for method in dict.fromkeys(setting.method for setting in answers):
        own = [setting for setting in answers if setting.method == method]
        full = [setting for setting in own if setting.views == most]
        to_most = _compared(answers, [(one, replace(one, views=most)) for one in own])
        to_original = _compared(answers, [(one, one.original) for one in own])
        to_untuned = _compared(answers, [(one, one.untuned) for one in full])
        for one in own:
            rows.append(
                SettingRow(
                    setting=one,
                    **_passes(one),
                    estimates=estimates(answers[one], MEASURED),
                    to_most=to_most.get(one, ()),
                    to_original=to_original.get(one, ()),
                    to_untuned=to_untuned.get(one, ()),
                )
            )
    return FamilyViews(family.title, family.sets, tuple(rows), _few_against_many(answers, most))


def _passes(setting: Setting) -> dict[str, int]:
    read = [] if setting.share is None else [setting.share]
    (method,) = read_out([setting.method], read) or [setting.method]
    spent = method_cost(resolve_method(method), views=setting.views)
    return {
        "image_passes": spent.image_passes,
        "text_passes": spent.text_forward + spent.text_backward,
    }


def _compared(
    answers: Mapping[Setting, PooledPredictions], pairs: Iterable[tuple[Setting, Setting]]
) -> dict[Setting, tuple[Comparison, ...]]:
    """Return the differences of those pairs of which both exist and differ, by the first."""
    known = [(one, other) for one, other in pairs if one != other and other in answers]
    named = {str(setting): answers[setting] for pair in known for setting in pair}
    found = differences(named, [(str(one), str(other)) for one, other in known])
    return {one: found[str(one), str(other)] for one, other in known}


def _few_against_many(
    answers: Mapping[Setting, PooledPredictions], most: int
) -> tuple[FewAgainstMany, ...]:
    """Compare zero-shot read from few views with every tuned method at the most views."""
    pairs = list(_duels(answers, most))
    named = {str(setting): answers[setting] for pair in pairs for setting in pair}
    found = differences(named, [(str(few), str(many)) for few, many in pairs])
    return tuple(FewAgainstMany(few, many, found[str(few), str(many)]) for few, many in pairs)


def _duels(answers: Iterable[Setting], most: int) -> Iterator[tuple[Setting, Setting]]:
    settings = list(answers)
    cheap = [Setting(UNTUNED, FEW_VIEWS, None, share) for share in FEW_SHARES]
    dear = [one for one in settings if one.views == most and one.kept and one.share is None]
    for few in cheap:
        if few in settings and most > FEW_VIEWS:
            yield from ((few, many) for many in dear)
