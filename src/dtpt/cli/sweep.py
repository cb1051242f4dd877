"""`dtpt sweep`: a grid of λ for the regularised methods, the data of the Pareto figure."""

from dtpt.cli.eval import FIRST, run_and_show
from dtpt.cli.flags import AsJson, Flags, flags_of
from dtpt.methods import PAPER_METHODS, find_method, parse_label
from dtpt.options import EvalOptions


@flags_of(EvalOptions, first=FIRST, defaults={"method": PAPER_METHODS})
class SweepFlags(Flags):
    """The options of `eval`, with the paper's methods."""


def sweep(*, flags: SweepFlags | None = None, as_json: AsJson = False) -> None:
    """Evaluate a grid of lambda for every regularised method, sharing all other work.

    Without --lambda each method has a grid around its default. Zero-shot and TPT are the anchors.
    The options are those of `dtpt eval`.

    Args:
        flags: The options.
        as_json: Print the content of results.json.
    """
    options = (flags or SweepFlags()).options(EvalOptions, table="sweep")
    run_and_show(with_grids(options), as_json=as_json)


def with_grids(options: EvalOptions) -> EvalOptions:
    """Write every λ of the grid into the method names; a method with its own `@` keeps it."""
    if options.lambda_:
        return options
    methods = []
    for name in options.method:
        parsed = parse_label(name)
        grid = () if parsed.rule else find_method(parsed.base).sweep
        methods += [str(parsed.with_lambda(value)) for value in grid] or [name]
    return options.model_copy(update={"method": tuple(methods)})
