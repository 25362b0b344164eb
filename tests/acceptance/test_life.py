"""The life cycle of a node: start, restart, reload, stop, and the disk that it uses."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amqp_streams.client import (
    EARLIEST,
    NO_RETRY,
    EndpointError,
    Event,
    RejectedError,
    ReleasedError,
    RetryPolicy,
)
from amqp_streams.client.blocking import Consumer, Pending, Producer, connect
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli, StartNode
from tests.acceptance.test_doors import get


def read(consumer: Consumer, count: int) -> list[object]:
    """The bodies of the next `count` events."""
    bodies: list[object] = []
    while len(bodies) < count:
        events = consumer.receive(timeout=60)
        assert events, f"only {len(bodies)} of {count} came"
        bodies += [event.body for event in events]
    return bodies


@pytest.mark.parametrize("sync", ["always", "interval:50", "never"])
def test_every_sync_mode_is_shown_in_info_and_keeps_events_over_a_restart(
    start_node: StartNode, cli: Cli, sync: str
) -> None:
    node = start_node("--sync", sync, log="temps:2")
    cli(node, "send", "temps", given="".join(f"{number}\n" for number in range(1000)))
    assert json.loads(cli(node, "info", "temps", "--json"))["sync"] == sync
    assert node.stop() == 0
    node.start()
    bodies = cli(node, "receive", "temps", "--format", "body").split()
    assert sorted(map(int, bodies)) == list(range(1000))


@pytest.mark.usefixtures("real_commands")
def test_sigterm_keeps_accepted_events_notifies_peers_and_ends_with_0(start_node: StartNode) -> None:
    node = start_node(log="temps:2")
    with connect(node.url, retry=NO_RETRY) as client, client.consumer("temps") as consumer:
        producer = client.producer("temps")
        producer.__enter__()
        pending = [producer.post(Event(str(number))) for number in range(500)]
        pending[0].result()
        assert node.stop() == 0, node.words
        with pytest.raises(EndpointError, match="the server is shutting down") as told:
            _read_on(consumer)
        assert told.value.condition in {"amqp:link:detach-forced", "amqp:connection:forced"}
        accepted = sum(one.done and _accepted(one) for one in pending)
    node.start()
    with connect(node.url) as client:
        stored = sum(partition.event_count or 0 for partition in client.info("temps").partitions)
    assert 1 <= accepted <= stored <= 500


def _read_on(consumer: Consumer) -> None:
    while consumer.receive(timeout=60):
        pass


def _accepted(pending: Pending) -> bool:
    try:
        pending.result(timeout=0)
    except EndpointError:
        return False
    return True


@pytest.mark.parametrize("end", [NodeProcess.kill, NodeProcess.stop])
def test_a_producer_and_a_consumer_continue_after_a_restart_of_the_node(
    start_node: StartNode, end: Callable[[NodeProcess], object]
) -> None:
    node = start_node(log="temps:1")
    with (
        connect(node.url) as client,
        client.consumer("temps", start=EARLIEST) as consumer,
        client.producer("temps") as producer,
    ):
        producer.send(Event(b"before"))
        assert read(consumer, 1) == [b"before"]
        end(node)
        node.start()
        producer.send(Event(b"after"))
        assert read(consumer, 1) == [b"after"]


def test_a_second_node_on_the_same_data_is_refused_in_words(start_node: StartNode) -> None:
    node = start_node(log="temps:1")
    program = str(Path(sys.executable).parent / "amqp-streams")
    second = [program, "serve", "--data-dir", str(node.data_dir), "--listen", "127.0.0.1:0"]
    done = subprocess.run(second, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert str(node.data_dir) in done.stderr
    assert "Traceback" not in done.stderr
    with connect(node.url) as client:
        assert client.info("temps").partitions, "the first one is not disturbed"


def test_a_taken_port_is_named(start_node: StartNode, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        node = NodeProcess(tmp_path / "other", listen=address)
        with pytest.raises(RuntimeError, match=address):
            node.start()
    assert node.process is not None
    assert node.process.returncode == 2


def test_a_log_keeps_its_number_of_partitions(start_node: StartNode) -> None:
    node = start_node(log="temps:2")
    assert node.stop() == 0
    node.options[node.options.index("temps:2")] = "temps:3"
    with pytest.raises(RuntimeError, match="2 partitions"):
        node.start()
    assert node.process is not None
    assert node.process.returncode == 2


def test_a_node_that_was_stopped_and_continued_serves_on(start_node: StartNode) -> None:
    node = start_node(log="temps:1")
    with connect(node.url) as client, client.producer("temps") as producer:
        producer.send(Event(b"before"))
        os.kill(node.pid, signal.SIGSTOP)
        pending = producer.post(Event("meanwhile"))
        time.sleep(0.2)
        assert not pending.done
        os.kill(node.pid, signal.SIGCONT)
        assert pending.result(timeout=60).attempts == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of a few megabytes for the data."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small file system is mounted: that takes root")
    folder = tmp_path / "node" / "data"
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_refuses_producers_and_recovers(
    small_disk: Path, start_node: StartNode, cli: Cli
) -> None:
    """Refused events are not lost: accepted events stay readable, and sending works again when space is
    available.
    """
    node = start_node("--admin-listen", "127.0.0.1:0", log="temps:1")
    body = b"x" * 10_000
    ballast = small_disk / "ballast"
    with (
        connect(node.url, retry=RetryPolicy(attempts_max=2, first_ms=10, wait_max_ms=10)) as client,
        client.producer("temps") as producer,
    ):
        accepted = 0
        for _ in range(50):
            producer.send(Event(body))
            accepted += 1
        free = shutil.disk_usage(small_disk).free
        ballast.write_bytes(bytes(max(0, free - 300_000)))
        accepted += _until_refused(producer, body)
        _wait_for(node, lambda: get(node, "/readyz")[0] == 503)
        assert "is full" in get(node, "/readyz")[1]
        assert "amqp_streams_hindered 1.0" in get(node, "/metrics")[1]
        with client.consumer("temps", start=EARLIEST) as consumer:
            assert len(read(consumer, accepted)) == accepted
        _wait_for(node, lambda: "disk_full" in node.words)
        ballast.unlink()
        _until_accepted(producer, body)
        accepted += 1
        _wait_for(node, lambda: get(node, "/readyz")[0] == 200)
        _wait_for(node, lambda: "disk_has_room" in node.words)
    assert node.stop() == 0, node.words
    node.start()
    assert len(cli(node, "receive", "temps", "--format", "body").split()) == accepted


def _wait_for(node: NodeProcess, met: Callable[[], bool]) -> None:
    """Wait for a change. The node examines its store twice a second, and then logs what changed."""
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline, node.words
        time.sleep(0.1)


def test_a_disk_that_one_log_filled_recovers_when_its_retention_is_shortened(
    small_disk: Path, start_node: StartNode, cli: Cli
) -> None:
    node = start_node(log="temps:1")
    body = b"x" * 100_000
    with (
        connect(node.url, retry=RetryPolicy(attempts_max=2, first_ms=10, wait_max_ms=10)) as client,
        client.producer("temps") as producer,
    ):
        _until_refused(producer, body)
        free = shutil.disk_usage(small_disk).free
        cli(node, "log", "update", "temps", "--retention", "1s", "--segment-age", "1s")
        _until_accepted(producer, body, within_s=60)
        assert shutil.disk_usage(small_disk).free > free + 5_000_000


def _until_refused(producer: Producer, body: bytes) -> int:
    for accepted in range(3000):
        try:
            producer.send(Event(body))
        except (RejectedError, ReleasedError):
            return accepted
    pytest.fail("it is never full")


def _until_accepted(producer: Producer, body: bytes, *, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            producer.send(Event(body))
        except (RejectedError, ReleasedError):
            assert time.monotonic() < deadline, "it does not heal"
            time.sleep(0.1)
        else:
            return


def test_retained_events_do_not_count_as_read_while_unsettled_ones_block_the_link(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node returns the credit as if there were no more events; the client knows that there are."""
    monkeypatch.setattr(
        NodeProcess, "environment", lambda _node: {**os.environ, "AMQP_STREAMS_LIMITS_UNSETTLED": "5"}
    )
    node = start_node(log="temps:1")
    with connect(node.url) as client:
        with client.producer("temps") as producer:
            for number in range(8):
                producer.send(Event(str(number)))
        with client.consumer("temps", start=EARLIEST, settle="manual", credit=20) as consumer:
            events = consumer.receive_retained(timeout=60)
            while len(events) < 5:
                events += consumer.receive_retained(timeout=60)
            with pytest.raises(EndpointError, match="until some of the received events are settled"):
                consumer.receive_retained(timeout=60)
            consumer.settle(events)
            while rest := consumer.receive_retained(timeout=60):
                events += rest
                consumer.settle(rest)
    assert [event.body for event in events] == [str(number) for number in range(8)]
