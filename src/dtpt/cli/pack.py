"""`dtpt pack`: view features of a data set in a folder, for evaluation without images."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dtpt.cli.exits import PARTIAL, resumable
from dtpt.cli.flags import AsJson, DataRoot
from dtpt.cli.output import emit
from dtpt.files import printable

if TYPE_CHECKING:
    from dtpt.data.pack import Pack


def export(
    run: Path,
    /,
    *,
    output: Path,
    dtype: Literal["float16", "float32"] = "float16",
    text: bool = False,
    dataset: str | None = None,
    licence: str = "",
    source: str = "",
    data_root: DataRoot = None,
    device: str = "auto",
    quiet: bool = False,
    as_json: AsJson = False,
) -> None:
    """Write the view features of a run's images to a feature pack; the same command resumes.

    Features come from the feature cache; those that are not there are encoded. Evaluate the pack
    with `dtpt eval --dataset pack:DIR`.

    Args:
        run: The run's folder: its model, images, views and seeds are taken.
        output: Folder of the pack.
        dtype: float32 gives the rows that the images give, bit for bit; float16 takes half.
        text: Also store the text features of the run's prompt: then the pack is a model, too.
        dataset: Of the run, if it has several.
        licence: Of images and model, in words.
        source: Where images and model come from, in words.
        device: Where features are encoded that the cache lacks.
        quiet: Show no progress.
    """
    from dtpt.runs import open_run
    from dtpt.runs.packing import export_pack
    from dtpt.runs.progress import make_reporter

    with open_run(run) as opened, resumable(output):
        pack = export_pack(
            opened,
            output,
            dataset=dataset,
            dtype=dtype,
            text=text,
            data_root=data_root,
            device=device,
            licence=licence,
            source=source,
            reporter=make_reporter(quiet=quiet),
        )
    _show(pack, as_json=as_json)


def info(folder: Path, /, *, as_json: AsJson = False) -> None:
    """Show what a feature pack holds and what made it; the features are not read.

    Args:
        folder: The pack.
    """
    from dtpt.data.pack import open_pack

    _show(open_pack(folder), as_json=as_json)


def verify(folder: Path, /, *, as_json: AsJson = False) -> None:
    """Check every file of a feature pack by its hash, and every feature; exit code 1 if one fails.

    Args:
        folder: The pack.
    """
    from dtpt.data.pack import open_pack

    pack = open_pack(folder)
    problems = list(pack.verify())
    found = f"{len(problems)} problems." if problems else "All files are intact."
    emit({"problems": problems}, *problems, found, as_json=as_json)
    if problems:
        sys.exit(PARTIAL)


def _show(pack: "Pack", *, as_json: bool) -> None:
    made = pack.manifest
    size = sum(file.size for file in made.files)
    facts = {
        "folder": str(pack.folder),
        "digest": pack.digest,
        "bytes": size,
        **made.model_dump(mode="json", exclude={"samples", "text", "classes", "views"}),
        "classes": len(made.classes),
        "views": [group.model_dump(mode="json", exclude={"shards"}) for group in made.views],
        "text_features": made.text is not None,
    }
    lines = [
        f"{printable(made.dataset)}: {made.images:,} images, {len(made.classes):,} classes, "
        f"{made.dimensions} dimensions, {made.dtype}, {size / 1e6:,.1f} MB",
        *(f"  views     {group.title}" for group in made.views),
        f"  model     {printable(made.model) or 'unknown'} {made.fingerprint[:12]}",
        f"  prompt    {printable(made.template or 'unknown')}",
        f"  text      {'stored' if made.text else 'not stored'}",
        *(
            f"  {name:9} {printable(value)}"
            for name, value in (("licence", made.licence), ("source", made.source))
            if value
        ),
        f"  evaluate  dtpt eval --dataset pack:{printable(pack.folder)}",
    ]
    emit(facts, *lines, as_json=as_json)
