"""A process that was stopped while it owned a partition, and continues when another has taken it over."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from amqp_streams.client import EARLIEST, Event
from amqp_streams.client.blocking import connect
from tests.acceptance.conftest import StartNode
from tests.amqp_streams.decoded import binary
from tests.preloaded.launching import IN_A_FORK

EVENTS = 6000
EVENT_BYTES = 4096
"""Together more than a consumer's window has room for, so that the node is stuck with some of it while the
owner is stopped.
"""
_OWNER = (
    IN_A_FORK
    + """
import os, sys
from amqp_streams.client import EARLIEST, EndpointError
from amqp_streams.client.blocking import connect

try:
    options = {"partition": 0, "epoch": 1, "start": EARLIEST, "credit": 50_000}
    with connect(sys.argv[1]) as client, client.consumer("bills", **options) as consumer:
        while True:
            for event in consumer.receive(100):
                os.write(1, event.body[:8].strip() + b"\\n")
except EndpointError as error:
    os.write(1, type(error).__name__.encode() + b"\\n")
"""
)


def test_an_owner_that_slept_through_its_eviction_gets_nothing_of_what_came_after(
    start_node: StartNode, tmp_path: Path
) -> None:
    """The owner wakes up and reads what its machine received before it was suspended. Then it learns that it
    is not the owner any more.
    """
    node = start_node(log="bills:1")
    told = tmp_path / "told"
    with told.open("wb") as out:
        owner = subprocess.Popen([sys.executable, "-c", _OWNER, node.url], stdout=out)
    try:
        with connect(node.url) as client, client.producer("bills") as producer:
            producer.send(event("first"))
            _until(told, "first")
            os.kill(owner.pid, signal.SIGSTOP)
            producer.post_batch([event(str(number)) for number in range(EVENTS)], 0)
            producer.flush()
            with client.consumer("bills", partition=0, epoch=2, start=EARLIEST) as successor:
                assert binary(successor.receive(1, timeout=60)[0].body).startswith(b"first")
            producer.send(event("after"))
        os.kill(owner.pid, signal.SIGCONT)
        assert owner.wait(60) == 0
    finally:
        owner.kill()
        owner.wait()
    words = told.read_text().split()
    assert words[-1] == "OwnershipLostError"
    assert "after" not in words
    assert "connection_failed" not in node.words


def event(name: str) -> Event:
    return Event(name.ljust(8).encode() + bytes(EVENT_BYTES))


def _until(told: Path, word: str) -> None:
    deadline = time.monotonic() + 60
    while word not in told.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
