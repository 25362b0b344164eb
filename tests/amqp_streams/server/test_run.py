"""What a node makes of the configured logs when it starts, and that it lets go of everything when it cannot."""

import asyncio
from pathlib import Path

import pytest

from amqp_streams.config import Listener, LogSettings, NodeSettings
from amqp_streams.errors import ConfigError
from amqp_streams.server.run import serve
from amqp_streams.testing import MemoryStore


def _settings(tmp_path: Path, **logs: LogSettings) -> NodeSettings:
    return NodeSettings(data_dir=tmp_path, listen=(Listener(host="127.0.0.1", port=0),), logs=logs)


async def _run(settings: NodeSettings, store: MemoryStore) -> dict[str, list[str]]:
    stop = asyncio.Event()
    addresses: dict[str, list[str]] = {}

    def ready(bound: dict[str, list[str]]) -> None:
        addresses.update(bound)
        stop.set()

    assert await serve(settings, ready=ready, stop=stop, store=store) == 0
    return addresses


async def test_configured_logs_are_made_and_the_addresses_told(tmp_path: Path) -> None:
    store = MemoryStore()
    addresses = await _run(_settings(tmp_path, temps=LogSettings(partitions=3)), store)
    assert len(store.logs["temps"].partitions) == 3
    assert addresses["amqp"][0].startswith("127.0.0.1:")
    assert not addresses["amqp"][0].endswith(":0")


async def test_a_setting_that_the_configuration_does_not_name_stays_as_it_was_set(tmp_path: Path) -> None:
    """`--log temps:4` at a restart must not undo `log update temps --retention 7d`."""
    store = MemoryStore()
    store.create("temps", LogSettings(partitions=4, retention_ms=604_800_000), incarnation="x")
    await _run(_settings(tmp_path, temps=LogSettings(partitions=4, segment_bytes=1 << 20)), store)
    assert store.logs["temps"].settings == LogSettings(partitions=4, retention_ms=604_800_000, segment_bytes=1 << 20)


async def test_a_log_configured_without_its_partitions_keeps_them(tmp_path: Path) -> None:
    store = MemoryStore()
    store.create("temps", LogSettings(partitions=4), incarnation="x")
    await _run(_settings(tmp_path, temps=LogSettings(retention_bytes=1 << 30)), store)
    assert store.logs["temps"].settings == LogSettings(partitions=4, retention_bytes=1 << 30)


async def test_another_number_of_partitions_is_refused_with_both_and_the_remedy(tmp_path: Path) -> None:
    store = MemoryStore()
    store.create("temps", LogSettings(partitions=4), incarnation="x")
    with pytest.raises(ConfigError, match=r"has 4 partitions .* says 2: .* delete the log"):
        await _run(_settings(tmp_path, temps=LogSettings(partitions=2)), store)
