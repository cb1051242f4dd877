"""The `dtpt` command: one table of commands, imported only when they are called."""

import io
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from cyclopts import App

from dtpt.cli.exits import BROKEN_PIPE, FAILED, INTERRUPTED, end, explain
from dtpt.cli.flags import DEFAULT, read_config, read_environment


class Command(NamedTuple):
    """A command: its line in the list, "module:function" in dtpt.cli, and lines for its help."""

    summary: str
    target: str
    examples: tuple[str, ...]


# "models fetch" is the command fetch of the group models; a group may be a command itself.
COMMANDS: dict[str, Command] = {
    "predict": Command(
        "Classify images with any method.",
        "predict:predict",
        (
            "dtpt predict photo.jpg --classes cat,dog --model ViT-B-16/openai",
            "dtpt predict *.png --classes-file names.txt --method d-tpt@auto --json",
        ),
    ),
    "serve": Command(
        "Serve a page and an HTTP interface for one model, on this machine.",
        "serve:serve",
        ("dtpt serve --open", "dtpt serve --model ViT-B-16/openai --port 8080"),
    ),
    "methods": Command(
        "List the methods and their default λ.",
        "methods:methods",
        ("dtpt methods", "dtpt methods --compare runs/latest"),
    ),
    "models": Command(
        "List the known models; fetch one, or name one of your own.",
        "models:models",
        ("dtpt models", "dtpt models fetch ViT-B-16/openai"),
    ),
    "models fetch": Command(
        "Download a model into the Hugging Face cache.",
        "models:fetch",
        ("dtpt models fetch ViT-B-16/openai",),
    ),
    "models add": Command(
        "Give a checkpoint on this machine a name that all commands know.",
        "models:add",
        (
            "dtpt models add flowers ~/checkpoints/flowers --activation gelu",
            "dtpt models add ViT-B-16/openai ~/checkpoints/ViT-B-16.pt",
        ),
    ),
    "models remove": Command(
        "Remove a name that was added.", "models:remove", ("dtpt models remove flowers",)
    ),
    "datasets": Command(
        "List the data sets; check what is on disk.",
        "datasets:datasets",
        ("dtpt datasets --data-root ~/data",),
    ),
    "datasets check": Command(
        "Compare data sets with the complete ones.",
        "datasets:check",
        ("dtpt datasets check dtd,eurosat --data-root ~/data --deep",),
    ),
    "score": Command(
        "Compute calibration metrics of a file of predictions.",
        "score:score",
        (
            "dtpt score predictions.csv",
            "dtpt score predictions.npz --bootstrap 1000 --diagram reliability.svg",
        ),
    ),
    "eval": Command(
        "Evaluate methods on data sets, resumably.",
        "eval:evaluate",
        (
            "dtpt eval --dataset openmoji/food-drink --limit 64",
            "dtpt eval --dataset folder:images --method zero-shot,d-tpt@1e6 --seed 0,1,2",
            "dtpt eval --model RN50/openai --dataset dtd --data-root ~/data",
            "dtpt eval --dataset openmoji --engine ray=10.0.0.7:6379 --plan",
        ),
    ),
    "sweep": Command(
        "Evaluate a grid of λ for the regularised methods.",
        "eval:sweep",
        ("dtpt sweep --dataset openmoji/objects --limit 64 --output runs/sweep",),
    ),
    "merge": Command(
        "Merge the shards of a run.",
        "eval:merge",
        ("dtpt merge runs/latest", "dtpt merge runs/latest --partial"),
    ),
    "export": Command(
        "Write a run's results, samples or clip_benchmark's JSON.",
        "eval:export",
        ("dtpt export runs/latest --format parquet --output exports",),
    ),
    "calibrate": Command(
        "Fit calibrated confidence, prediction sets and abstention to a run.",
        "calibrate:calibrate",
        (
            "dtpt calibrate runs/latest --method d-tpt --output calibration.json",
            "dtpt calibrate runs/latest --method tpt,d-tpt --check 200",
        ),
    ),
    "analyze": Command(
        "Dominant dimensions, sensitivity, geometry, image dependence.",
        "analyze:analyze",
        ("dtpt analyze --dataset openmoji/food-drink --limit 64",),
    ),
    "analyze basis": Command(
        "Rotate the joint space of images and texts, and compare.",
        "analyze_studies:basis",
        ("dtpt analyze basis --dataset openmoji/food-drink --limit 64",),
    ),
    "analyze controls": Command(
        "Compare regularisers with random directions and smaller steps.",
        "analyze_studies:controls",
        ("dtpt analyze controls --dataset openmoji/objects --limit 64",),
    ),
    "analyze views": Command(
        "Measure what fewer views cost and what a mean over views gives.",
        "analyze_studies:views",
        ("dtpt analyze views --dataset openmoji/objects --limit 64",),
    ),
    "analyze regularisers": Command(
        "Compare the first steps of all regularisers.",
        "analyze_studies:regularisers",
        ("dtpt analyze regularisers --dataset dtd,eurosat",),
    ),
    "cache": Command(
        "Show, prune or verify the cache of view features.",
        "",
        ("dtpt cache show", "dtpt cache prune --limit 500MB"),
    ),
    "cache show": Command(
        "Show the cache's folder, size and limit.", "cache:show", ("dtpt cache show",)
    ),
    "cache prune": Command(
        "Remove the least recently used shards.",
        "cache:prune",
        ("dtpt cache prune --limit 500MB",),
    ),
    "cache verify": Command(
        "Remove shards that do not match their checksum.", "cache:verify", ("dtpt cache verify",)
    ),
    "report": Command(
        "Make tables, figures and one page from runs.",
        "report:report",
        ("dtpt report runs/latest", "dtpt report runs/a runs/b --output page"),
    ),
    "compare": Command(
        "Test which methods of some runs differ significantly, and by how much.",
        "compare:compare",
        ("dtpt compare runs/latest", "dtpt compare runs/latest --against tpt --json"),
    ),
    "reproduce": Command(
        "Run what one table or figure of the paper needs, and print it beside the paper.",
        "reproduce:reproduce",
        (
            "dtpt reproduce table1 --data-root ~/data --dry-run",
            "dtpt reproduce table4 --dataset dtd,eurosat --seed 0 --data-root ~/data",
            "dtpt reproduce table2 --partial --data-root ~/data",
        ),
    ),
    "demo": Command(
        "Compare the paper's methods on the embedded model and benchmark, in minutes.",
        "demo:demo",
        ("dtpt demo", "dtpt demo --full --output demo-output"),
    ),
    "doctor": Command(
        "Describe the installation for a bug report, and test it for seconds.",
        "doctor:doctor",
        ("dtpt doctor", "dtpt doctor --json"),
    ),
    "--install-completion": Command(
        "Let bash, zsh or fish complete commands and names.",
        "completion:install_completion",
        ("dtpt --install-completion", "dtpt --install-completion --shell zsh"),
    ),
}


