"""How a node applies the configured logs at its start, and that it releases everything if it cannot start."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from amqp_streams import client
from amqp_streams.config import Limits, Listener, LogSettings, NodeSettings
from amqp_streams.errors import ConfigError
from amqp_streams.log_settings import Compression
from amqp_streams.server.run import Server, serve
from amqp_streams.storage import DirectoryStore
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.batched import compression
from tests.amqp_streams.server.peers import closed_without_a_word


def _settings(tmp_path: Path, **logs: LogSettings) -> NodeSettings:
    return NodeSettings(data_dir=tmp_path, listen=(Listener(host="127.0.0.1", port=0),), logs=logs)


async def _run(settings: NodeSettings, store: MemoryStore | DirectoryStore) -> dict[str, list[str]]:
    stop = asyncio.Event()
    addresses: dict[str, list[str]] = {}

    def ready(bound: dict[str, list[str]]) -> None:
        addresses.update(bound)
        stop.set()

    assert await serve(settings, ready=ready, stop=stop, store=store) == 0
    return addresses


class _Timed(MemoryStore):
    """Notes how much time it gets to close."""

    within_s: float | None = None

    def close(self, *, within_s: float | None = None) -> bool:
        self.within_s = within_s
        super().close()
        return False


async def test_a_stop_gives_the_store_what_is_left_of_its_time_and_logs_whether_it_is_clean(
    tmp_path: Path,
) -> None:
    store = _Timed()
    settings = _settings(tmp_path).model_copy(update={"limits": Limits(drain_ms=3000)})
    with capture_logs() as logs:
        await _run(settings, store)
    assert store.within_s is not None
    assert 1 <= store.within_s <= 6
    assert [entry["clean"] for entry in logs if entry["event"] == "stopped"] == [False]


async def test_configured_logs_are_created_and_the_addresses_reported(tmp_path: Path) -> None:
    store = MemoryStore()
    addresses = await _run(_settings(tmp_path, temps=LogSettings(partitions=3)), store)
    assert len(store.logs["temps"].partitions) == 3
    assert addresses["amqp"][0].startswith("127.0.0.1:")
    assert not addresses["amqp"][0].endswith(":0")


class _Shared(MemoryStore):
    """A store of several nodes: another one creates each log a moment earlier."""

    def create(self, name: str, settings: LogSettings, *, incarnation: str) -> StoredLog:
        super().create(name, settings, incarnation=incarnation)
        return super().create(name, settings, incarnation=incarnation)


async def test_a_log_that_another_node_creates_meanwhile_is_used(tmp_path: Path) -> None:
    store = _Shared()
    await _run(_settings(tmp_path, temps=LogSettings(partitions=3)), store)
    assert len(store.logs["temps"].partitions) == 3


async def test_a_setting_that_the_configuration_does_not_name_stays_as_it_was_set(tmp_path: Path) -> None:
    """`--log temps:4` at a restart must not undo `log update temps --retention 7d`."""
    store = MemoryStore()
    store.create("temps", LogSettings(partitions=4, retention_ms=604_800_000), incarnation="x")
    await _run(_settings(tmp_path, temps=LogSettings(partitions=4, segment_bytes=1 << 20)), store)
    assert store.logs["temps"].settings == LogSettings(
        partitions=4, retention_ms=604_800_000, segment_bytes=1 << 20
    )


async def test_a_log_configured_without_its_partitions_keeps_them(tmp_path: Path) -> None:
    store = MemoryStore()
    store.create("temps", LogSettings(partitions=4), incarnation="x")
    await _run(_settings(tmp_path, temps=LogSettings(retention_bytes=1 << 30)), store)
    assert store.logs["temps"].settings == LogSettings(partitions=4, retention_bytes=1 << 30)


async def test_another_number_of_partitions_is_refused_with_both_and_the_remedy(tmp_path: Path) -> None:
    store = MemoryStore()
    store.create("temps", LogSettings(partitions=4), incarnation="x")
    with pytest.raises(ConfigError, match=r"has 4 partitions .* has 2: .* delete the log"):
        await _run(_settings(tmp_path, temps=LogSettings(partitions=2)), store)


async def test_a_setting_without_its_library_keeps_the_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_codec", lambda _name: None)
    store = DirectoryStore.open(tmp_path / "data", loop_call=asyncio.get_running_loop().call_soon_threadsafe)
    with pytest.raises(
        ConfigError, match=r"log 'temps': the setting compression = 'zstd' needs .*pip install"
    ):
        await _run(_settings(tmp_path, temps=LogSettings(compression=Compression.ZSTD)), store)
    assert not store.logs
    store.close()


HUNG_UP = """
import os, signal, sys
from pathlib import Path
from amqp_streams.cli.commands.serve import _hangups_held
from amqp_streams.config import Listener, NodeSettings
import amqp_streams.server.run  # the name is also that of its function
node = sys.modules["amqp_streams.server.run"]

