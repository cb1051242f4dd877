"""`dtpt publish`, `verify` and `leaderboard`: results that others can read, check and rank."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from dtpt.cli.exits import FAILED
from dtpt.cli.flags import AsJson, DataRoot
from dtpt.cli.output import emit
from dtpt.errors import OptionError
from dtpt.files import printable
from dtpt.tables import text_table


def publish(
    run: str, /, *more: str, keep: Literal["all", "top5"] = "all", as_json: AsJson = False
) -> None:
    """Write results, rows, a card and hashes of runs into a folder that others can check.

    Several runs are joined: those of a colleague under other seeds, added methods or data sets, and
    shards. All else about them must be equal, and every method needs all images under all seeds.
    Names of machines and folders of data are left out.

    Args:
        run: Run folder, with its shards if it has any, or a published run.
        more: Further runs, and last where to: a new folder, one that was published before, or
            hub:ORG/NAME, a data set of the Hugging Face hub (HF_TOKEN).
        keep: Publish all probabilities, or the five largest (a row of 1000 classes is 2 kB or 0.2).
    """
    from dtpt.report.leaderboard import publish_with_card

    *runs, target = run, *more
    if not runs:
        raise OptionError("Name the folder to publish to: dtpt publish RUN... FOLDER.")
    repo = target.removeprefix("hub:")
    if repo == target:
        written = publish_with_card(runs, Path(target), keep_all=keep == "all")
        emit(written, *map(printable, written), as_json=as_json)
        return
    from dtpt.clip.loading.hub import push_results

    with TemporaryDirectory(prefix="dtpt-") as scratch:
        folder = Path(scratch) / "published"
        publish_with_card(runs, folder, keep_all=keep == "all")
        address = push_results(folder, repo)
    emit({"address": address}, address, as_json=as_json)


def verify(folder: Path, /, *, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Recompute a published run from its rows and compare it with data sets on this machine.

    Exit code 0: no check failed (what could not be checked is named); 2: some failed.

    Args:
        folder: A folder that `dtpt publish` wrote.
    """
    from dtpt.runs.verification import verify as verify_folder

    found = verify_folder(folder, data_root=data_root)
    rows = [(check.kind, check.outcome, check.text) for check in found.checks]
    document = {"verified": found.is_verified, "checks": found.checks}
    emit(document, text_table("", ("check", "outcome", "what"), rows=rows), as_json=as_json)
    if not found.is_verified:
        sys.exit(FAILED)


def leaderboard(
    *folders: Path,
    output: Path = Path("leaderboard.html"),
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Rank published runs on one self-contained page; overlapping intervals are ties.

    Every run is verified first. The records of the package are the first entries.

    Args:
        folders: Folders that `dtpt publish` wrote.
        output: The page.
    """
    from dtpt.report.leaderboard import write_leaderboard

    found = write_leaderboard(list(folders), output, data_root=data_root)
    runs = [{"name": one.name, "outcome": one.outcome} for one in found]
    table = text_table("", ("published run", "rows"), rows=[tuple(run.values()) for run in runs])
    document = {"page": output, "runs": runs}
    emit(document, table, printable(output.resolve()), as_json=as_json)
