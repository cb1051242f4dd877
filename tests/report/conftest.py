"""Hand-made runs and analyses for the report's tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from handmade import FIVE, dataset, random_says, write_run

from dtpt.report import Gathered, gather


@pytest.fixture(autouse=True)
def no_user_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DTPT_DATA", raising=False)


@pytest.fixture(scope="session")
def five_method_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of each family, five methods, two seeds, plausible answers."""
    shifted = (("zero-shot", None), ("tpt", None), ("c-tpt", 20.0), ("o-tpt", 2.0), ("d-tpt", 1e5))
    sets = [dataset(name, samples=40, methods=FIVE) for name in ("pets", "cars")]
    sets += [
        dataset(name, samples=40, family="natural-shifts", methods=shifted)
        for name in ("sketches", "renditions")
    ]
    return write_run(tmp_path_factory.mktemp("five"), sets, random_says(), seeds=(0, 1))


@pytest.fixture(scope="session")
def five_methods(five_method_run: Path) -> Gathered:
    return gather([five_method_run])
