"""`dtpt --install-completion`, and the names that shells offer when Tab is pressed."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dtpt.errors import OptionError
from dtpt.files import printable

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

Shell = Literal["bash", "zsh", "fish"]

HINTS: dict[Shell, str] = {
    "bash": "~/.bashrc loads it: start a new shell, or run `source ~/.bashrc`.",
    "zsh": "Its folder is in the fpath of ~/.zshrc, which must call compinit: start a new shell.",
    "fish": "Start a new shell.",
}


def install_completion(*, shell: Shell | None = None, output: Path | None = None) -> None:
    """Let a shell complete commands, options and names when you press Tab.

    Writes a script into your home and, for bash and zsh, a line into the file that the shell reads
    when it starts. Repeat it after an update of dtpt.

    Args:
        shell: Your shell; detected when not given.
        output: File for the script, instead of the shell's own path.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    from dtpt.cli.main import make_app

    try:
        chosen = shell or detect_shell()
    except ShellDetectionError:
        raise OptionError(f"Your shell is not known; give --shell {', '.join(HINTS)}.") from None
    if chosen == "powershell":
        raise OptionError(f"There is no completion for {chosen}; there is for {', '.join(HINTS)}.")
    written = make_app().install_completion(shell=chosen, output=output)
    print(f"Wrote {printable(written)}")
    print(HINTS[chosen])


def offer_models(_: "CompletionContext") -> list[str]:
    from dtpt.clip.loading.names import EMBEDDED, added_models, catalog

    return [EMBEDDED, *catalog(), *(name for name in added_models() if name not in catalog())]


def offer_methods(context: "CompletionContext") -> list[str]:
    from dtpt.methods import known_methods

    return _listed(known_methods(), context.incomplete)


def offer_datasets(context: "CompletionContext") -> list[str]:
    from dtpt.data import DATASETS, GROUPS

    return _listed([*DATASETS, *GROUPS], context.incomplete)


def offer_targets(_: "CompletionContext") -> Iterable[str]:
    from dtpt.report.paper.targets import target_names

    return target_names()


def _listed(names: Iterable[str], typed: str) -> list[str]:
    """Prepend what is typed before the last comma to every name."""
    before = typed[: typed.rfind(",") + 1]
    return [before + name for name in names]
