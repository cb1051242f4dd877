"""`dtpt models`: which models there are, how large, whether they are here; names of your own."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from dtpt.cli.completion import offer_models
from dtpt.cli.flags import AsJson

app = App(name="models", help="List the known models; fetch one, or name one of your own.")

NAME_WIDTH = 20
STATUS = {"own": "added by you", "verified": "verified by its hash", "trusted": "trusted by you"}


@app.default
def models(*, as_json: AsJson = False) -> None:
    """List the known models, their size in memory, and whether they are on this machine.

    Args:
        as_json: Print JSON instead of a table.
    """
    rows = _rows()
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'model':<{NAME_WIDTH}}{'size':>7}  {'here':<4} source")
    for row in rows:
        print(_line(row))
    print("Sizes are float32 weights (pocket: its file).")
    print("Others: hf-hub:org/repo[@revision], local-dir:PATH, local-file:PATH.")


@app.command
def fetch(
    name: Annotated[str, Parameter(completer=offer_models)], *, as_json: AsJson = False
) -> None:
    """Download a model into the Hugging Face cache and print the folder.

    Args:
        name: A known model or hf-hub:org/repo[@revision].
        as_json: Print JSON.
    """
    from dtpt.clip.loading import hub
    from dtpt.clip.loading.names import parse_name

    parsed = parse_name(name)
    folder = hub.fetch(parsed) if parsed.kind in ("catalog", "hub") else None
    if as_json:
        print(json.dumps({"name": name, "folder": None if folder is None else str(folder)}))
    else:
        print(folder or f"{name} is already on this machine.")


@app.command
def add(
    name: str,
    path: Path,
    *,
    trust: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    activation: Literal["quick_gelu", "gelu"] | None = None,
    as_json: AsJson = False,
) -> None:
    """Give a checkpoint on this machine a name that all commands know.

    Args:
        name: A new name, or one of the list if these are its weights.
        path: File or folder.
        trust: Take your word that the weights are those that the listed name means.
        activation: For checkpoints that do not say which one they were trained with.
        as_json: Print JSON.
    """
    from dtpt.clip.loading.adding import add_model
    from dtpt.clip.loading.names import check_new_name

    added = add_model(name, path, trust=trust, activation=activation)
    if as_json:
        print(json.dumps({"name": check_new_name(name), **added.model_dump()}, indent=2))
        return
    print(f"{check_new_name(name)} is {added.path} ({STATUS[added.status]}).")
    print(f"{added.parameters:,} weights, fingerprint {added.fingerprint[:12]}")


@app.command
def remove(name: str) -> None:
    """Forget a name that was added; the checkpoint itself stays where it is.

    Args:
        name: As given to `dtpt models add`.
    """
    from dtpt.clip.loading.added import remove_model
    from dtpt.clip.loading.names import check_new_name

    known = check_new_name(name)
    remove_model(known)
    print(f"{known} is forgotten.", file=sys.stderr)


def _rows() -> list[dict[str, Any]]:
    from dtpt.clip.loading.added import added_models
    from dtpt.clip.loading.catalog import catalog
    from dtpt.clip.loading.names import EMBEDDED

    added = added_models()
    rows = [_embedded_row(EMBEDDED)]
    rows += [_added_row(name) if name in added else _catalog_row(name) for name in catalog()]
    return rows + [_added_row(name) for name in added if name not in catalog()]


def _catalog_row(name: str) -> dict[str, Any]:
    from dtpt.clip.loading.catalog import catalog
    from dtpt.clip.loading.hub import cached_folder
    from dtpt.clip.loading.names import ModelName

    entry = catalog()[name]
    cached = cached_folder(ModelName("catalog", name)) is not None
    return _row(name, size=entry.size_bytes, here=cached, source=f"hf-hub:{entry.repo}")


def _added_row(name: str) -> dict[str, Any]:
    from dtpt.clip.loading.added import added_models

    added = added_models()[name]
    here = Path(added.path).exists()
    row = _row(name, size=added.size_bytes, here=here, source=STATUS[added.status])
    return {**row, "status": added.status, "path": added.path, "fingerprint": added.fingerprint}


def _embedded_row(name: str) -> dict[str, Any]:
    import dtpt

    weights = Path(dtpt.__file__).parent / name / "model.safetensors"
    size = weights.stat().st_size if weights.is_file() else 0
    return _row(name, size=size, here=size > 0, source="inside the package")


def _row(name: str, *, size: int, here: bool, source: str) -> dict[str, Any]:
    from dtpt.clip.loading.catalog import catalog

    aliases = list(catalog()[name].aliases) if name in catalog() else []
    return {
        "name": name,
        "aliases": aliases,
        "size_bytes": size,
        "cached": here,
        "source": source,
    }


def _line(row: dict[str, Any]) -> str:
    """Return a row within 80 columns; a long name and a path get lines of their own."""
    size = f"{row['size_bytes'] / 1e6:.0f} MB" if row["size_bytes"] else "?"
    name = row["name"] + ("\n" + " " * NAME_WIDTH if len(row["name"]) >= NAME_WIDTH else "")
    here = "yes" if row["cached"] else "no"
    path = f"\n    {row['path']}" if "path" in row else ""
    return f"{name:<{NAME_WIDTH}}{size:>7}  {here:<4} {row['source']}{path}"
