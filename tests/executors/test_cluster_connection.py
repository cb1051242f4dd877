"""Joining a cluster: wrong addresses and versions are refused in one line; quotas of nodes."""

import socket
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from dtpt.errors import OptionError, RunError
from dtpt.executors import cluster
from dtpt.executors.cluster import ResourceRequest, check_address, choose_quota, connected
from dtpt.options import EvalOptions


def test_address_where_nothing_answers_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RunError, match=address):
            check_address(address)


@pytest.mark.parametrize(
    ("answer", "is_head"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (b"", False),
        (bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]), True),  # a SETTINGS frame
    ],
)
def test_service_that_is_not_the_head_of_a_cluster_is_refused(answer, is_head):
    def serve():
        caller, _ = server.accept()
        with caller:
            caller.recv(1000)
            caller.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with nullcontext() if is_head else pytest.raises(RunError, match="dashboard"):
            check_address(address)
        thread.join()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("10.0.0.7", "host:port"),
        ("ray://10.0.0.7:10001", "host:port"),
        ("10.0.0.7:99999", "10.0.0.7:99999"),
    ],
)
def test_address_of_another_form_is_refused(address, words):
    with pytest.raises(RunError, match=words) as caught:
        check_address(address)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("executor", ["spark", "ray=", "ray 10.0.0.7", "local=1"])
def test_unknown_executor_is_an_invalid_option(executor):
    with pytest.raises(OptionError, match="executor"):
        EvalOptions.parse({"executor": executor, "dataset": "dtd"})


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"dtpt\[ray\]"), connected("ray"):
        pass


class FakeRay:
    """Refuses, or accepts, to join."""

    def __init__(self, error=None, *, is_joined=False):
        self.error, self.is_joined = error, is_joined
        self.is_shut, self.options = False, None
        self._private = SimpleNamespace(worker=SimpleNamespace(_worker_logs_enabled=True))

    def is_initialized(self):
        return self.is_joined

    def init(self, address, **options):
        self.options = {"address": address, **options}
        if self.error is not None:
            raise self.error

    def shutdown(self):
        self.is_shut = True


@pytest.fixture
def join(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def enter(fake, executor="ray"):
        monkeypatch.setitem(sys.modules, "ray", fake)
        with connected(executor):
            assert not fake._private.worker._worker_logs_enabled

    return enter


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("Version mismatch: started with:\n    Ray: 2.50.0"), r"2\.50\.0.*Install"),
        (ConnectionError("Could not find any running Ray instance"), "Could not find any"),
        (ConnectionError("Failed to connect to Ray cluster at x"), "RAY_AUTH_MODE"),
    ],
)
def test_refusal_of_ray_becomes_one_line(join, error, words):
    fake = FakeRay(error)
    with pytest.raises(RunError, match=words) as caught:
        join(fake)
    assert "\n" not in str(caught.value)
    assert fake.is_shut
    assert fake._private.worker._worker_logs_enabled


def test_own_cluster_takes_settings_and_is_ended(join):
    fake = FakeRay()
    join(fake, "ray=local")
    assert fake.options["address"] == "local"
    assert not fake.options["include_dashboard"]
    assert fake.is_shut


def test_connection_of_the_calling_program_is_kept(join):
    fake = FakeRay(is_joined=True)
    join(fake)
    assert (fake.is_shut, fake.options) == (False, None)


def test_variables_that_silence_ray_do_not_stay(join, monkeypatch):
    import os

    monkeypatch.setenv("RAY_DEDUP_LOGS", "1")  # the user's own value wins
    before = dict(os.environ)
    join(FakeRay())
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("offered", "request_", "workers"),
    [
        ({"CPU": 8.0}, ResourceRequest(workers=3), 3),
        ({"CPU": 8.0}, ResourceRequest(threads=16), 0),
        ({"CPU": 8.0}, ResourceRequest(worker_bytes=3 * 10**9), 2),
        ({"CPU": 8.0, "GPU": 1.0}, ResourceRequest(), 1),
        ({"CPU": 8.0, "GPU": 1.0}, ResourceRequest(device="cpu"), 8),
        ({"CPU": 8.0}, ResourceRequest(device="cuda"), 0),
        ({}, ResourceRequest(), 0),
    ],
)
def test_workers_of_a_node_follow_its_cores_memory_and_accelerators(offered, request_, workers):
    assert choose_quota(offered, request_, memory=8 * 10**9).workers == workers


def test_cores_that_an_accelerator_leaves_make_views():
    quota = choose_quota({"CPU": 16.0, "GPU": 2.0}, ResourceRequest(threads=2))
    assert (quota.workers, quota.cores, quota.view_workers) == (2, 8.0, 6)
    fixed = choose_quota({"CPU": 16.0, "GPU": 1.0}, ResourceRequest(view_workers=1))
    assert fixed.view_workers == 1
    many = choose_quota({"CPU": 64.0, "GPU": 1.0}, ResourceRequest())
    assert many.view_workers == cluster.MOST_VIEW_WORKERS
