"""`dtpt --install-completion`, and the names that are offered when somebody presses Tab."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dtpt.errors import OptionError

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
    when it starts. Do it again after an update of dtpt.

    Args:
        shell: Your shell; found out when not given.
        output: File for the script, instead of the shell's own place.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell

    from dtpt.cli.main import make_app
    from dtpt.files import printable

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
    """Return the names that `--model` may be."""
    from dtpt.clip.loading.names import EMBEDDED, added_models, catalog

    return [EMBEDDED, *catalog(), *(name for name in added_models() if name not in catalog())]


def offer_methods(context: "CompletionContext") -> list[str]:
    """Return the names of methods, after those that are typed already."""
    from dtpt.methods import known_methods

    return _listed(known_methods(), context.incomplete)


def offer_datasets(context: "CompletionContext") -> list[str]:
    """Return the names of data sets and groups, after those that are typed already."""
    from dtpt.data import DATASETS, GROUPS

    return _listed([*DATASETS, *GROUPS], context.incomplete)


def offer_targets(_: "CompletionContext") -> Iterable[str]:
    """Return the tables and figures of the paper."""
    from dtpt.report.paper.targets import target_names

    return target_names()


def _listed(names: Iterable[str], typed: str) -> list[str]:
    """Put what stands before the last comma in front of every name."""
    before = typed[: typed.rfind(",") + 1]
    return [before + name for name in names]
