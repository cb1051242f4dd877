"""What a method costs per picture, counted in passes through CLIP's towers."""

from dataclasses import dataclass

from dtpt.methods.base import ResolvedMethod


@dataclass(frozen=True)
class Cost:
    """Passes for one picture; those of one run share more (see `dtpt.tuning`).

    Attributes:
        image_passes: pictures that the image tower encodes.
        text_forward: passes over all class prompts.
        text_backward: passes back through them.
    """

    image_passes: int
    text_forward: int
    text_backward: int


def cost(method: ResolvedMethod, *, views: int = 64, steps: int = 1) -> Cost:
    """Count the passes of one method on one picture.

    The text features before tuning are the same for every picture and are not counted.

    Example:
        >>> from dtpt.methods import resolve_method
        >>> cost(resolve_method("d-tpt"))
        Cost(image_passes=64, text_forward=1, text_backward=1)
        >>> cost(resolve_method("zero-shot"))
        Cost(image_passes=1, text_forward=0, text_backward=0)
    """
    through_tower = method.method.tunes_on_views and method.method.parameter == "context"
    passes = steps if through_tower else 0
    return Cost(views if method.uses_views else 1, passes, passes)
