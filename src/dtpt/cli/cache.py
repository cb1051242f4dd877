"""`dtpt cache`: what the cache of view features holds."""

import json
import sys

from cyclopts import App

from dtpt.cli.exits import PARTLY
from dtpt.cli.flags import AsJson

app = App(name="cache", help="Show, prune or verify the cache of view features.")


@app.command
def show(*, as_json: AsJson = False) -> None:
    """Show where the cache is, its size and its limit.

    Args:
        as_json: Print JSON.
    """
    from dtpt.files import printable
    from dtpt.runs.features import cache_folder, cache_limit, list_shards

    shards = list_shards(cache_folder())
    size, limit = sum(shard.size for shard in shards), cache_limit()
    groups = len({shard.path.parent for shard in shards})
    folder = printable(cache_folder())
    if as_json:
        facts = {"folder": folder, "bytes": size, "shards": len(shards), "groups": groups}
        print(json.dumps(facts | {"limit_bytes": limit}, indent=2))
        return
    print(f"folder  {folder}")
    print(f"size    {size / 1e9:.3f} GB in {len(shards)} shards of {groups} groups")
    print(f"limit   {limit / 1e9:.1f} GB")
    print("DTPT_CACHE and DTPT_CACHE_LIMIT change folder and limit.")


@app.command
def prune(*, limit: str | None = None, as_json: AsJson = False) -> None:
    """Remove the least recently used shards until the cache fits a limit.

    Args:
        limit: For example 500MB; 0 empties the cache. The usual limit when not given.
        as_json: Print JSON.
    """
    from dtpt.runs.features import cache_folder, cache_limit, parse_size
    from dtpt.runs.features import prune as prune_shards

    bound = cache_limit() if limit is None else parse_size(limit)
    removed = prune_shards(cache_folder(), bound)
    size = sum(shard.size for shard in removed)
    if as_json:
        print(json.dumps({"removed_shards": len(removed), "removed_bytes": size}, indent=2))
    else:
        print(f"Removed {len(removed)} shards, {size / 1e9:.3f} GB.")


@app.command
def verify(*, as_json: AsJson = False) -> None:
    """Compare every shard with its checksum and remove damaged ones; exit code 1 if there were.

    Args:
        as_json: Print JSON.
    """
    from dtpt.files import printable
    from dtpt.runs.features import cache_folder
    from dtpt.runs.features import verify as verify_shards

    results = list(verify_shards(cache_folder()))
    damaged = [shard.path for shard, intact in results if not intact]
    for path in damaged:
        path.unlink(missing_ok=True)
    names = [printable(path) for path in damaged]
    if as_json:
        print(json.dumps({"intact": len(results) - len(names), "removed": names}, indent=2))
    else:
        print("".join(f"damaged, removed: {name}\n" for name in names), end="")
        print(f"{len(results) - len(names)} of {len(results)} shards are intact.")
    if damaged:
        sys.exit(PARTLY)
