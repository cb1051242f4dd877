"""`dtpt sweep`: a grid of λ for the regularised methods, the data of the Pareto figure."""

from dtpt.cli.eval import EvalFlags, automatic_workers, run_and_show
from dtpt.cli.flags import AsJson
from dtpt.runs.options import EvalOptions


def sweep(*, flags: EvalFlags | None = None, as_json: AsJson = False) -> None:
    """Evaluate a grid of lambda for every regularised method, sharing all other work.

    Without --lambda each method has a grid around its default. Zero-shot and TPT are the anchors.
    The options are those of `dtpt eval`.

    Args:
        flags: The options.
        as_json: Print the content of results.json.
    """
    from dtpt.methods import PAPER_METHODS

    defaults = {"workers": automatic_workers(), "method": PAPER_METHODS}
    options = (flags or EvalFlags()).options(EvalOptions, table="sweep", defaults=defaults)
    run_and_show(with_grids(options), as_json=as_json)


def with_grids(options: EvalOptions) -> EvalOptions:
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
