"""What is on this machine: `dtpt methods`, `models`, `datasets` and `cache`."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from dtpt.cli.exits import PARTIAL
from dtpt.cli.flags import AsJson, DataRoot, offer_datasets, offer_models
from dtpt.cli.output import emit
from dtpt.clip.config import MAX_MODEL_SIZE
from dtpt.files import printable
from dtpt.options import ModelSize
from dtpt.tables import Cell, Column, Row, Table, text_table

if TYPE_CHECKING:
    from dtpt.data.check import DatasetReport, DatasetSummary
    from dtpt.methods import Method

METHODS_LEGEND = """
λ: default for fine-grained sets / natural shifts. image, text: passes through
each tower per image with 64 views; a text pass covers all classes, forward and
backward are two.
Every method with a λ also exists as NAME-static: its regulariser, tuned once.
Modifiers, written method+modifier:
  {},
  ts=1.16, views=0.3, lr=0.002.
λ, written method@λ: d-tpt@1e6, d-tpt@auto=0.9, d-tpt@auto-each=0.9."""


def methods(*, compare: Path | None = None, as_json: AsJson = False) -> None:
    """List the methods, their default λ and their cost per image.

    Args:
        compare: Run whose methods are compared: metrics and cost.
    """
    from dtpt.methods import MODIFIERS, known_methods, load_plugins

    if compare is not None:
        _compare_methods(compare, as_json=as_json)
        return
    rows = [_method_row(name, method) for name, method in known_methods().items()]
    legend = METHODS_LEGEND.format(", ".join(MODIFIERS))
    emit(rows, _method_table(rows), legend, as_json=as_json, framed=False)
    for problem in load_plugins()[1]:
        print(problem, file=sys.stderr)


def _compare_methods(run: Path, *, as_json: bool) -> None:
    from dtpt.report.compare import method_choices

    document, tables = method_choices(run)
    seconds = document["seconds_per_image"]
    texts = [] if seconds is None else [f"The whole run took {seconds:.2f} seconds per image."]
    emit(document, *tables, *texts, as_json=as_json)


def _method_row(name: str, method: "Method") -> dict[str, Any]:
    from dtpt.methods import ResolvedMethod, method_cost

    return {
        "name": name,
        "title": method.look.title or name,
        "summary": method.summary,
        "lambda": dict(method.lambdas),
        "cost": asdict(method_cost(ResolvedMethod(name, method, None))),
    }


def _method_table(rows: list[dict[str, Any]]) -> Table:
    from dtpt.methods.parse import STATIC, lambda_text

    lines = []
    for row in rows:
        if not row["name"].endswith(STATIC):
            lambdas = " / ".join(dict.fromkeys(map(lambda_text, row["lambda"].values())))
            cost = row["cost"]
            passes = (cost["image_passes"], cost["text_forward"] + cost["text_backward"])
            lines.append((row["name"], row["summary"], lambdas, *map(str, passes)))
    return text_table("", ("method", "summary", "λ", "image", "text"), rows=lines)


STATUS = {"own": "added by you", "verified": "verified by its hash", "trusted": "trusted by you"}


def models(*, as_json: AsJson = False) -> None:
    """List the known models: size, whether they are on this machine, what they need and run."""
    rows = _model_rows()
    lines = []
    for row in rows:
        size = f"{row['size_bytes'] / 1e6:.0f} MB" if row["size_bytes"] else "?"
        here = "yes" if row["cached"] else "no"
        loads = "yes" if row["loads"] else f"with [{row['needs']}]"
        lines.append((row["name"], size, here, loads))
    emit(
        rows,
        text_table("", ("model", "size", "here", "loads"), rows=lines),
        *(f"{row['name']}:\n  {row['path']}\n  {row['source']}" for row in rows if "path" in row),
        "Sizes are float32 weights (pocket: its file).",
        "[towers]: pip install 'dtpt[towers]'.",
        "All methods run. Others: hf-hub:org/repo[@revision], local-dir:, local-file:,",
        "and features:PATH, which runs the methods that tune no prompt.",
        as_json=as_json,
        framed=False,
    )


def fetch_model(
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


def add_model(
    name: str,
    path: Path,
    /,
    *,
    trust: bool = False,
    activation: Literal["quick_gelu", "gelu"] | None = None,
    max_model_size: ModelSize = MAX_MODEL_SIZE,
    as_json: AsJson = False,
) -> None:
    """Give a checkpoint on this machine a name that all commands know.

    Args:
        name: A new name, or one of the list if these are its weights.
        path: File or folder.
        trust: Assume that the weights are those that the listed name means.
        activation: For checkpoints without a record of the one they were trained with.
        max_model_size: GiB of weights (in float32) that the checkpoint may declare.
    """
    from dtpt.clip.loading import names

    added = names.add_model(
        name, path, trust=trust, activation=activation, max_model_size=max_model_size
    )
    known = names.check_new_name(name)
    emit(
        {"name": known, **added.model_dump()},
        f"{known} is {added.path} ({STATUS[added.status]}).",
        f"{added.parameters:,} weights, fingerprint {added.fingerprint[:12]}",
        as_json=as_json,
    )


def remove_model(name: str, /) -> None:
    """Remove a name that was added; the checkpoint itself stays where it is.

    Args:
        name: As given to `dtpt models add`.
    """
    from dtpt.clip.loading import names

    known = names.check_new_name(name)
    names.remove_model(known)
    print(f"{known} is removed.", file=sys.stderr)


def _model_rows() -> list[dict[str, Any]]:
    from dtpt.clip.loading.hub import cached_folder
    from dtpt.clip.loading.names import EMBEDDED, added_models, catalog, hub_models, parse_name

    known, added, from_hub = catalog(), added_models(), hub_models()
    weights = Path(__file__).parents[1] / EMBEDDED / "model.safetensors"
    rows = [
        _model_row(EMBEDDED, size=weights.stat().st_size, here=True, source="inside the package")
    ]
    for name in [name for name in known if name not in added]:
        is_here = cached_folder(parse_name(name)) is not None
        source = f"hf-hub:{known[name].repo}"
        rows.append(_model_row(name, size=known[name].size_bytes, here=is_here, source=source))
    for name in [name for name in from_hub if name not in added]:
        is_here, published = cached_folder(parse_name(name)) is not None, from_hub[name]
        source, size = f"hf-hub:{published.repo}", published.size_bytes
        row = _model_row(name, size=size, here=is_here, source=source, needs=published.needs)
        rows.append(row)
    for name, model in added.items():
        is_here = os.path.exists(model.path)
        source, size = STATUS[model.status], model.size_bytes
        row = _model_row(name, size=size, here=is_here, source=source, needs=model.needs)
        rows.append(row | model.model_dump(include={"status", "path", "fingerprint"}))
    for row in rows:
        row["aliases"] = list(known[row["name"]].aliases) if row["name"] in known else []
    return rows


def _model_row(name: str, *, size: int, here: bool, source: str, needs: str = "") -> dict[str, Any]:
    from importlib.util import find_spec

    loads = not needs or find_spec("open_clip") is not None
    facts = {"name": name, "size_bytes": size, "cached": here, "source": source}
    return facts | {"needs": needs, "loads": loads, "methods": "all"}


EXIT_CODES = {"complete": 0, "partial": 1, "missing": 2}
SHOWN_LINES = 10  # lines of a list before "and n more"


def datasets(*, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """List all data sets and where they are."""
    from dtpt.data.check import list_datasets

    summaries = list_datasets(data_root)
    hint = "\nGive the folder of the paper's sets with --data-root or DTPT_DATA."
    table = _dataset_table(summaries, data_root)
    emit(summaries, table, *([hint] if data_root is None else []), as_json=as_json, framed=False)


def check_datasets(
    name: Annotated[str, Parameter(completer=offer_datasets)],
    /,
    *,
    deep: bool = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Compare data sets with the complete ones, which are those that the paper used.

    Exit code 0: all complete; 1: incomplete, or with unreadable images; 2: not found.

    Args:
        name: Data set, group, or comma-separated list of them.
        deep: Also decode every image.
    """
    from dtpt.data.check import check_dataset
    from dtpt.data.loading import expand_names

    progress = _count if sys.stderr.isatty() else None
    reports = [
        check_dataset(dataset, data_root=data_root, deep=deep, progress=progress)
        for dataset in expand_names(name)
    ]
    document = [{**asdict(report), "ok": report.ok} for report in reports]
    emit(document, *(line for report in reports for line in dataset_lines(report)), as_json=as_json)
    if code := report_code(reports):
        sys.exit(code)


