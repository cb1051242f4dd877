"""What the machine has: cores and memory of a container, the processor, the versions."""

import platform

import pytest

from dtpt import machine


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Let the system's files be those of a folder, which is empty at first."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(machine, "MEMORY_INFO", tmp_path / "meminfo")
    return tmp_path


def test_limits_of_a_container_count(system):
    everything = machine.usable_cores()
    (system / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 5000 kB\n")
    (system / "cpu.max").write_text("100000 100000\n")
    (system / "memory.max").write_text("5000000\n")
    (system / "memory.current").write_text("1000000\n")
    assert machine.usable_cores() == 1
    assert machine.free_memory() == 4_000_000
    (system / "cpu.max").write_text("max 100000\n")
    (system / "memory.max").write_text("max\n")
    assert machine.usable_cores() == everything
    assert machine.free_memory() == 5000 * 1024


def test_unknown_memory_is_none(system):
    assert machine.free_memory() is None


def test_the_processors_name_comes_from_linux_own_list(system):
    assert machine.processor_name() == (platform.processor() or platform.machine())
    (system / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Quick Chip: 9\nflags\t: x\n")
    assert machine.processor_name() == "Quick Chip: 9"


def test_versions():
    assert machine.package_version("numpy") == machine.describe_machine()["numpy"]
    assert machine.package_version("no-such-package") == "unknown"
