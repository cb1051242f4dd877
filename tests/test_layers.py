"""Imports: data flows one way, and torch is not loaded early."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "dtpt"
LAYERS = [
    {"errors"},
    {"images", "files", "machine", "metrics", "tables", "terminal"},
    {"executors"},
    {"clip", "pocket"},
    {"views"},
    {"methods"},
    {"tuning"},
    {"options"},
    {"calibration"},
    {"prediction", "data"},
    {"runs"},
    {"commands"},
    {"analysis"},
    {"report"},
    {"web"},
    {"cli", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
METRICS_USERS = {"metrics", "tables", "calibration", "runs", "analysis", "report", "cli", "web"}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_upstream_imports_what_is_downstream(path):
    here = layer_of(path)
    assert here in LEVEL, f"{here} has no layer: add it to docs/architecture.md and here"
    for name in imported_modules(path):
        root, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if root != "dtpt" or target not in LEVEL:
            continue
        assert LEVEL[target] <= LEVEL[here], f"{path} (layer {here}) imports {name}"
        assert target != "metrics" or here in METRICS_USERS, f"{path} imports metrics"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_package_never_imports_torchvision_or_another_clip(path):
    roots = {name.split(".")[0] for name in imported_modules(path)}
    assert not roots & {"torchvision", "open_clip", "transformers", "timm", "sklearn"}


@pytest.mark.parametrize(
    "pattern",
    [
        r"\bpickle\.loads?\(",
        r"(?<![\w.])eval\(",
        r"(?<![\w.])exec\(",
        r"yaml\.load\(",
        r"\.extractall\((?!.*filter=)",
        r"torch\.load\((?!.*weights_only=True)",
        r"torch\.jit\.load",
    ],
)
def test_no_source_line_can_run_foreign_code(pattern):
    hits = []
    for path in FILES:
        text = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
        calls = re.sub(r"\s*\n\s*", " ", text)  # a call may span lines
        hits += [str(path)] if re.search(pattern, calls) else []
    assert not hits


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def test_import_and_help_load_no_torch():
    code = """
import sys
import dtpt
assert not {"torch", "numpy", "scipy"} & set(sys.modules), "import dtpt"
from dtpt.cli.main import call
for words in (["--help"], ["--version"]):
    try:
        call(words)
    except SystemExit:
        pass
assert not {"torch", "scipy", "matplotlib"} & set(sys.modules), "dtpt --help"
"""
    assert "predict" in run(code)


def test_listing_commands_load_no_torch():
    code = """
import sys
from dtpt.cli.main import call
helps = [[name, "--help"] for name in ("score", "predict", "serve")]
for words in (["models"], ["datasets"], *helps):
    try:
        call(words)
    except SystemExit:
        pass
    assert "torch" not in sys.modules, words
"""
    run(code)


def test_public_names_resolve():
    code = "import dtpt; [getattr(dtpt, name) for name in dtpt.__all__]; print(len(dtpt.__all__))"
    assert int(run(code)) > 10
