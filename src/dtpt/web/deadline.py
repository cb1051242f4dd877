"""Work that ends at its deadline: a check before every operation of torch."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode


class CheckedOperations(TorchFunctionMode):
    """Context in which `check` is called before every operation of torch in this thread.

    Every loop of encoders, tuning steps and methods calls torch, whoever wrote the method, so that
    work ends within one operation after `check` raises. Results keep their bits.

    Example:
        >>> import torch
        >>> calls = []
        >>> with CheckedOperations(lambda: calls.append("checked")):
        ...     total = torch.ones(3).sum()
        >>> len(calls)
        2
    """

    def __init__(self, check: Callable[[], object]) -> None:
        super().__init__()
        self._check = check

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self._check()
        return func(*args, **(kwargs or {}))
