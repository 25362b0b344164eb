"""Figures of the operating system, or None."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from amqp_streams.streams.steps import finish
from service_parts.health import machine
from service_parts.health.machine import NAMES_A_STEP
from tests.amqp_streams.server.peers import Authority


def test_the_disk_is_that_of_the_folder(tmp_path: Path) -> None:
    found = machine.disk(tmp_path)
    assert found is not None
    assert 0 < found.free_bytes <= found.size_bytes
    assert machine.disk(None) is None
    assert machine.disk(tmp_path / "none") is None


def test_open_files_are_counted_in_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = finish(machine.open_files())
    with (tmp_path / "more").open("w"):
        after = finish(machine.open_files())
    assert before is not None
    assert after == before + 1
    many = tmp_path / "many"
    many.mkdir()
    for number in range(2 * NAMES_A_STEP):
        (many / str(number)).touch()
    monkeypatch.setattr(machine, "_FILES", many)
    assert sum(1 for _ in machine.open_files()) == 2
    assert machine.open_files_now() == 2 * NAMES_A_STEP
    monkeypatch.setattr(machine, "_FILES", tmp_path / "none")
    assert finish(machine.open_files()) is None
    assert machine.open_files_now() is None


def test_memory_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = machine.memory_bytes()
    assert found is not None
    assert found > 10 << 20
    assert machine.open_files_max() is not None
    broken = tmp_path / "statm"
    broken.write_text("nonsense")
    monkeypatch.setattr(machine, "_MEMORY", broken)
    assert machine.memory_bytes() is None


def test_a_certificate_shows_when_it_expires(tmp_path: Path) -> None:
    settings = Authority(tmp_path).issue("localhost")
    found = machine.certificate_expires_ms(settings.certificate)
    assert found is not None
    assert found > datetime.now(UTC).timestamp() * 1000
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    assert machine.certificate_expires_ms(broken) is None
    assert machine.certificate_expires_ms(tmp_path / "none") is None
    assert machine.certificate_expires_ms(None) is None
