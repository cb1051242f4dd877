"""The page: self-contained, escaped, free of console errors, and readable on screen and phone."""

import html.parser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from handmade import FIVE, dataset, random_says, write_run
from PIL import Image

from dtpt.methods import METHODS
from dtpt.report import WrittenReport, write_report
from dtpt.report.facts import Resampling

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenReport:
    folder, methods = tmp_path_factory.mktemp("report"), (FIVE[0], FIVE[1], FIVE[4])
    sets = [dataset(name, samples=20, methods=methods) for name in ("pets", "cars")]
    sets.append(dataset("renditions", samples=20, family="natural-shifts", methods=methods))
    run = write_run(folder / "run", sets, random_says(), seeds=(0, 1))
    return write_report([run], folder / "out", resampling=Resampling(resamples=100))


def browse(page: Path, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--hide-scrollbars --enable-logging=stderr --v=0"
    )
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={profile}", *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


class Outline(html.parser.HTMLParser):
    """Collects tags, attributes and whether every tag is closed."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attributes) -> None:
        self.attributes.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes) -> None:
        self.attributes.append((tag, dict(attributes)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag


def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    return parser


def test_page_is_one_file_that_loads_nothing(written: WrittenReport) -> None:
    text = written.page.read_text("utf-8")
    found = outline(text)
    assert found.open == []
    loading = [
        value
        for tag, attributes in found.attributes
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href", "data", "poster", "srcset") and value
    ]
    assert all(value.startswith(("#", "data:image/")) for value in loading)
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    policies = [a["content"] for t, a in found.attributes if a.get("http-equiv")]
    assert policies
    assert policies[0].startswith("default-src 'none'")


def test_every_figure_has_a_title_and_words(written: WrittenReport) -> None:
    found = outline(written.page.read_text("utf-8"))
    drawings = [a for tag, a in found.attributes if tag == "svg"]
    shown = written.report.all_figures
    assert len(drawings) == sum(len(figure.parts) for figure in shown) > 8
    ids = {a["id"] for _, a in found.attributes if a.get("id")}
    for attributes in drawings:
        assert attributes["role"] == "img"
        assert set((attributes["aria-labelledby"] or "").split()) <= ids
    named = [a["id"] for _, a in found.attributes if a.get("id")]
    assert len(named) == len(set(named))


def test_report_says_what_was_run_and_how_to_run_it_again(written: WrittenReport) -> None:
    text = written.page.read_text("utf-8")
    for part in (
        "tiny",
        "pets",
        "renditions",
        "dtpt eval --model tiny",
        "dtpt report",
        "seeds 0, 1",
    ):
        assert part in text
    names = {path.name for path in written.files}
    assert {"index.html", "card.md", "tables.md", "tables.tex", "tables.csv"} <= names
    drawn = written.report.all_figures
    assert sum(path.suffix == ".svg" for path in written.files) == len(drawn)
    card = written.card.read_text("utf-8")
    assert "## Limits" in card
    assert "| D-TPT (λ = 10⁵) |" in card


def test_foreign_text_cannot_become_markup(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    entry = dataset(f"folder:{evil}", samples=12)
    run = write_run(
        tmp_path / "run",
        [entry],
        random_says(),
        model=f"m{evil}",
        template=f"{evil} {{}}.",
        classes=(evil, "a&b", 'c"d'),
    )
    made = write_report([run], tmp_path / "out")
    text = made.page.read_text("utf-8")
    assert text.count("<script>") == 1
    assert "alert(&#34;x&#34;)" in text
    assert "<script>" not in made.card.read_text("utf-8").replace("```", "").split("## Commands")[0]
    outline(text)


def test_unfinished_and_lonely_runs_give_a_report_that_says_so(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run",
        [dataset(samples=6, methods=(("tpt", None),))],
        random_says(),
        done=lambda cell, index: "ok" if index < 3 else "",
    )
    text = write_report([run], tmp_path / "out").page.read_text("utf-8")
    assert "3 of 6 images" in text
    assert "No method has been evaluated on all images" in text
    assert "pets seed 0: 3 of 6" in text


def test_mistakes_without_their_images_are_listed(written: WrittenReport) -> None:
    assert "image not on this machine" in written.page.read_text("utf-8")


def test_a_run_with_many_variants_has_a_report(tmp_path: Path) -> None:
    """More methods and λ than there are markers for their curves."""
    names = [*METHODS, "tpt+sals", "tpt+ts=1.16", "tpt+no-tdd", "d-tpt+views=0.3", "d-tpt-static"]
    many = [(name, None) for name in names] + [("d-tpt", 10.0**power) for power in range(9)]
    entry = dataset(samples=6, methods=many)
    made = write_report([write_run(tmp_path / "run", [entry], random_says())], tmp_path / "out")
    assert len(made.report.parts[0].means[0].rows) == len(many)
    outline(made.page.read_text("utf-8"))


@needs_chromium
def test_browser_finds_no_error_and_runs_the_script(written: WrittenReport, tmp_path: Path) -> None:
    done = browse(written.page, tmp_path / "profile", "--dump-dom")
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    assert 'data-ready="yes"' in done.stdout


@needs_chromium
def test_tables_sort_by_their_headings(written: WrittenReport, tmp_path: Path) -> None:
    """The page's own script, with a click added; the copy's policy names the longer script."""
    import base64
    import hashlib

    text = written.page.read_text("utf-8")
    start, end = text.index("<script>") + 8, text.index("</script>")
    click = 'document.querySelectorAll("#fine-grained thead button")[1].click();'
    script = text[start:end] + click
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    changed = text[:start] + script + text[end:]
    changed = re.sub(r"sha256-[^']+", f"sha256-{digest}", changed, count=1)
    copy = tmp_path / "clicked.html"
    copy.write_text(changed, "utf-8")
    dom = browse(copy, tmp_path / "profile", "--dump-dom").stdout
    table = dom[dom.index('id="fine-grained"') :]
    table = table[: table.index("</table>")]
    rows = table[table.index("<tbody>") : table.index("</tbody>")].split("<tr")[1:]
    first = [float(re.search(r'data-v="([^"]+)"', row)[1]) for row in rows]
    assert len(first) == 4  # three methods and a temperature
    assert first == sorted(first, reverse=True)
    assert 'aria-sort="descending"' in table


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_short_and_nothing_is_cut(written: WrittenReport, scheme: str) -> None:
    """With details closed: at most six screens, no text beyond the edge, each part opens."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, height, most in ((1280, 800, 6), (390, 844, 9)):
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.goto(written.page.as_uri())
            root = "document.documentElement"
            assert page.evaluate(f"{root}.scrollHeight") <= most * height
            assert page.evaluate(f"{root}.scrollWidth") == width
            first = page.evaluate(
                "document.querySelector('.caveat').getBoundingClientRect().bottom"
            )
            assert width < 1280 or first < height
            assert page.evaluate("document.querySelectorAll('details[open]').length") == 0
            page.goto(f"{written.page.as_uri()}#fine-grained")
            assert page.evaluate("document.querySelectorAll('details[open]').length") == 1
            assert page.evaluate(f"{root}.scrollWidth") == width
            page.close()
        browser.close()


