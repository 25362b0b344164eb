"""Message-formats in the client: an event that is sent with a format is received with the same format,
through the real node and its store.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_streams.client import EARLIEST, Event, ReceivedEvent, blocking, connect
from amqp_streams.errors import WireError
from tests.amqp_streams.client.running import RunningNode

LARGE = 0x80013701
FORMATS = [0, LARGE, 0, 0xFFFFFFFF, 7, 0]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path_factory.mktemp("node")).start()
    yield running
    running.stop()


def events() -> list[Event]:
    return [
        Event(f"event {number}", message_format=message_format)
        for number, message_format in enumerate(FORMATS)
    ]


def told(received: list[ReceivedEvent]) -> list[tuple[object, int]]:
    return [(event.body, event.message_format) for event in received]


EXPECTED = [(f"event {number}", message_format) for number, message_format in enumerate(FORMATS)]


async def received(node: RunningNode, log: str, **options: object) -> list[ReceivedEvent]:
    found: list[ReceivedEvent] = []
    async with connect(node.url) as client, client.consumer(log, start=EARLIEST, **options) as consumer:  # type: ignore[arg-type]
        while len(found) < len(FORMATS):
            found += await consumer.receive(timeout=60)
    return found


@pytest.mark.parametrize("settle", ["auto", "none", "manual"])
async def test_a_format_is_sent_with_its_event_and_kept_when_it_is_forwarded(
    node: RunningNode, settle: str
) -> None:
    first, second = f"first-{settle}", f"second-{settle}"
    async with connect(node.url) as client:
        for log in (first, second):
            await client.management.create_log(log, partitions=1)
        async with client.producer(first) as producer:
            await producer.post_batch(events()[:4])
            await producer.send(events()[4])
            await (await producer.post(events()[5]))
        copied = await received(node, first, settle=settle)
        assert told(copied) == EXPECTED
        async with client.producer(second) as producer:
            await producer.post_batch(copied)
    assert told(await received(node, second, settle=settle)) == EXPECTED


async def test_ranges_and_raw_bytes_have_the_formats_too_and_a_crash_keeps_them(node: RunningNode) -> None:
    async with connect(node.url) as client:
        await client.management.create_log("ranges", partitions=1)
        async with client.producer("ranges") as producer:
            await producer.post_batch(events())
    node.kill()
    node.start()
    async with connect(node.url) as client:
        runs = [run async for run in client.read_range("ranges", "0", 0)]
        assert [run.message_formats.get(index, 0) for run in runs for index in range(len(run))] == FORMATS
        async with client.consumer("ranges", start=EARLIEST) as consumer:
            formats: list[int] = []
            while len(formats) < len(FORMATS):
                messages = await consumer.receive_raw(timeout=60)
                formats += consumer.raw_formats or [0] * len(messages)
        assert formats == FORMATS


async def test_large_messages_and_many_links_keep_their_formats_apart(node: RunningNode) -> None:
    body = bytes(300_000)
    async with connect(node.url) as client:
        for number in range(4):
            await client.management.create_log(f"large-{number}", partitions=1)
        producers = [client.producer(f"large-{number}") for number in range(4)]
        for number, producer in enumerate(producers):
            async with producer:
                await producer.post_batch(
                    [
                        Event(body, message_format=number),
                        Event(body),
                        Event(body, message_format=LARGE + number),
                    ]
                )
        for number in range(4):
            async with client.consumer(f"large-{number}", start=EARLIEST) as consumer:
                found: list[ReceivedEvent] = []
                while len(found) < 3:
                    found += await consumer.receive(timeout=60)
            assert [(event.body == body, event.message_format) for event in found] == [
                (True, number),
                (True, 0),
                (True, LARGE + number),
            ]


async def test_members_of_a_group_learn_the_formats(node: RunningNode) -> None:
    async with connect(node.url) as client:
        await client.management.create_log("grouped", partitions=2)
        async with client.producer("grouped", partition=1) as producer:
            await producer.post_batch(events())
        async with client.group_consumer("grouped", "g", start=EARLIEST) as consumer:
            found: list[ReceivedEvent] = []
            while len(found) < len(FORMATS):
                found += await consumer.receive(timeout=60)
    assert told(found) == EXPECTED


@pytest.mark.parametrize("message_format", [-1, 1 << 32])
async def test_a_number_that_is_not_a_format_is_refused(node: RunningNode, message_format: int) -> None:
    async with connect(node.url) as client:
        await client.management.create_log(f"wrong-{message_format}", partitions=1)
        async with client.producer(f"wrong-{message_format}") as producer:
            with pytest.raises(WireError, match="message_format must be from 0 to 4294967295"):
                await producer.send(Event("x", message_format=message_format))


def test_receive_and_dump_show_a_format_that_is_not_0(tmp_path: Path) -> None:
    node = RunningNode(tmp_path, "--log=shown").start()
    with blocking.connect(node.url) as client, client.producer("shown") as producer:
        producer.send(Event("plain"))
        producer.send(Event("other", message_format=LARGE))
    program = Path(sys.executable).with_name("amqp-streams")

    def lines(*arguments: str) -> list[dict[str, object]]:
        output = subprocess.run(
            [program, *arguments, "--json"], capture_output=True, check=True, text=True
        ).stdout
        return [json.loads(line) for line in output.splitlines()]

    seen = lines("receive", f"{node.url}/shown")
    node.stop()
    dumped = lines("dump", str(tmp_path / "data"), "shown")
    for shown in (seen, dumped):
        assert [(line["body"], line.get("message_format")) for line in shown] == [
            ("plain", None),
            ("other", LARGE),
        ]
    text = subprocess.run(
        [program, "dump", tmp_path / "data", "shown"], capture_output=True, check=True, text=True
    ).stdout
    assert [line.partition("other")[2] for line in text.splitlines()] == ["", "\tmessage-format 0x80013701"]
    assert (
        subprocess.run([program, "verify", tmp_path / "data"], check=False, capture_output=True).returncode
        == 0
    )
