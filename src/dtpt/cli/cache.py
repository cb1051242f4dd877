"""`dtpt cache`: the cache of view features."""

import sys

from dtpt.cli.exits import PARTIAL
from dtpt.cli.flags import AsJson
from dtpt.cli.output import print_json
from dtpt.files import printable


def show(*, as_json: AsJson = False) -> None:
    """Show where the cache is, its size and its limit."""
    from dtpt.prediction.cache import cache_folder, cache_limit, list_shards

    shards = list_shards(cache_folder())
    size, limit = sum(shard.size for shard in shards), cache_limit()
    groups = len({shard.path.parent for shard in shards})
    if as_json:
        facts = {"folder": cache_folder(), "bytes": size, "shards": len(shards), "groups": groups}
        print_json(facts | {"limit_bytes": limit})
        return
    print(f"folder  {printable(cache_folder())}")
    print(f"size    {size / 1e9:.3f} GB in {len(shards)} shards of {groups} groups")
    print(f"limit   {limit / 1e9:.1f} GB")
    print("DTPT_CACHE and DTPT_CACHE_LIMIT change folder and limit.")


def prune(*, limit: str | None = None, as_json: AsJson = False) -> None:
    """Remove the least recently used shards until the cache fits a limit.

    Args:
        limit: For example 500MB; 0 empties the cache. The usual limit when not given.
    """
    from dtpt.prediction.cache import cache_folder, cache_limit, parse_size
    from dtpt.prediction.cache import prune as prune_shards

    bound = cache_limit() if limit is None else parse_size(limit)
    removed = prune_shards(cache_folder(), bound)
    size = sum(shard.size for shard in removed)
    if as_json:
        print_json({"removed_shards": len(removed), "removed_bytes": size})
    else:
        print(f"Removed {len(removed)} shards, {size / 1e9:.3f} GB.")


def verify(*, as_json: AsJson = False) -> None:
    """Compare every shard with its checksum and remove damaged ones; exit code 1 if there were."""
    from dtpt.prediction.cache import cache_folder
    from dtpt.prediction.cache import verify as verify_shards

    results = list(verify_shards(cache_folder()))
    damaged = [shard.path for shard, intact in results if not intact]
    for path in damaged:
        path.unlink(missing_ok=True)
    intact = len(results) - len(damaged)
    if as_json:
        print_json({"intact": intact, "removed": damaged})
    else:
        print("".join(f"damaged, removed: {printable(path)}\n" for path in damaged), end="")
        print(f"{intact} of {len(results)} shards are intact.")
    if damaged:
        sys.exit(PARTIAL)
