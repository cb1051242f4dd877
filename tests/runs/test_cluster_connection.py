"""Joining a cluster: what is wrong with an address or a version is said in one line, at once."""

import socket
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from dtpt.runs.cluster.connection import check_address, connected

from dtpt.errors import OptionError, RunError
from dtpt.runs import EvalOptions
from dtpt.runs.cluster import connection


@pytest.fixture
def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_address_where_nothing_answers_is_refused(free_port):
    with pytest.raises(RunError, match=rf"No Ray cluster answers at 127\.0\.0\.1:{free_port}"):
        check_address(f"127.0.0.1:{free_port}")


@pytest.mark.parametrize(
    ("answer", "is_head"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (b"", False),
        (bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]), True),
    ],
)
def test_service_that_is_no_head_is_refused(answer, is_head):
    def serve():
        caller, _ = server.accept()
        with caller:
            caller.recv(1000)
            caller.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        expected = nullcontext() if is_head else pytest.raises(RunError, match="is not the head")
        with expected:
            check_address(address)
        thread.join()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("10.0.0.7", "expected host:port"),
        ("ray://10.0.0.7:10001", "on a machine of the cluster"),
        ("10.0.0.7:99999", "No Ray cluster answers"),
    ],
)
def test_address_of_another_form_is_refused(address, words):
    with pytest.raises(RunError, match=words) as found:
        check_address(address)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("engine", ["spark", "ray=", "ray 10.0.0.7", "local=1"])
def test_unknown_engine_is_a_wrong_value(engine):
    with pytest.raises(OptionError, match="engine"):
        EvalOptions.parse({"engine": engine, "dataset": "dtd"})


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"pip install 'dtpt\[ray\]'"), connected("ray"):
        pass


class PlayedRay:
    """Refuses as Ray does."""

    def __init__(self, error):
        self.error = error
        self.is_shut = False
        self._private = SimpleNamespace(worker=SimpleNamespace(_worker_logs_enabled=True))

    def is_initialized(self):
        return False

    def init(self, **_):
        raise self.error

    def shutdown(self):
        self.is_shut = True


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.50.0"),
            r"Version mismatch: .* Ray: 2\.50\.0 Install the same versions",
        ),
        (ConnectionError("Could not find any running Ray instance"), "Could not find any running"),
        (ConnectionError("Failed to connect to Ray cluster at x"), "at x. If it asks for a token"),
    ],
)
def test_refusal_of_ray_becomes_one_line(monkeypatch, error, words):
    played = PlayedRay(error)
    monkeypatch.setattr(connection, "_ray", lambda: played)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(RunError, match=words) as found, connected("ray"):
        pass
    assert "\n" not in str(found.value)
    assert played.is_shut
    assert played._private.worker._worker_logs_enabled


def test_model_that_only_this_process_has_is_not_sent(run_tiny):
    with pytest.raises(RunError, match=r"--engine ray give model, data sets and methods by name"):
        run_tiny(engine="ray")
