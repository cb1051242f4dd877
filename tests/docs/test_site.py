"""Links and names on the pages exist, the site builds, generated parts are up to date."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dataset_trees
import headline
import model_tables
import pages
import paper_tables
import pytest
from made_parts import without_made_parts
from run_page import PAGES

from dtpt.data.catalog import NAMED_SETS, catalog_entry
from dtpt.data.layouts import find_folder
from dtpt.report import Variant
from dtpt.report.paper.reading import read_paper
from dtpt.report.paper.reading_tables import reading_tables
from dtpt.report.record import load_record
from dtpt.tables import markdown

ROOT = Path(__file__).resolve().parents[2]
DOTTED = re.compile(r"`(dtpt(?:\.[A-Za-z_]\w*)+)(?=[`(])")
PATH = re.compile(r"`((?:src|tests|docs|benchmarks|training)/[\w./-]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
BUILD = """
import sys
from mkdocs.commands.build import build
from mkdocs.config import load_config

build(load_config(sys.argv[1], docs_dir=sys.argv[2], site_dir=sys.argv[3], strict=True))
"""


def without_code(text):
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(path):
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"\s", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", PAGES)
def test_links_inside_the_repository_lead_somewhere(page):
    path = ROOT / page
    for target in LINK.findall(without_code(path.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_modules_names_and_paths_on_a_page_exist(page):
    text = (ROOT / page).read_text("utf-8")
    for name in set(DOTTED.findall(text)):
        assert resolve_name(name) is not None, f"{page}: {name}"
    for path in PATH.findall(text):
        is_example = re.search(r"NAME|GROUP|SUBJECT|PAGE|/work/", path)
        assert is_example or (ROOT / path).exists(), f"{page}: {path}"


def resolve_name(name):
    """Return what a dotted name means: a module, or an attribute of one; None if it is neither."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[count:]:
            found = getattr(found, attribute, None)
        return found
    return None


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    pages.write_pages(folder / "docs")
    words = [str(ROOT / "mkdocs.yml"), str(folder / "docs"), str(folder / "site")]
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *words], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "site"


def test_the_site_builds_offline_without_a_warning_and_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link)[^>]*(?:src|href)=\"(https?:[^\"]*)", page.read_text()
        )
        assert loaded == [], page.name
    assert "dtpt datasets check" in (site / "cli.html").read_text()
    assert "calibration_report" in (site / "api" / "dtpt.html").read_text()


def test_the_menu_is_short_and_code_has_tabs(site):
    text = (site / "index.html").read_text()
    assert 4 <= text.count('<li class="md-tabs__item') <= 8
    assert (site / "quickstart.html").read_text().count("tabbed-set") >= 1


def test_search_works_on_pages_opened_from_disk(site):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page, asked = browser.new_page(viewport={"width": 1280, "height": 800}), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "tutorial.html").as_uri())
        page.locator(".md-search__input").click()
        page.wait_for_function("typeof __index === 'object'")
        for _ in range(20):  # the index is read in the background
            page.keyboard.press("End")
            page.locator(".md-search__input").fill("")
            page.keyboard.type("noise floor", delay=10)
            page.wait_for_timeout(500)
            if page.locator(".md-search-result__item").count():
                break
        found = " ".join(page.locator(".md-search-result__item").all_inner_texts())
        assert "noise floor" in found.lower()
        assert [url for url in asked if not url.startswith("file:")] == []
        browser.close()


def test_trees_and_sizes_on_the_page_of_data_sets_are_those_of_the_catalogue():
    text = dataset_trees.PAGE.read_text("utf-8")
    assert dataset_trees.up_to_date() == text, "run: python docs/dataset_trees.py"
    assert set(re.findall(r"made: tree (\S+)", text)) == set(NAMED_SETS)


@pytest.mark.parametrize("page", headline.PAGES)
def test_the_three_numbers_are_those_of_the_records(page):
    assert headline.up_to_date(page) == page.read_text("utf-8"), "run: python docs/headline.py"
    record = load_record("pocket")
    for facts in record.families:
        added = facts.difference(Variant("tpt"), Variant("zero-shot"), metric="accuracy")
        assert f"{100 * added.estimate:+.1f} [" in page.read_text("utf-8")


def test_tables_of_models_are_those_of_the_installed_open_clip():
    if not model_tables.configurations():
        pytest.skip("open_clip is not installed")
    text = model_tables.PAGE.read_text("utf-8")
    assert model_tables.up_to_date() == text, "run: python docs/model_tables.py"
    loadable = [model_tables.described(*pair)[0] for pair in model_tables.configurations().items()]
    assert sum(config is not None for config in loadable) >= 100


def test_tables_on_the_page_about_the_paper_are_those_of_the_command():
    text = paper_tables.PAGE.read_text("utf-8")
    assert paper_tables.up_to_date() == text, "run: python docs/paper_tables.py"
    tables = reading_tables(read_paper())
    assert sorted(re.findall(r"made: (\S+)", text)) == sorted(tables)
    computed = set(re.findall(r"\d+\.\d+", " ".join(map(markdown, tables.values()))))
    written = set(re.findall(r"\d+\.\d+", without_code(without_made_parts(text))))
    assert len(written) > 10
    assert written <= computed


LAYOUTS = [(name, k) for name in NAMED_SETS for k in range(len(catalog_entry(name).layouts))]


@pytest.mark.parametrize(("name", "which"), LAYOUTS)
def test_a_set_is_found_where_its_tree_is_drawn(name, which, tmp_path):
    entry = catalog_entry(name)
    drawn = dataset_trees.tree(entry, entry.layouts[which]).splitlines()
    top = tmp_path / drawn[0].split("  ")[0]
    top.mkdir(parents=True)
    folder = top
    for line in drawn[1:]:
        item = line.strip()
        if item.endswith("/"):
            parent = folder if line.startswith("        ") else top
            (parent / item).mkdir()
            folder = parent / item if not entry.folders else parent
        elif " " not in item:
            (top / item).write_text("{}")
    found = find_folder(entry, tmp_path)
    assert found is not None
    assert found.is_relative_to(top)
