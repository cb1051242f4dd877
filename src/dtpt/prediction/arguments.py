"""What a caller gives a classifier, checked."""

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import ValidationError

from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError, PromptError, PromptWarning, explain, short_repr
from dtpt.views import ViewRecipe


def class_names(classes: Sequence[str]) -> tuple[str, ...]:
    """Return class names as the caller wrote them; `PromptSet.build` looks at each.

    Example:
        >>> class_names(["cat", "dog"])
        ('cat', 'dog')
    """
    if isinstance(classes, str | bytes) or not isinstance(classes, Iterable):
        raise PromptError(f"Classes must be a list of names, not {short_repr(classes)}.")
    return tuple(classes)


def view_recipe(views: object, augmix: bool) -> ViewRecipe:
    """Return the recipe for a number of views; a recipe stays as it is.

    Example:
        >>> view_recipe(8, augmix=False).count
        8
    """
    if not isinstance(augmix, bool):
        raise MethodError(f"augmix must be True or False, got {short_repr(augmix)}.")
    if isinstance(views, ViewRecipe):
        return views
    try:
        return ViewRecipe(count=whole_number(views, "views"), augmix=augmix)
    except ValidationError as error:
        reason = explain(error).removeprefix("count: ")
        raise MethodError(f"views: {reason}; the paper uses 64.") from None


def whole_number(value: object, name: str) -> int:
    """Return a whole number, Python's or NumPy's; truth values are none.

    Example:
        >>> whole_number(np.int64(3), "seed")
        3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise MethodError(f"{name} must be a whole number, got {short_repr(value)}.")
    return int(value)


def check_prompts(prompts: PromptSet) -> None:
    """Refuse what can only be answered one way; warn about classes that nothing tells apart."""
    if len(prompts.names) < 2:
        raise PromptError(
            f"One class ({prompts.names[0]!r}) leaves nothing to decide: give at least two."
        )
    for group in prompts.duplicates:
        names = ", ".join(repr(name) for name in group)
        warnings.warn(
            f"Classes with the same prompt share their probability: {names}.",
            PromptWarning,
            stacklevel=4,
        )
