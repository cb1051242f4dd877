"""`dtpt models`: the known models, their size, whether they are here; names of your own."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from dtpt.cli.completion import offer_models
from dtpt.cli.flags import AsJson
from dtpt.cli.output import emit
from dtpt.files import printable
from dtpt.tables import text_table

STATUS = {"own": "added by you", "verified": "verified by its hash", "trusted": "trusted by you"}


def models(*, as_json: AsJson = False) -> None:
    """List the known models, their size in memory, and whether they are on this machine."""
    rows = _rows()
    lines = []
    for row in rows:
        size = f"{row['size_bytes'] / 1e6:.0f} MB" if row["size_bytes"] else "?"
        lines.append((row["name"], size, "yes" if row["cached"] else "no", row["source"]))
    emit(
        rows,
        text_table("", ("model", "size", "here", "source"), rows=lines),
        *(f"{row['name']}:\n  {row['path']}" for row in rows if "path" in row),
        "Sizes are float32 weights (pocket: its file).",
        "Others: hf-hub:org/repo[@revision], local-dir:PATH, local-file:PATH.",
        as_json=as_json,
        framed=False,
    )


def fetch(
    name: Annotated[str, Parameter(completer=offer_models)], /, *, as_json: AsJson = False
) -> None:
    """Download a model into the Hugging Face cache and print the folder.

    Args:
        name: A known model or hf-hub:org/repo[@revision].
    """
    from dtpt.clip.loading import hub
    from dtpt.clip.loading.names import parse_name

    parsed = parse_name(name)
    folder = hub.fetch(parsed) if parsed.kind in ("catalog", "hub") else None
    text = f"{name} is already on this machine." if folder is None else printable(folder)
    emit({"name": name, "folder": folder}, text, as_json=as_json)


def add(
    name: str,
    path: Path,
    /,
    *,
    trust: bool = False,
    activation: Literal["quick_gelu", "gelu"] | None = None,
    as_json: AsJson = False,
) -> None:
    """Give a checkpoint on this machine a name that all commands know.

    Args:
        name: A new name, or one of the list if these are its weights.
        path: File or folder.
        trust: Assume that the weights are those that the listed name means.
        activation: For checkpoints without a record of the one they were trained with.
    """
    from dtpt.clip.loading.names import add_model, check_new_name

    added = add_model(name, path, trust=trust, activation=activation)
    known = check_new_name(name)
    emit(
        {"name": known, **added.model_dump()},
        f"{known} is {added.path} ({STATUS[added.status]}).",
        f"{added.parameters:,} weights, fingerprint {added.fingerprint[:12]}",
        as_json=as_json,
    )


def remove(name: str, /) -> None:
    """Remove a name that was added; the checkpoint itself stays where it is.

    Args:
        name: As given to `dtpt models add`.
    """
    from dtpt.clip.loading.names import check_new_name, remove_model

    known = check_new_name(name)
    remove_model(known)
    print(f"{known} is removed.", file=sys.stderr)


def _rows() -> list[dict[str, Any]]:
    from dtpt.clip.loading.hub import cached_folder
    from dtpt.clip.loading.names import EMBEDDED, ModelName, added_models, catalog

    known, added = catalog(), added_models()
    weights = Path(__file__).parents[1] / EMBEDDED / "model.safetensors"
    rows = [_row(EMBEDDED, size=weights.stat().st_size, here=True, source="inside the package")]
    for name in [name for name in known if name not in added]:
        is_here = cached_folder(ModelName("catalog", name)) is not None
        source = f"hf-hub:{known[name].repo}"
        rows.append(_row(name, size=known[name].size_bytes, here=is_here, source=source))
    for name, model in added.items():
        is_here = Path(model.path).exists()
        row = _row(name, size=model.size_bytes, here=is_here, source=STATUS[model.status])
        rows.append(row | model.model_dump(include={"status", "path", "fingerprint"}))
    for row in rows:
        row["aliases"] = list(known[row["name"]].aliases) if row["name"] in known else []
    return rows


def _row(name: str, *, size: int, here: bool, source: str) -> dict[str, Any]:
    return {"name": name, "size_bytes": size, "cached": here, "source": source}