opened = node.open_store

async def hung_up(settings, loop):
    os.kill(os.getpid(), signal.SIGHUP)
    return await opened(settings, loop)

node.open_store = hung_up
settings = NodeSettings(data_dir=Path(sys.argv[1]), listen=(Listener(host="127.0.0.1", port=0),))
with _hangups_held():
    os.kill(os.getpid(), signal.SIGHUP)
    ready = lambda _addresses: os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(node.run(settings, ready=ready, reread=lambda: settings))
"""


def test_a_sighup_during_the_start_is_obeyed_when_the_node_is_ready(tmp_path: Path) -> None:
    """Unhandled, it would end a node during recovery; ignored, it would leave outdated settings in force."""
    done = subprocess.run(
        [sys.executable, "-c", HUNG_UP, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "reloaded" in said


async def test_a_node_that_stops_says_so_first_and_serves_on_for_the_delay(tmp_path: Path) -> None:
    """A load balancer needs time to notice that it must not send clients to this node."""
    settings = _settings(tmp_path).model_copy(
        update={"admin_listen": Listener(host="127.0.0.1", port=0), "shutdown_delay_ms": 60_000}
    )
    node = Server(settings)
    await node.start(MemoryStore())
    stopping = asyncio.create_task(node.announce_stop())
    await asyncio.sleep(0)
    try:
        reader, writer = await _connected(node.addresses["admin"][0])
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"503" in await reader.readline()
        writer.close()
        reader, writer = await _connected(node.addresses["amqp"][0])
        writer.write(b"AMQP\x03\x01\x00\x00")
        assert await reader.readexactly(8) == b"AMQP\x03\x01\x00\x00"
        writer.close()
        assert not stopping.done()
    finally:
        stopping.cancel()
        await node.stop()


async def test_few_descriptors_bound_the_connections_and_the_log_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[Server.__module__], "raise_open_files", lambda _wanted: 1024)
    server = Server(_settings(tmp_path, temps=LogSettings(partitions=4)))
    try:
        with capture_logs() as lines:
            await server.start(MemoryStore())
        assert server.service is not None
        use = finish(server.service.status()).uses["connections"]
        assert (server._admission.limit, use.limit) == (512, 512)
        (line,) = [line for line in lines if line["event"] == "connections_bounded"]
        assert (line["connections"], line["limit"], line["descriptors"], line["partitions"]) == (
            512,
            10_000,
            1024,
            4,
        )
    finally:
        await server.stop()


async def test_a_client_with_an_open_connection_keeps_its_slot_when_others_come(tmp_path: Path) -> None:
    server = Server(
        _settings(tmp_path, temps=LogSettings()).model_copy(update={"limits": Limits(connections=2)})
    )
    try:
        await server.start(MemoryStore())
        address = server.addresses["amqp"][0]
        async with client.connect(f"amqp://{address}") as known, known.producer("temps") as producer:
            strangers = [await _connected(address) for _ in range(5)]
            await producer.send(client.Event(b"still here"))
            for stranger in strangers[:-1]:
                assert await closed_without_a_word(stranger)
            for _, writer in strangers:
                writer.close()
    finally:
        await server.stop()


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))
