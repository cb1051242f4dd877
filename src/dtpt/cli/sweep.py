"""`dtpt sweep`: a grid of λ for the regularised methods, the data of the Pareto figure."""

from typing import TYPE_CHECKING

from dtpt.cli.eval import EvalFlags, run_and_show

if TYPE_CHECKING:
    from dtpt.runs import EvalOptions

DEFAULT_METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt")


def sweep(*, flags: EvalFlags | None = None) -> None:
    """Evaluate a grid of lambda for every regularised method, sharing all other work.

    Without --lambda each method has a grid around its default. Zero-shot and TPT are the anchors.

    Args:
        flags: The options, as for `dtpt eval`.
    """
    options = (flags or EvalFlags()).options("sweep", defaults={"method": DEFAULT_METHODS})
    run_and_show(with_grids(options))


def with_grids(options: "EvalOptions") -> "EvalOptions":
    """Write every λ of the grid into the method names; a method with its own `@` keeps it."""
    if options.lambda_:
        return options
    methods = []
    for name in options.method:
        grid = () if "@" in name else _grid(name)
        methods += [f"{name}@{value:g}" for value in grid] or [name]
    return options.model_copy(update={"method": tuple(methods)})


def _grid(name: str) -> tuple[float, ...]:
    """Return the grid of a method, from its own file."""
    from dtpt.methods import find_method

    return find_method(name.partition("+")[0]).sweep
