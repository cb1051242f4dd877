"""The `dtpt` command: a table of subcommands, loaded only when they are called."""

import io
import sys

from cyclopts import App

from dtpt.cli.examples import add_examples
from dtpt.cli.exits import INTERRUPTED, NOBODY_READS, REFUSED, end, explain

# name on the command line -> "module:function"; imported lazily so that `--help` stays fast.
COMMANDS: dict[str, str] = {
    "predict": "dtpt.cli.predict:predict",
    "serve": "dtpt.cli.serve:serve",
    "methods": "dtpt.cli.methods:methods",
    "bench": "dtpt.cli.bench:app",
    "models": "dtpt.cli.models:app",
    "datasets": "dtpt.cli.datasets:app",
    "score": "dtpt.cli.score:score",
    "eval": "dtpt.cli.eval:evaluate_command",
    "sweep": "dtpt.cli.sweep:sweep",
    "merge": "dtpt.cli.merge:merge_command",
    "export": "dtpt.cli.export:export_command",
    "calibrate": "dtpt.cli.calibrate:calibrate",
    "analyze": "dtpt.cli.analyze:app",
    "cache": "dtpt.cli.cache:app",
    "report": "dtpt.cli.report:report",
    "compare": "dtpt.cli.compare:compare",
    "reproduce": "dtpt.cli.reproduce:reproduce",
    "demo": "dtpt.cli.demo:demo",
    "doctor": "dtpt.cli.doctor:doctor",
    "--install-completion": "dtpt.cli.completion:install_completion",
}

# The line of each command in `dtpt --help`; a lazy command's own help is not loaded for it.
SUMMARIES: dict[str, str] = {
    "predict": "Classify pictures with any method.",
    "serve": "Serve a page and an HTTP interface for one model, on this machine.",
    "methods": "List the methods and their default lambdas.",
    "bench": "Measure the speed of views, tuning, whole pictures, runs and the service.",
    "models": "List the known models; fetch one, or name one of your own.",
    "datasets": "List the data sets; check what is on disk.",
    "score": "Compute calibration metrics of anybody's predictions.",
    "eval": "Evaluate methods on data sets, resumably.",
    "sweep": "Evaluate a grid of lambda for the regularised methods.",
    "merge": "Join the shards of a run.",
    "export": "Write a run's results, samples or clip_benchmark's JSON.",
    "calibrate": "Promise calibrated confidence, prediction sets and rare errors.",
    "analyze": "Dominant dimensions, sensitivity, geometry, image dependence.",
    "cache": "Show, prune or verify the cache of view features.",
    "report": "Make tables, figures and one page from runs.",
    "compare": "Say which methods of a run can be told apart, and by how much.",
    "reproduce": "Run what one table or figure of the paper needs, and print it beside the paper.",
    "demo": "Compare the paper's methods on the embedded model and benchmark, in minutes.",
    "doctor": "Describe the installation for a bug report, and test it for seconds.",
    "--install-completion": "Let bash, zsh or fish complete commands and names.",
}


def make_app(chosen: str = "") -> App:
    """Return the command line; the chosen command describes itself, the others in one line."""
    made = App(
        name="dtpt",
        help="Calibrated test-time prompt tuning for CLIP-like models.",
        result_action="return_value",  # commands print for themselves
    )
    for name, target in COMMANDS.items():
        made.command(target, name=name, help=None if name == chosen else SUMMARIES.get(name))
    if chosen in COMMANDS:
        add_examples(made[chosen], chosen)
    return made


app = make_app()


def run() -> None:
    """Run a command; whatever is not a bug ends in one line on stderr and an exit code.

    The codes are in `dtpt.cli.exits`; a command that did part of its work exits by itself.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names are bytes; any of them can be printed
            stream.reconfigure(errors="backslashreplace")
    try:
        make_app(*sys.argv[1:2])(exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except BrokenPipeError:
        end("nobody reads the output any more.", NOBODY_READS)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        end(message, REFUSED)