def report_code(reports: "Sequence[DatasetReport]") -> int:
    """Return the exit code for data sets that were checked."""
    codes = (max(EXIT_CODES[r.status], 1 if r.unreadable else 0) for r in reports)
    return max(codes, default=0)


def _count(done: int, total: int) -> None:
    """Show the number of decoded images on the terminal's last line."""
    if done % 50 == 0 or done == total:
        end = "\n" if done == total else ""
        print(f"\r{done:,} of {total:,} images", end=end, file=sys.stderr, flush=True)


def _dataset_table(summaries: "Sequence[DatasetSummary]", data_root: Path | None) -> Table:
    from dtpt.data.catalog import family_title

    rows = []
    for summary in summaries:
        texts = (f"{summary.classes:,}", f"{summary.images:,}", _location(summary, data_root))
        group = family_title(summary.family)
        rows.append(Row(summary.name, tuple(map(Cell, texts)), group=group))
    columns = (Column("classes"), Column("images"), Column("path (-: expected)", is_text=True))
    return Table("", columns, tuple(rows), heading="data set")


def _location(summary: "DatasetSummary", data_root: Path | None) -> str:
    if not summary.found:
        return f"- {summary.where.partition(' or ')[0]}"
    path = Path(summary.where)
    if data_root is not None and data_root in path.parents:
        return str(path.relative_to(data_root))
    return summary.where


