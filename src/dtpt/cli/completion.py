"""`dtpt --install-completion`; what shells offer for a flag is in `flags`."""

from pathlib import Path
from typing import Any

from cyclopts.completion.install import create_install_completion_command


def _install(**options: Any) -> Path:
    from dtpt.cli.main import make_app

    return make_app().install_completion(**options)  # of all commands, with their flags


install_completion = create_install_completion_command(_install, add_to_startup=True)
