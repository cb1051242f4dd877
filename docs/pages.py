"""Gather the pages of the documentation site: `python docs/pages.py build/docs`.

The Markdown files of this folder and of the repository's root are copied; the references of the
command line and of the Python API are made from the code and never committed. The result is a
folder from which MkDocs (or another builder that reads `mkdocs.yml`) builds the site.
"""

import inspect
import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Files outside of docs/ that are pages too, and their names on the site.
ROOT_PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "training/README.md": "training.md",
}
COPIED = ("*.md", "*.svg", "*.json", "*.css", "*.js")
# Modules of the API reference, in the order of the data: name, what it is for.
MODULES = {
    "dtpt": "The names that most programs need.",
    "dtpt.metrics": "Calibration and selective prediction; needs no model.",
    "dtpt.methods": "The methods, and how a name becomes one.",
    "dtpt.data": "Data sets.",
    "dtpt.views": "The views of an image.",
    "dtpt.tuning": "The engine.",
    "dtpt.calibration": "Temperature, prediction sets, abstention, and the calibration file.",
    "dtpt.runs": "Resumable evaluation.",
    "dtpt.analysis": "What the paper computes beside its tables, and studies.",
    "dtpt.errors": "The error classes.",
}
_RECORD = "    options:\n      members: false\n      show_bases: false\n"
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABS = re.compile(r"<!-- tabs -->\n(.*?)<!-- /tabs -->\n", re.DOTALL)
_FENCE = re.compile(r"```(\w+)\n.*?^```$", re.MULTILINE | re.DOTALL)
TAB_TITLES = {"sh": "Command line", "python": "Python"}
_FIGURE = re.compile(r"<!-- image: (\S+) \| (.*?) -->")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def write_pages(target: Path) -> None:
    """Fill a folder, which is emptied first, with every page and figure of the site."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for pattern in COPIED:
        for path in sorted((ROOT / "docs").glob(pattern)):
            shutil.copyfile(path, target / path.name)
    for page in target.glob("*.md"):
        text = with_figures(page.read_text("utf-8"), target)
        page.write_text(with_tabs(site_links(text, folder="docs")), "utf-8")
    for source, name in ROOT_PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        folder = str(Path(source).parent)
        (target / name).write_text(site_links(text, folder=folder), "utf-8")
    (target / "cli.md").write_text(command_reference(), "utf-8")
    (target / "results.md").write_text(results_page(), "utf-8")
    (target / "results.schema.json").write_text(results_schema(), "utf-8")
    (target / "api").mkdir()
    for module, purpose in MODULES.items():
        (target / "api" / f"{module}.md").write_text(api_page(module, purpose), "utf-8")


def with_figures(text: str, target: Path) -> str:
    """Run the Python of a page that contains figures, and put the files that it writes there.

    `<!-- image: views.png | alternative text -->` is a figure. Figures are made for every site and
    never committed.

    Args:
        text: Of the page.
        target: Folder of the site's pages.
    """
    wanted = _FIGURE.findall(text)
    if not wanted:
        return text
    with tempfile.TemporaryDirectory() as folder:
        program = "\n".join(_PYTHON.findall(text))
        command = [sys.executable, "-c", program]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603 - ours
        for name, _ in wanted:
            shutil.copyfile(Path(folder) / name, target / name)
    return _FIGURE.sub(r"![\2](\1)", text)


def with_tabs(text: str) -> str:
    r"""Turn blocks of code between `<!-- tabs -->` and `<!-- /tabs -->` into tabs.

    Example:
        >>> print(with_tabs("<!-- tabs -->\n```sh\nls\n```\n<!-- /tabs -->\n"))
        === "Command line"
        <BLANKLINE>
            ```sh
            ls
            ```
        <BLANKLINE>
    """

    def tabs(match: re.Match[str]) -> str:
        parts = [
            f'=== "{TAB_TITLES[block[1]]}"\n\n{textwrap.indent(block[0], "    ")}\n'
            for block in _FENCE.finditer(match[1])
        ]
        return "\n".join(parts)

    return _TABS.sub(tabs, text)


def site_links(text: str, *, folder: str) -> str:
    """Point links between files of the repository at the pages of the site.

    Args:
        text: Markdown with links relative to `folder`.
        folder: Of the file, relative to the repository's root.

    Returns:
        The same text; links to files that are not pages (source code) become text.

    Example:
        >>> site_links("[a](../SECURITY.md#how) [b](../src/dtpt/files.py)", folder="docs")
        '[a](security.md#how) b'
    """

    def replaced(match: re.Match[str]) -> str:
        words, address, anchor = match[1], match[2], match[3] or ""
        if ":" in address:
            return match[0]
        path = (ROOT / folder / address).resolve()
        page = ROOT_PAGES.get(path.relative_to(ROOT).as_posix())
        if page is None and path.parent == ROOT / "docs" and path.is_file():
            page = path.name
        return f"[{words}]({page}{anchor})" if page else words

    return _LINK.sub(replaced, text)


def command_reference() -> str:
    """Return the reference of all commands and options, from their help."""
    from dtpt.cli.main import make_app

    text = make_app().generate_docs(output_format="markdown")
    commands = re.sub(r"## Table of Contents\n.*?(?=\*\*Commands)", "", text, flags=re.DOTALL)
    commands = commands.replace("][", "]\\[")  # [+modifier][@lambda] is not a link
    return commands.replace("# dtpt\n", "# Command line\n", 1)


def results_page() -> str:
    """Return the description of results.json: every record of the module that writes it."""
    from dtpt.runs import results

    records = [
        name
        for name, value in vars(results).items()
        if isinstance(value, type) and value.__module__ == results.__name__ and name[0] != "_"
    ]
    records.sort(key=lambda name: name != "Results")  # the whole file first
    lines = [
        "# results.json",
        "",
        "`dtpt eval`, `sweep` and `merge` write this file beside the rows of a run; `dtpt export` "
        "writes it again. All numbers are fractions (NLL in nats). The same as a JSON schema: "
        "[results.schema.json](results.schema.json).",
    ]
    return "\n".join([*lines, *(f"\n::: dtpt.runs.results.{name}\n{_RECORD}" for name in records)])


def results_schema() -> str:
    """Return the JSON schema of results.json."""
    from dtpt.runs.results import Results

    schema = Results.model_json_schema(by_alias=True, mode="serialization")
    return json.dumps(schema, indent=2) + "\n"


def api_page(module: str, purpose: str) -> str:
    """Return a page on which mkdocstrings describes every public name of a module."""
    lines = [f"# `{module}`", "", purpose, ""]
    for name in public_names(module):
        lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)


def public_names(module: str) -> list[str]:
    """Return the public names of a module: its `__all__`, or else the classes that it defines.

    Example:
        >>> public_names("dtpt.views")
        ['ViewRecipe', 'Views', 'as_images', 'contact_sheet', 'make_views']
    """
    loaded = import_module(module)
    defined = [
        name
        for name, value in inspect.getmembers(loaded, inspect.isclass)
        if value.__module__ == module
    ]
    return [name for name in getattr(loaded, "__all__", defined) if name != "__version__"]


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
