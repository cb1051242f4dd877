"""`dtpt models`: which models there are, how large, and whether they are here. Imports no torch."""

import json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

app = App(name="models", help="List the known models; fetch one into the cache.")


@app.default
def models(*, as_json: Annotated[bool, Parameter(name="--json", negative=())] = False) -> None:
    """List the known models, their size in memory, and whether they are in the cache.

    Args:
        as_json: Print JSON instead of a table.
    """
    rows = _rows()
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'model':<22}{'size':>8}  {'cached':<7} source")
    for row in rows:
        size = f"{row['size_bytes'] / 1e6:.0f} MB" if row["size_bytes"] else "?"
        print(f"{row['name']:<22}{size:>8}  {'yes' if row['cached'] else 'no':<7} {row['source']}")
    print("Sizes are float32 weights (pocket: its file).")
    print("Others: hf-hub:org/repo[@revision], local-dir:PATH, local-file:PATH.")


@app.command
def fetch(name: str) -> None:
    """Download a model into the Hugging Face cache and print the folder.

    Args:
        name: A known model or hf-hub:org/repo[@revision].
    """
    from dtpt.clip.loading import hub
    from dtpt.clip.loading.names import parse_name

    parsed = parse_name(name)
    if parsed.kind in ("catalog", "hub"):
        print(hub.fetch(parsed))
    else:
        print(f"{name} is already on this machine.")


def _rows() -> list[dict[str, Any]]:
    from dtpt.clip.loading.catalog import catalog
    from dtpt.clip.loading.hub import cached_folder
    from dtpt.clip.loading.names import EMBEDDED, ModelName

    rows = [_embedded_row(EMBEDDED)]
    for name, entry in catalog().items():
        rows.append(
            {
                "name": name,
                "aliases": list(entry.aliases),
                "size_bytes": entry.size_bytes,
                "cached": cached_folder(ModelName("catalog", name)) is not None,
                "source": f"hf-hub:{entry.repo}",
            }
        )
    return rows


def _embedded_row(name: str) -> dict[str, Any]:
    import dtpt

    folder = Path(dtpt.__file__).parent / name
    weights = folder / "model.safetensors"
    size = weights.stat().st_size if weights.is_file() else 0
    return {
        "name": name,
        "aliases": [],
        "size_bytes": size,
        "cached": size > 0,
        "source": "inside the package",
    }
