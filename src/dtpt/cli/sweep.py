"""`dtpt sweep`: a grid of λ for the regularised methods, the data of the Pareto figure."""

from typing import TYPE_CHECKING

from dtpt.cli.eval import EvalFlags, run_and_show

if TYPE_CHECKING:
    from dtpt.runs import EvalOptions

# protocol.md, question 16: the paper gives no grid; about log-spaced around the defaults
GRIDS: dict[str, tuple[float, ...]] = {
    "c-tpt": (1, 2, 5, 10, 20, 50, 100, 200),
    "o-tpt": (1, 2, 5, 10, 18, 50, 100),
    "d-tpt": (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6),
    "a-tpt": (1, 2, 5, 10, 20, 40, 80, 160),
}
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
    """Return the grid of a method; one that has none of its own gets its default times 10^±1."""
    from dtpt.methods import resolve_method

    base = name.partition("+")[0]
    if base in GRIDS:
        return GRIDS[base]
    default = resolve_method(name).lambda_
    if default is None:
        return ()
    return tuple(default * factor for factor in (0.1, 0.3, 1.0, 3.0, 10.0))
