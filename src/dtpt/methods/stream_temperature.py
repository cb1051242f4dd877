"""A temperature for stream methods, learned without labels: `tda+stream-temperature`.

Online methods raise confidence by more than accuracy. The confidence of zero-shot, which they start
from, does not grow along a stream. So the adapted logits z are scaled by b > 0, b = 1 at first, and
after image i the scale moves towards equal mean confidences (Robbins and Monro):

    answer  softmax(b z)
    log b ← log b + 2/√i (c - max softmax(b z))

where c is the confidence of zero-shot in the same image, or that of `mean-views` for a method that
sees the views. At the fixed point the stream has the mean confidence of the reference. Labels, the
order and the accuracy do not change: a gain in accuracy makes the answer a little underconfident
if the reference was calibrated.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dtpt.errors import MethodError
from dtpt.methods.base import InitialState, Method, Modifier, Step, Tensor
from dtpt.methods.mean_views import mean_of_confident
from dtpt.methods.zero_shot import class_logits

NAME = "stream-temperature"
RATE = 2.0


class Scaled(NamedTuple):
    inner: Any  # state of the method
    log_scale: Tensor  # () log b
    seen: Tensor  # () images


@dataclass(frozen=True)
class _Initial:
    inner: InitialState

    def __call__(self, text: Tensor, *, logit_scale: float) -> Scaled:
        zero = text.new_zeros(())
        return Scaled(self.inner(text, logit_scale=logit_scale), zero, zero)


@dataclass(frozen=True)
class _Step:
    inner: Step
    original: bool

    def __call__(
        self, state: Scaled, views: Tensor, *, text: Tensor, logit_scale: float
    ) -> tuple[Tensor, Scaled]:
        logits, inner = self.inner(state.inner, views, text=text, logit_scale=logit_scale)
        if self.original:
            reference = class_logits(views[0], text, logit_scale=logit_scale)
        else:
            reference = mean_of_confident(views, text, logit_scale=logit_scale)
        answer = state.log_scale.exp() * logits
        excess = answer.softmax(dim=-1).max() - reference.softmax(dim=-1).max()
        seen = state.seen + 1
        return answer, Scaled(inner, state.log_scale - RATE / seen.sqrt() * excess, seen)


def with_temperature(method: Method) -> Method:
    """Return a stream method whose mean confidence follows that of its reference."""
    initial, step, original = method.initial, method.step, method.original
    if initial is None or step is None:
        raise MethodError(
            f"{method.name} carries no state: +{NAME} is for stream methods, +ts=1.16 for others."
        )
    steps = {name: _Step(own, original) for name, own in method.step_of.items()}
    return replace(method, initial=_Initial(initial), step=_Step(step, original), step_of=steps)


STREAM_TEMPERATURE = Modifier(NAME, "with stream temperature", stream=with_temperature)
