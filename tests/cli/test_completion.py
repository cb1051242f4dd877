"""Shell completion: what is written where, and what a shell then offers."""

import os
import shutil
import subprocess
import sys

import pytest
from cyclopts import App
from cyclopts.completion import detect

from dtpt.cli.completion import install_completion


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ZSH", "ZSH_CUSTOM", "BASH_VERSION", "ZSH_VERSION", "FISH_VERSION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def small(monkeypatch):
    """A program without commands, whose script is made at once."""
    monkeypatch.setattr("dtpt.cli.main.make_app", lambda: App(name="dtpt"))


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


SCRIPTS = {
    "bash": (".local/share/bash-completion/completions/dtpt", ".bashrc"),
    "zsh": (".zsh/completions/_cyclopts_dtpt", ".zshrc"),
    "fish": (".config/fish/completions/dtpt.fish", None),
}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_script_and_one_line_in_the_start_file_are_all_that_is_written(shell, small, home, capsys):
    script, start = SCRIPTS[shell]
    for _ in range(2):  # again after an update: the line stays one
        install_completion(shell=shell)
    assert files(home) == {script, start} - {None}
    assert "dtpt" in (home / script).read_text()
    if start:
        lines = (home / start).read_text().splitlines()
        assert len(lines) == 2
        assert lines[0].startswith("#")
        assert str((home / script).parent) in lines[1]
    assert str(home / script) in capsys.readouterr().out


def test_start_file_keeps_what_is_in_it(small, home):
    (home / ".bashrc").write_text("alias ll='ls -l'\n")
    install_completion(shell="bash")
    assert (home / ".bashrc").read_text().startswith("alias ll='ls -l'\n# Load dtpt completion\n")


def test_shell_is_detected_and_an_unknown_one_is_refused(small, home, monkeypatch, capsys):
    monkeypatch.setattr(detect.subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(OSError))
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    install_completion()
    assert files(home) == {SCRIPTS["fish"][0]}
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    with pytest.raises(SystemExit):
        install_completion()
    assert "--shell" in capsys.readouterr().err


def offered(home, words):
    """Return what bash offers for the last of some words."""
    program = home / "bin" / "dtpt"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(
            f"#!{sys.executable}\nfrom dtpt.cli.main import run\nrun()\n", encoding="utf-8"
        )
        program.chmod(0o755)
    typed = " ".join(f"'{word}'" for word in words)
    code = (
        f"source '{home / SCRIPTS['bash'][0]}'; COMP_WORDS=({typed}); "
        f'COMP_CWORD={len(words) - 1}; _dtpt; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PATH": path},
    )
    return done.stdout.replace("\\", "").split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_offers_commands_options_and_names(home):
    install_completion(shell="bash")
    assert offered(home, ["dtpt", "repr"]) == ["reproduce"]
    assert offered(home, ["dtpt", "models", "f"]) == ["fetch"]
    assert "--views" in offered(home, ["dtpt", "eval", "--v"])
    assert offered(home, ["dtpt", "eval", "--model", "poc"]) == ["pocket"]
    assert "tpt,c-tpt" in offered(home, ["dtpt", "eval", "--method", "tpt,c-"])
    assert "openmoji" in offered(home, ["dtpt", "sweep", "--dataset", "open"])
    assert set(offered(home, ["dtpt", "reproduce", "table"])) >= {"table1", "table7"}


def test_every_command_is_in_the_script_which_needs_no_torch():
    code = (
        "import sys; from dtpt.cli.main import make_app; "
        "print(make_app().generate_completion(shell='bash')); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300
    )
    for words in ("--install-completion", "doctor", "verify"):
        assert words in done.stdout
