"""How commands print: tables that fit, and broken pipes that end the command in order."""

import sys
from typing import NoReturn

from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 120


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `dtpt.cli.main.run`, as for everything else that is printed."""
        raise BrokenPipeError


def wide_console() -> Console:
    """Return a console for tables: as wide as the terminal, or 120 columns in files and pipes."""
    return _Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