def dataset_lines(report: "DatasetReport") -> Iterator[str]:
    """Yield the lines of one report: the verdict first, then what is wrong."""
    expected = f" of {report.expected_images:,}" if report.expected_images is not None else ""
    yield f"{report.name}: {report.status}" + (f", {report.layout} layout" if report.layout else "")
    yield f"  images   {report.found_images:,}{expected}  {report.source}"
    names = {True: ", names agree with the catalogue", False: ", not all of them met", None: ""}
    yield f"  classes  {report.classes:,}{names[report.class_names_agree]}"
    if report.class_counts:
        counts = sorted(report.class_counts, key=lambda pair: pair[1])
        (fewest, low), (most, high) = counts[0], counts[-1]
        yield f"           {low:,} images ({fewest}) to {high:,} ({most}) each"
    if report.checked_images:
        yield f"  decoded  {report.checked_images:,}, unreadable {len(report.unreadable):,}"
    yield from (f"  ! {problem}" for problem in report.problems)
    if report.status != "missing":  # otherwise the problem names the paths already
        yield from _shortened("missing", report.missing)
    reasons = [f"{name}: {reason}" for name, reason in report.unreadable.items()]
    yield from _shortened("unreadable", reasons)


def _shortened(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (f"  {title}: {line}" for line in lines[:SHOWN_LINES])
    if len(lines) > SHOWN_LINES:
        yield f"  {title}: and {len(lines) - SHOWN_LINES:,} more (--json lists all)"


def show_cache(*, as_json: AsJson = False) -> None:
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


def prune_cache(*, limit: str | None = None, as_json: AsJson = False) -> None:
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


def verify_cache(*, as_json: AsJson = False) -> None:
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
