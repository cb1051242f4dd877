"""Everything a report says, put together once and then rendered as page, card and files."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dtpt.analysis.results import Analysis
from dtpt.data import family_title
from dtpt.report.cells import Block, Gathered
from dtpt.report.columns import COLUMNS
from dtpt.report.commands import report_command, row_command, run_command
from dtpt.report.drawing import Drawing, analysis_drawings, block_drawings
from dtpt.report.intervals import interval_by_bootstrap
from dtpt.report.mistakes import Mistake, chosen_method, worst_mistakes
from dtpt.report.tables import IntervalOf, Table, family_table, prompt_table, set_table


@dataclass(frozen=True)
class ContentBlock:
    """What the report says about one model, prompt and tuning setting.

    Attributes:
        block: Its cells.
        title: Name for headings.
        means: Tables of means, one per family.
        sets: (family, one table per metric) over the sets.
        mistakes: The most confident ones.
        mistakes_of: Method and λ they belong to.
        rows: (row title, command) of each row of the tables of means.
    """

    block: Block
    title: str
    means: tuple[Table, ...]
    sets: tuple[tuple[str, tuple[Table, ...]], ...]
    mistakes: tuple[Mistake, ...]
    mistakes_of: tuple[str, float | None]
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Content:
    """The whole report as data.

    Attributes:
        title: Headline.
        gathered: What was read.
        blocks: One per model, prompt and tuning setting.
        prompt_tables: Prompt-initialisation tables.
        drawings: Figures of the runs.
        analysis: An analysis file; None without one.
        analysis_drawings: Its figures.
        commands: That make runs and report again.
        date: When the report was made (UTC).
        version: Of dtpt.
    """

    title: str
    gathered: Gathered
    blocks: tuple[ContentBlock, ...]
    prompt_tables: tuple[Table, ...]
    drawings: tuple[Drawing, ...]
    analysis: Analysis | None
    analysis_drawings: tuple[Drawing, ...]
    commands: tuple[str, ...]
    date: str
    version: str

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, means first."""
        means = [table for block in self.blocks for table in block.means]
        sets = [table for block in self.blocks for _, group in block.sets for table in group]
        return (*means, *self.prompt_tables, *sets)


def compose(
    gathered: Gathered,
    *,
    output: Path,
    analysis: Analysis | None = None,
    extra: Sequence[Drawing] = (),
    bootstrap: int = 0,
    data_root: Path | None = None,
    title: str = "",
) -> Content:
    """Compute tables, figures and words of a report.

    Args:
        gathered: What was read from the runs.
        output: Folder of the report, for its command.
        analysis: Found by `dtpt analyze`; adds its figures.
        extra: Further figures, shown first.
        bootstrap: Resamples for 95 % intervals; 0 for none.
        data_root: Where the pictures of mistakes are looked for.
        title: Headline; made from models and sets when empty.
    """
    interval = interval_by_bootstrap(bootstrap) if bootstrap else None
    many = len(gathered.blocks) > 1
    blocks = tuple(
        _content_block(gathered, block, f"b{i}-" if many else "", interval, data_root)
        for i, block in enumerate(gathered.blocks, start=1)
    )
    drawings = [
        drawing
        for i, part in enumerate(blocks, start=1)
        for drawing in block_drawings(part.block, part.means, prefix=f"b{i}-" if many else "")
    ]
    return Content(
        title=title or _title(gathered.blocks),
        gathered=gathered,
        blocks=blocks,
        prompt_tables=tuple(_prompt_tables(gathered.blocks)),
        drawings=(*extra, *drawings),
        analysis=analysis,
        analysis_drawings=tuple(analysis_drawings(analysis)) if analysis else (),
        commands=(
            *dict.fromkeys(run_command(source) for source in gathered.sources),
            report_command(gathered.sources, output),
        ),
        date=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
        version=_version(),
    )


def _content_block(
    gathered: Gathered,
    block: Block,
    prefix: str,
    interval: IntervalOf | None,
    data_root: Path | None,
) -> ContentBlock:
    means = tuple(
        family_table(block, family, key=f"{prefix}{family}", interval=interval)
        for family in block.families
    )
    sets = tuple(
        (
            family_title(family),
            tuple(
                set_table(
                    block, family, metric, key=f"{prefix}{family}-{metric.key}", interval=interval
                )
                for metric in COLUMNS
            ),
        )
        for family in block.families
        if len(block.sets_of(family)) > 1
    )
    rows = tuple(
        (f"{table.title}: {row.title}", row_command(block, table.sets, row.method, row.lambda_))
        for table in means
        for row in table.rows
    )
    return ContentBlock(
        block=block,
        title=block_title(block),
        means=means,
        sets=sets,
        mistakes=tuple(worst_mistakes(gathered, block, data_root=data_root)),
        mistakes_of=chosen_method(block),
        rows=rows,
    )


def block_title(block: Block) -> str:
    """Name a block: model, prompt, and a trained context where there is one."""
    context = " with trained context" if block.context else ""
    return f"{block.model}, “{block.template}”{context}"


def _prompt_tables(blocks: Sequence[Block]) -> list[Table]:
    found = []
    for fingerprint in dict.fromkeys(block.fingerprint for block in blocks):
        mine = [block for block in blocks if block.fingerprint == fingerprint]
        for family in dict.fromkeys(family for block in mine for family in block.families):
            table = prompt_table(mine, family, key=f"prompts-{family}-{fingerprint[:8]}")
            found += [table] if table is not None else []
    return found


def _title(blocks: Sequence[Block]) -> str:
    models = list(dict.fromkeys(block.model for block in blocks))
    sets = list(dict.fromkeys(name for block in blocks for name in block.datasets))
    what = f"{len(sets)} data sets" if len(sets) > 1 else sets[0]
    return f"{', '.join(models)} on {what}"


def _version() -> str:
    try:
        return version("dtpt")
    except PackageNotFoundError:
        return "(not installed)"