def test_each_table_and_figure_is_on_the_page_once(written: WrittenReport) -> None:
    text = written.page.read_text("utf-8")
    keys = [x.key for x in (*written.report.tables, *written.report.all_figures)]
    assert [key for key in keys if text.count(f'id="{key}"') != 1] == []


def test_bars_are_the_differences_of_the_facts(written: WrittenReport) -> None:
    table, facts = written.report.bars, written.report.families[0]
    assert table.base == "Zero-shot"
    tpt, column = facts.variants[1], table.columns[0]
    difference = facts.difference(tpt, facts.variants[0], metric="accuracy")
    bar = column.bars[1]
    scale = (bar.high - bar.low) / (difference.high - difference.low)
    assert bar.middle - column.zero == pytest.approx(scale * difference.estimate)
    assert bar.text == f"{100 * facts.values['tpt']['accuracy'].value:.1f}"
    assert column.bars[0].low is None  # the base itself
    ends = [end for c in table.columns for b in c.bars[1:] if b for end in (b.low, b.high)]
    assert min(ends) >= 0
    assert max(ends) <= 100


@needs_chromium
@pytest.mark.parametrize("size", ["1200,1600", "390,1600"])
def test_screenshots_show_more_than_blank_paper(written, tmp_path: Path, size: str) -> None:
    target = tmp_path / "page.png"
    browse(written.page, tmp_path / "profile", f"--screenshot={target}", f"--window-size={size}")
    with Image.open(target) as shot:
        assert shot.width == int(size.partition(",")[0])
        assert len(shot.convert("RGB").getcolors(maxcolors=2**24)) > 50
