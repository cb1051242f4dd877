"""The `dtpt` command: commands.toml lists the commands; each is imported when it is called."""

import sys
import tomllib
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from cyclopts import App

from dtpt.cli.exits import BROKEN_PIPE, FAILED, INTERRUPTED, end, explain, open_streams
from dtpt.cli.flags import DEFAULT, check_whole_numbers, read_config, read_environment
from dtpt.terminal import Console, guarded

COMMANDS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text("utf-8")
)


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
        config=(read_environment, read_config, check_whole_numbers),
        console=Console(),
    )
    groups = {name.partition(" ")[0] for name in COMMANDS if " " in name}
    for name, command in COMMANDS.items():
        group, _, own = name.rpartition(" ")
        target = f"dtpt.cli.{command['target']}" if "target" in command else ""
        is_called = words is None or own in words
        # with a summary, cyclopts ignores the docstring of the function
        summary = None if is_called and target else command["summary"]
        examples = "Examples:\n\n```\n" + "\n".join(command["examples"]) + "\n```"
        parent = app[group] if group else app
        if name in groups:
            made = App(name=own, help=summary, help_epilogue=examples)
            if target and is_called:
                made.default(resolve_name(target))
            parent.command(made)
        else:
            parent.command(target, name=own, help=summary, help_epilogue=examples)
    return app


def call(words: Sequence[str]) -> None:
    """Run a command in this process; errors are raised, exit codes too (SystemExit)."""
    make_app(words)(words, exit_on_error=False, print_error=False)


def run() -> None:
    """Run the command of this process; errors that are not bugs become one line and a code."""
    open_streams()
    with guarded():
        try:
            call(sys.argv[1:])
            sys.stdout.flush()
        except BrokenPipeError:
            end("", BROKEN_PIPE)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except SystemExit as stop:
            if stop.code:
                raise
            # no command of ours does: one that is cut short must not look like one that is done
            end("The command was ended by a plug-in or a library that it called.", FAILED)
        except Exception as error:
            message = explain(error)
            if message is None:
                traceback.print_exc()
            end(message or "", FAILED)
