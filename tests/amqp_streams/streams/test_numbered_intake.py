"""A repeated numbered event goes to the partition of its first attempt, and an error in the event itself is
reported first.
"""

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import DiskFullError, PeerError
from amqp_streams.storage.ports import CommitDone, Partition
from amqp_streams.streams.attach import Producing
from amqp_streams.streams.numbered_intake import NumberedIntake
from amqp_streams.streams.numbering import Numbering
from amqp_streams.streams.receipts import Receipt
from amqp_streams.streams.redirects import Elsewhere
from amqp_streams.streams.routing import partition_of_key
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.sequences import with_sequence

NOW = 1_700_000_000_000
PARTITIONS = 4
GARBAGE = b"no message"


def plain(body: str) -> bytes:
    return b"\x00\x53\x77\xa1" + bytes((len(body),)) + body.encode()


def hinted(body: str, *, target: str | None = None, key: str | None = None) -> bytes:
    message = proton.Message(body=body)
    if target is not None:
        message.instructions = {proton.symbol(names.TARGET_PARTITION): proton.symbol(target)}
    if key is not None:
        message.annotations = {proton.symbol(names.GROUP_KEY): key}
    return bytes(message.encode())


class Room:
    """A store whose commits end at once or on request, with a log and a numbered link on it."""

    def __init__(self, *, auto: bool = True) -> None:
        self.store = MemoryStore(auto=auto)
        self.log = self.store.create("temps", LogSettings(partitions=PARTITIONS), incarnation="i")
        self.numbering = Numbering(limit=100, expiry_ms=1000)
        self.intake = NumberedIntake(self.store, self.numbering)
        self.store.on_commit = self.committed
        self.done: list[CommitDone] = []

    def committed(self, done: CommitDone) -> None:
        self.done.append(done)
        self.numbering.committed(done)

    def grant(self, producer: str = "p", partition: int | None = None, **options: object) -> Producing:
        bound = None if partition is None else self.log.partitions[partition]
        numbered = self.numbering.attach(self.log, producer, bound)
        return Producing(self.log, bound, numbered=numbered, **options)  # type: ignore[arg-type]  # as given

    def send(self, grant: Producing, *messages: bytes) -> Receipt:
        assert grant.numbered is not None
        receipt = finish(self.intake.receive(grant, grant.numbered, list(messages), NOW))
        self.store.commit()
        return receipt

    def stored(self, index: int) -> list[bytes]:
        found: list[bytes] = []
        while chunk := self.log.partitions[index].read(len(found), 1 << 20):
            found += chunk.messages
        return found

    def counts(self) -> list[int]:
        return [partition.end for partition in self.log.partitions]


@pytest.fixture
def room() -> Room:
    return Room()


def conditions(receipt: Receipt) -> dict[int, str]:
    return {
        index: reason.condition if isinstance(reason, PeerError) else str(reason)
        for index, reason in receipt.refused
    }


def test_events_without_a_hint_go_to_the_one_partition_of_their_producer(room: Room) -> None:
    """This holds for any number of earlier links, with any events."""
    for turn in range(3):
        room.send(
            room.grant("query/7"),
            *[with_sequence(plain("x"), number) for number in range(turn * 5, turn * 5 + 5)],
        )
    expected = [0] * PARTITIONS
    expected[partition_of_key("query/7", PARTITIONS)] = 15
    assert room.counts() == expected


def test_an_event_that_is_already_stored_is_settled_at_once_and_not_stored_again(room: Room) -> None:
    grant = room.grant(partition=1)
    room.send(grant, with_sequence(plain("a"), 0), with_sequence(plain("b"), 1))
    receipt = room.send(grant, with_sequence(plain("b"), 1), with_sequence(plain("c"), 2))
    assert list(receipt.settled) == [0]
    assert [(part.indices, part.count) for part in receipt.parts] == [([1], 1)]
    assert room.stored(1) == [plain("a"), plain("b"), plain("c")]


def test_a_repeated_event_in_flight_is_answered_with_its_commit() -> None:
    room = Room(auto=False)
    grant = room.grant(partition=1)
    room.send(grant, with_sequence(plain("a"), 0))
    room.send(grant, with_sequence(plain("b"), 1))
    again = room.send(grant, *[with_sequence(plain(body), number) for number, body in enumerate("abc")])
    assert [(part.indices, part.count, part.commit) for part in again.parts] == [
        ([2], 1, 1),
        ([0], 0, 0),
        ([1], 0, 1),
    ]


