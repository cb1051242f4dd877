"""What readers must know before they believe a table: missing rows, failures, mixtures."""

from collections.abc import Iterable, Sequence

from dtpt.report.cells import Block, Source

SHOWN = 20


def remarks(sources: Sequence[Source], blocks: Sequence[Block]) -> Iterable[str]:
    """Say what is missing, failed or mixed, in sentences."""
    for block in blocks:
        yield from _missing_remarks(block)
    seen = {failure for source in sources for failure in source.failures}
    for name in dict.fromkeys(dataset for dataset, _, _ in sorted(seen)):
        failed = sorted(failure for failure in seen if failure[0] == name)
        yield (
            f"{name}: {len(failed)} pictures could not be read and are in no metric, first "
            f"{failed[0][1]} ({failed[0][2]})."
        )
    yield from dict.fromkeys(text for source in sources for text in source.remarks)
    versions = dict.fromkeys(source.spec.code_version for source in sources)
    if len(versions) > 1:
        yield f"The runs were computed by different versions of dtpt: {', '.join(versions)}."
    yield from _sharing_remarks(blocks)
    limited = [n for b in blocks for n, entry in b.datasets.items() if entry.limit is not None]
    if limited:
        names = ", ".join(dict.fromkeys(limited))
        yield f"Only a part of these sets was evaluated (--limit): {names}."


def _missing_remarks(block: Block) -> Iterable[str]:
    unfinished = [cell for cell in block.cells.values() if not cell.is_finished]
    for cell in unfinished[:SHOWN]:
        yield (
            f"{block.model}, {cell.dataset}, {cell.label}, seed {cell.seed}: "
            f"{cell.effective:,} of {cell.expected:,} pictures are evaluated; it enters no mean."
        )
    if len(unfinished) > SHOWN:
        yield f"{len(unfinished) - SHOWN} further cells are unfinished and enter no mean."


def _sharing_remarks(blocks: Sequence[Block]) -> Iterable[str]:
    for name in dict.fromkeys(block.model for block in blocks):
        prints = {block.fingerprint for block in blocks if block.model == name}
        if len(prints) > 1:
            short = ", ".join(sorted(text[:12] for text in prints))
            yield f"{name} stands for {len(prints)} different models ({short}): tables are apart."
