"""Hand-made runs and analyses for the report's tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from handmade import write_five

from dtpt.report import Loaded, load_runs


@pytest.fixture(autouse=True)
def no_user_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DTPT_DATA", raising=False)


@pytest.fixture(scope="session")
def five_method_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_five(tmp_path_factory.mktemp("five"))


@pytest.fixture(scope="session")
def five_methods(five_method_run: Path) -> Loaded:
    return load_runs([five_method_run])