def test_a_key_and_a_target_count_as_without_numbers(room: Room) -> None:
    grant = room.grant()
    keyed = hinted("k", key="sensor-1")
    home = partition_of_key("sensor-1", PARTITIONS)
    target = str((home + 1) % PARTITIONS)
    room.send(grant, with_sequence(keyed, 0), with_sequence(hinted("t", target=target), 1))
    assert room.counts()[home] == room.counts()[int(target)] == 1
    room.send(grant, with_sequence(keyed, 0), with_sequence(hinted("t", target=target), 1))
    assert sum(room.counts()) == 2


def test_keyed_events_of_our_client_are_spread_by_their_keys(room: Room) -> None:
    """The annotations follow a section that is the same in all messages, so the fast path must compare keys,
    too.
    """
    bare = [
        b"\x00\x53\x72" + hinted("k", key=f"key-{number}").partition(b"\x00\x53\x72")[2]
        for number in range(20)
    ]
    room.send(room.grant(), *[with_sequence(message, number) for number, message in enumerate(bare)])
    assert sum(room.counts()) == 20
    assert sum(count > 0 for count in room.counts()) > 1


def test_a_number_counts_within_its_partition(room: Room) -> None:
    grant = room.grant()
    room.send(grant, with_sequence(hinted("x", target="0"), 10))
    assert not room.send(grant, with_sequence(hinted("x", target="1"), 5)).settled
    assert room.counts() == [1, 1, 0, 0]


def test_a_message_without_a_number_is_refused_and_nothing_else_is_disturbed(room: Room) -> None:
    receipt = room.send(
        room.grant(partition=0), with_sequence(plain("a"), 0), plain("b"), with_sequence(plain("c"), 2)
    )
    assert conditions(receipt) == {1: names.INVALID_FIELD}
    assert room.stored(0) == [plain("a"), plain("c")]


def test_an_error_in_a_message_is_reported_before_the_duplicate_check(room: Room) -> None:
    grant = room.grant(partition=0)
    room.send(grant, *[with_sequence(plain("x"), number) for number in range(9)])
    numbered = proton.Message(body="x")
    numbered.instructions = {proton.symbol(names.SEQUENCE): "seven"}
    receipt = room.send(
        grant,
        GARBAGE,
        bytes(numbered.encode()),
        with_sequence(hinted("x", target="3"), 1),
        with_sequence(hinted("x", target="99"), 1),
    )
    assert conditions(receipt) == {
        0: names.DECODE_ERROR,
        1: names.DECODE_ERROR,
        2: names.NOT_ALLOWED,
        3: names.NOT_FOUND,
    }
    assert not receipt.settled


def test_an_event_refused_for_its_content_leaves_no_hole(room: Room) -> None:
    grant = room.grant(partition=0)
    room.send(grant, with_sequence(hinted("x", target="3"), 0), GARBAGE)
    assert not room.send(grant, with_sequence(plain("a"), 1)).refused
    assert room.stored(0) == [plain("a")]


def test_an_event_that_the_disk_refused_is_awaited_before_any_later_one(room: Room) -> None:
    grant = room.grant(partition=0)
    room.store.fail(room.log.partitions[0], DiskFullError("full"), stop=False)
    first = room.send(grant, with_sequence(plain("a"), 0))
    assert room.done[-1].failures
    assert len(first.parts) == 1
    assert conditions(room.send(grant, with_sequence(plain("b"), 1))) == {0: "full"}
    assert not room.send(grant, with_sequence(plain("a"), 0), with_sequence(plain("b"), 1)).refused
    assert room.stored(0) == [plain("a"), plain("b")]


def test_a_partition_that_stopped_refuses_the_whole_share(room: Room) -> None:
    partition: Partition = room.log.partitions[0]
    room.store.fail(partition, DiskFullError("stopped"))
    grant = room.grant(partition=0)
    receipt = room.send(grant, with_sequence(plain("a"), 0), with_sequence(plain("b"), 1))
    assert conditions(receipt) == {0: "stopped", 1: "stopped"}
    assert not receipt.parts


def test_a_producer_whose_partition_is_elsewhere_learns_where(room: Room) -> None:
    home = partition_of_key("p", PARTITIONS)
    grant = room.grant(elsewhere={home: Elsewhere("other", 5672)})
    receipt = room.send(
        grant,
        with_sequence(plain("a"), 0),
        with_sequence(hinted("x", target=str((home + 1) % PARTITIONS)), 1),
    )
    assert conditions(receipt) == {0: names.LINK_REDIRECT}
    assert conditions(room.send(grant, with_sequence(plain("a"), 2))) == {0: names.LINK_REDIRECT}
    assert sum(room.counts()) == 1
