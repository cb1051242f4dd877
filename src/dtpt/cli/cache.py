"""`dtpt cache`: the cache of view features."""

import sys

from dtpt.cli.exits import PARTIAL
from dtpt.cli.flags import AsJson
from dtpt.cli.output import emit
from dtpt.files import printable


def show(*, as_json: AsJson = False) -> None:
    """Show where the cache is, its size and its limit."""
    from dtpt.prediction.cache import cache_folder, cache_limit, list_shards

    shards = list_shards(cache_folder())
    size, limit = sum(shard.size for shard in shards), cache_limit()
    groups = len({shard.path.parent for shard in shards})
    facts = {"folder": cache_folder(), "bytes": size, "shards": len(shards), "groups": groups}
    emit(
        facts | {"limit_bytes": limit},
        f"folder  {printable(cache_folder())}",
        f"size    {size / 1e9:.3f} GB in {len(shards)} shards of {groups} groups",
        f"limit   {limit / 1e9:.1f} GB",
        "DTPT_CACHE and DTPT_CACHE_LIMIT change folder and limit.",
        as_json=as_json,
    )


def prune(*, limit: str | None = None, as_json: AsJson = False) -> None:
    """Remove the least recently used shards until the cache fits a limit.

    Args:
        limit: For example 500MB; 0 empties the cache. The usual limit when not given.
    """
    from dtpt.prediction import cache

    bound = cache.cache_limit() if limit is None else cache.parse_size(limit)
    removed = cache.prune(cache.cache_folder(), bound)
    size = sum(shard.size for shard in removed)
    document = {"removed_shards": len(removed), "removed_bytes": size}
    emit(document, f"Removed {len(removed)} shards, {size / 1e9:.3f} GB.", as_json=as_json)


def verify(*, as_json: AsJson = False) -> None:
    """Compare every shard with its checksum and remove damaged ones; exit code 1 if there were."""
    from dtpt.prediction import cache

    results = list(cache.verify(cache.cache_folder()))
    damaged = [shard.path for shard, is_intact in results if not is_intact]
    for path in damaged:
        path.unlink(missing_ok=True)
    intact = len(results) - len(damaged)
    emit(
        {"intact": intact, "removed": damaged},
        *(f"damaged, removed: {printable(path)}" for path in damaged),
        f"{intact} of {len(results)} shards are intact.",
        as_json=as_json,
    )
    if damaged:
        sys.exit(PARTIAL)