def make_app(words: Collection[str] | None = None) -> App:
    """Return the command line.

    Args:
        words: Commands in these words have their whole help; all others only their summary, so
            that they need not be imported. Without words all commands are whole.
    """
    app = App(
        name="dtpt",
        help="Calibrated test-time prompt tuning for CLIP-like models.",
        result_action="return_value",  # commands print for themselves
        default_parameter=DEFAULT,
        config=(read_environment, read_config),
    )
    groups = {name.partition(" ")[0] for name in COMMANDS if " " in name}
    for name, command in COMMANDS.items():
        group, _, own = name.rpartition(" ")
        is_called = words is None or own in words
        # with a summary, cyclopts ignores the docstring of the function
        summary = None if is_called and command.target else command.summary
        examples = "Examples:\n\n```\n" + "\n".join(command.examples) + "\n```"
        parent = app[group] if group else app
        if name in groups:
            made = App(name=own, help=summary, help_epilogue=examples)
            if command.target and is_called:
                made.default(_load(command.target))
            parent.command(made)
        else:
            target = f"dtpt.cli.{command.target}"
            parent.command(target, name=own, help=summary, help_epilogue=examples)
    return app


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(f"dtpt.cli.{module}"), name)


def call(words: Sequence[str]) -> None:
    """Run a command in this process; errors are raised, exit codes too (SystemExit)."""
    make_app(words)(words, exit_on_error=False, print_error=False)


def run() -> None:
    """Run the command of this process; errors that are not bugs become one line and a code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names are bytes; any of them can be printed
            stream.reconfigure(errors="backslashreplace")
    try:
        call(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        end("Broken pipe: the output was closed.", BROKEN_PIPE)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        end(message, FAILED)
