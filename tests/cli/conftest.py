"""A saved tiny model, a folder of images, and how to call a command on them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))
sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
sys.path.insert(0, str(Path(__file__).parents[1] / "clip" / "loading"))

from handmade import write_five
from processes import PROGRAM
from tiny_runs import draw_images, tiny_clip

from dtpt.cli.main import run as run_command
from dtpt.clip.loading.save import save_model


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tiny model and a folder of images."""
    folder = tmp_path_factory.mktemp("world")
    save_model(tiny_clip(), folder / "tiny", tokenizer_json=None)
    draw_images(folder / "images", per_class=100)
    return folder


@pytest.fixture(scope="session")
def five_method_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of each family, five methods, two seeds, plausible answers."""
    return write_five(tmp_path_factory.mktemp("five"))


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is changed by the user's variables."""
    for name in list(os.environ):
        if name.startswith(("DTPT_", "SLURM_")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DTPT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def dtpt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., SimpleNamespace]:
    """Run a command in this process as a shell would: exit code and both outputs."""

    def run(*words: object) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["dtpt", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            run_command()
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run


@pytest.fixture
def dtpt_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in a process of its own; keyword arguments are those of `subprocess.run`."""

    def run(*words: object, **named: object) -> subprocess.CompletedProcess[str]:
        settings = {"capture_output": True, "text": True, "timeout": 300, **named}
        return subprocess.run([sys.executable, "-c", PROGRAM, *map(str, words)], **settings)

    return run
