"""`dtpt reproduce TARGET --floors`: how much of the paper's ECE is chance."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtpt.report.paper.floors import PaperFloor
    from dtpt.report.paper.targets import Target


def show_floors(target: "Target", *, as_json: bool) -> None:
    """Print the floors of a target's data sets beside the paper's ECE."""
    from dtpt.report.paper.floors import paper_floors

    names = {run.model: run.datasets for run in target.runs}
    found = {model: paper_floors(model, datasets) for model, datasets in names.items()}
    if as_json:
        rows = {model: [asdict(floor) for floor in floors] for model, floors in found.items()}
        print(json.dumps(rows, indent=2))
        return
    for model, floors in found.items():
        _print_table(model, floors)
    print(
        "Floor: expected ECE (%) of a perfectly calibrated model with as many pictures, 20 bins\n"
        "and confidences from a beta distribution around TPT's accuracy (concentration 1 to 5);\n"
        "±: standard deviation of such an ECE. What lies near the floor is mostly chance."
    )


def _print_table(model: str, floors: "list[PaperFloor]") -> None:
    from rich.table import Table

    from dtpt.cli.output import wide_console
    from dtpt.methods import method_title
    from dtpt.report.paper.floors import METHODS
    from dtpt.report.set_titles import set_title

    table = Table(title=f"ECE in the paper and by chance, {model}", title_justify="left")
    table.add_column("data set", no_wrap=True)
    for head in ("pictures", "floor", "±", *(method_title(name) for name in METHODS)):
        table.add_column(head, justify="right", no_wrap=head == "floor")
    for floor in floors:
        printed = [floor.printed.get(name) for name in METHODS]
        table.add_row(
            set_title(floor.dataset),
            f"{floor.pictures:,}",
            f"{100 * floor.low:.2f}–{100 * floor.high:.2f}",
            f"{100 * floor.deviation:.2f}",
            *("—" if value is None else f"{100 * value:.2f}" for value in printed),
        )
    wide_console().print(table)
