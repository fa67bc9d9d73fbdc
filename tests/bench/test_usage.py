"""What processes have used."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from moldau.bench.usage import Meter, cpu_of, peak_resident_bytes, resident_bytes


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_cpu_time_is_that_of_the_process() -> None:
    before = cpu_of(os.getpid())
    burn(0.05)
    assert cpu_of(os.getpid()) - before >= 0.05
    assert abs(cpu_of(os.getpid()) - time.process_time()) < 0.05


def test_memory_is_less_than_it_was_at_its_peak() -> None:
    assert 2**20 < resident_bytes(os.getpid()) <= peak_resident_bytes(os.getpid()) * 1.01


def test_a_process_that_is_gone_is_said_so() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        cpu_of(process.pid)
    with pytest.raises(ProcessLookupError):
        resident_bytes(process.pid)


def test_a_meter_counts_only_while_it_runs_and_adds_up() -> None:
    meter = Meter(os.getpid())
    for _ in range(2):
        burn(0.02)
        with meter.running():
            burn(0.02)
    assert 0.04 <= meter.client_cpu_s < 0.08
    assert meter.seconds >= meter.client_cpu_s * 0.9
    assert meter.server_cpu_s is not None
    assert abs(meter.server_cpu_s - meter.client_cpu_s) < 0.02


def test_a_server_on_another_machine_has_no_cpu_time() -> None:
    meter = Meter()
    with meter.running():
        pass
    assert meter.server_cpu_s is None
