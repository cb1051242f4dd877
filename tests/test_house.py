"""The house rules that linters do not check; docs/architecture.md lists them."""

import ast
import re
from collections import Counter
from pathlib import Path

from pages import ROOT_PAGES

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src/**/*.py", "training/*.py", "docs/*.py", "benchmarks/*.py")
SOURCES = sorted(path for pattern in FOLDERS for path in ROOT.glob(pattern))
TESTS = sorted(ROOT.glob("tests/**/*.py"))
TEXTS = [
    path
    for pattern in ("src/**/*", "tests/**/*", "training/*", "docs/*", "*.md", "*.toml", "*.yml")
    for path in sorted(ROOT.glob(pattern))
    if path.suffix in (".py", ".md", ".json", ".js", ".css", ".html", ".toml", ".yml")
    and "work" not in path.relative_to(ROOT).parts
    and path != Path(__file__)
]
LONGEST_FUNCTION, LONGEST_FILE = 60, 600

# Longer than the rest with a reason.
LONG_FILES = {
    "tests/clip/loading/hostile_checkpoints.py": "one list of hostile files, to be read as a list"
}

# Functions that take a third argument by position, and why.
POSITIONAL = {
    "src/dtpt/errors.py:__init__": "the parts of one sentence, in its order",
    "src/dtpt/clip/model.py:_to_openai_names": "torch calls this hook by position",
    "src/dtpt/clip/model.py:_from_openai_names": "torch calls this hook by position",
    "src/dtpt/clip/packed.py:forward": "torch calls it by position",
    "src/dtpt/cli/flags.py:read_environment": "cyclopts calls it by position",
    "src/dtpt/cli/flags.py:read_config": "cyclopts calls it by position",
    "src/dtpt/cli/flags.py:check_whole_numbers": "cyclopts calls it by position",
    "training/augment.py:uniform": "count, low, high: as everywhere",
    "training/augment.py:pick": "the order of torch.where",
}
# Older code that has such functions still: how many at most, so that it can only become fewer.
OLDER = {"src/dtpt/analysis": 4, "src/dtpt/cli": 2, "src/dtpt/report": 8, "src/dtpt/runs": 2}

# Words that point to documents or lists which a reader of this repository does not have.
ABSENT = re.compile(
    r"(?i)\b(question|defect|finding) \d+|\berratum E\d|\((?:E|F)\d+(?:, (?:E|F)\d+)*\)"
    r"|\b(review|evidence|field|style|reliability|ecosystem)\.md\b"
)
# Words that the terms of the field replace: image, worker, executor, variant, calibration, OOD.
REPLACED = re.compile(
    r"(?i)\b(pictures|replica|crew|porters?|parcels?|contenders?|companions?|told apart"
    r"|unfamiliar|promised?)\b"
)
DOCUMENT = re.compile(r"(?<![\w/.-])(?:docs/|training/)?([A-Za-z][\w-]*\.md)\b")


def functions(path):
    """Yield every function of a file, methods and inner ones too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def test_functions_and_files_are_short():
    for path in (*SOURCES, *TESTS):
        lines = len(path.read_text("utf-8").splitlines())
        assert lines <= LONGEST_FILE or name_of(path) in LONG_FILES, f"{path}: {lines} lines"
        for node in functions(path):
            length = node.end_lineno - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{path}: {node.name} has {length} lines"


def positional(node):
    """The names of the arguments that may be given by position, self and cls left out."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def is_protocol(node):
    """Whether somebody else decides about its arguments: Python (`__exit__`), ASGI (`__call__`)."""
    return node.name.startswith("__") and node.name.endswith("__")


def test_a_third_argument_has_its_name():
    older = Counter()
    for path in SOURCES:
        part = "/".join(name_of(path).split("/")[:3])
        for node in functions(path):
            if len(positional(node)) <= 2 or (is_protocol(node) and node.name != "__init__"):
                continue
            if f"{name_of(path)}:{node.name}" in POSITIONAL:
                continue
            assert part in OLDER, f"{name_of(path)}: {node.name}{tuple(positional(node))}"
            older[part] += 1
    for part, count in older.items():
        assert count <= OLDER[part], f"{part} has {count} functions with a third argument unnamed"


def test_no_text_cites_what_is_not_in_the_repository_or_leaves_work_for_later():
    for path in TEXTS:
        text = path.read_text("utf-8")
        found = re.search(r"\b(TODO|FIXME|XXX)\b", text) or ABSENT.search(text)
        assert found is None, f"{path}: {found[0]}"


def test_texts_use_the_terms_of_the_field():
    for path in TEXTS:
        is_test = ROOT / "tests" in path.parents
        if path.suffix in (".py", ".md", ".toml", ".html") and not is_test:
            word = REPLACED.search(path.read_text("utf-8"))
            assert word is None, f"{path}: {word[0]}"


def docstrings(path):
    """Return all docstrings of a file, as one text."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    tree = ast.walk(ast.parse(path.read_text("utf-8")))
    return "\n".join(ast.get_docstring(node) or "" for node in tree if isinstance(node, kinds))


def test_documents_that_code_names_exist():
    known = {found.name for found in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}
    known |= {*ROOT_PAGES.values(), "README.md"}
    known |= {"card.md", "tables.md"}  # written by `dtpt report`
    for path in (*SOURCES, *TESTS):
        absent = set(DOCUMENT.findall(docstrings(path))) - known
        assert absent == set(), path


def test_modules_have_names_that_say_something():
    stems = {path.stem for path in SOURCES} | {path.parent.name for path in SOURCES}
    assert not stems & {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


def test_no_module_has_the_name_of_a_folder_beside_it():
    twins = {name_of(path) for path in SOURCES if path.with_suffix("").is_dir()}
    assert twins == set()
