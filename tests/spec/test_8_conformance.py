"""Section 8: the minimum that an event log container implements, over real sockets, with a client of another
project.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import proton
import proton.reactor
import pytest
from proton.utils import BlockingConnection, LinkDetached

from amqp_streams import names
from amqp_streams.config import Listener, LogSettings, NodeSettings
from amqp_streams.server.run import serve
from tests.amqp_streams.decoded import binary, mapping


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The URL of a node on a free port. The node runs in the event loop of another thread, because the client
    blocks.
    """
    folder = tmp_path_factory.mktemp("data")
    settings = NodeSettings(
        data_dir=Path(folder),
        listen=(Listener(host="127.0.0.1", port=0),),
        logs={"temps": LogSettings(partitions=2), "single": LogSettings()},
    )
    addresses: list[str] = []
    ready = threading.Event()
    stopping: list[Callable[[], object]] = []

    def on_ready(bound_to: dict[str, list[str]]) -> None:
        addresses.extend(bound_to["amqp"])
        ready.set()

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        await serve(settings, ready=on_ready, stop=stop)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(60)
    yield f"amqp://{addresses[0]}"
    stopping[0]()
    thread.join(60)
    assert not thread.is_alive()


class Start(proton.reactor.Filter):
    """The delivery-annotations filter as an option of Proton's own receivers."""

    def __init__(self, offset: str) -> None:
        name = proton.symbol(names.FILTER_DELIVERY_ANNOTATIONS)
        conditions: dict[Any, Any] = {proton.symbol(names.OFFSET): proton.symbol(offset)}
        super().__init__({name: proton.Described(name, conditions)})


class OfPartition(proton.reactor.LinkOption):
    """The partition that a link requests."""

    def __init__(self, name: str) -> None:
        self.name = name

    def apply(self, link: proton.Link) -> None:
        link.properties = {proton.symbol(names.PARTITION): proton.symbol(self.name)}


def test_a_client_that_is_not_ours_finds_the_capability(url: str) -> None:
    """8: "1. Offer the connection capability defined in 3.1 Connection Capability"."""
    connection = BlockingConnection(url, timeout=60)
    assert connection.conn is not None
    capabilities = connection.conn.remote_offered_capabilities
    assert names.CAPABILITY_EVENT_STREAMS in list(capabilities)
    connection.close()


def test_a_client_that_is_not_ours_reads_runtime_information(url: str) -> None:
    """8: "2. Implement the runtime information address defined in 6 Runtime Information"."""
    connection = BlockingConnection(url, timeout=60)
    answer = connection.create_receiver("temps/$info").receive(timeout=60)
    assert [entry["partition"] for entry in mapping(answer.body)["partitions"]] == ["0", "1"]
    connection.close()


def test_a_client_that_is_not_ours_reads_from_an_offset(url: str) -> None:
    """8: "3. Implement at least one of the offset filters defined in 5 Delivery Filters"."""
    connection = BlockingConnection(url, timeout=60)
    sender = connection.create_sender("single")
    for number in range(5):
        sender.send(proton.Message(body=f"event {number}"))
    receiver = connection.create_receiver("single", credit=10, options=Start("@earliest"))
    got = [receiver.receive(timeout=60) for _ in range(5)]
    for _ in got:
        receiver.accept()
    assert [each.body for each in got] == [f"event {number}" for number in range(5)]
    third = str(mapping(got[2].instructions)[names.OFFSET])
    later = connection.create_receiver("single", credit=10, options=Start(third), name="later")
    assert [later.receive(timeout=60).body for _ in range(2)] == ["event 3", "event 4"]
    connection.close()


def test_a_client_that_is_not_ours_is_refused_in_its_own_terms(url: str) -> None:
    """4.1, 4.3: a link for a partition or a log that does not exist is attached and detached with an error
    that the client shows.
    """
    connection = BlockingConnection(url, timeout=60)
    with pytest.raises(LinkDetached, match=names.NOT_FOUND):
        connection.create_receiver("nowhere")
    with pytest.raises(LinkDetached, match=names.NOT_FOUND):
        connection.create_sender("nowhere")
    with pytest.raises(LinkDetached, match=names.NOT_FOUND):
        connection.create_receiver("temps", options=OfPartition("9"))
    connection.close()


def test_a_large_message_crosses_real_sockets_whole(url: str) -> None:
    """3.2: as with any regular AMQP node; 3 MB in many frames there and back."""
    connection = BlockingConnection(url, timeout=60)
    receiver = connection.create_receiver("temps", credit=1)
    body = bytes(range(256)) * 12_000
    connection.create_sender("temps").send(proton.Message(body=body))
    assert binary(receiver.receive(timeout=60).body) == body
    receiver.accept()
    connection.close()
