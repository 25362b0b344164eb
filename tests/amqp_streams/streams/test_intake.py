"""Each event goes to one partition, and an error in one message refuses that message only."""

from collections.abc import Callable
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import DiskFullError, PeerError, StorageError
from amqp_streams.policy import AccessRule, Right
from amqp_streams.storage.ports import Partition, StoredLog
from amqp_streams.streams.access import Access, Identity, Permissions
from amqp_streams.streams.attach import Producing, Relaying
from amqp_streams.streams.intake import Intake
from amqp_streams.streams.receipts import Receipt
from amqp_streams.streams.redirects import NOWHERE, Elsewhere, Redirected
from amqp_streams.streams.routing import partition_of_key
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.sections import strip
from tests.amqp_streams.streams.conftest import NOW

GARBAGE = b"no message"
PARTITIONS = 4


def plain(body: str) -> bytes:
    return b"\x00\x53\x77\xa1" + bytes((len(body),)) + body.encode()


def hinted(
    body: str,
    *,
    target: Any = None,
    key: Any = None,
    to: str | None = None,
    note: str | None = None,
    durable: bool = False,
) -> bytes:
    """A message as Proton encodes it."""
    message = proton.Message(body=body, durable=durable, address=to)
    instructions = {names.TARGET_PARTITION: target, "note": note}
    if any(instructions.values()):
        message.instructions = {
            proton.symbol(key): value for key, value in instructions.items() if value is not None
        }
    if key is not None:
        message.annotations = {proton.symbol(names.GROUP_KEY): key}
    return bytes(message.encode())


class Room:
    """A store with two logs and an intake."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.temps = self.store.create("temps", LogSettings(partitions=PARTITIONS), incarnation="i")
        self.other = self.store.create("other", LogSettings(), incarnation="i")
        self.intake = Intake(self.store, self.log_at)

    def log_at(self, address: str, _permissions: Permissions) -> StoredLog:
        if address not in self.store.logs:
            raise PeerError(names.NOT_FOUND, address)
        return self.store.logs[address]

    def receive(self, grant: Producing | Relaying, *messages: bytes) -> Receipt:
        receipt = self.intake.receive(grant, list(messages), NOW)
        self.store.commit()
        return receipt

    def stored(self, log: StoredLog) -> list[list[bytes]]:
        return [lying(partition) for partition in log.partitions]

    def counts(self, log: StoredLog) -> list[int]:
        return [partition.end for partition in log.partitions]


def lying(partition: Partition) -> list[bytes]:
    """The stored events of a partition, in order."""
    found: list[bytes] = []
    while chunk := partition.read(len(found), 1 << 20):
        found += chunk.messages
    return found


@pytest.fixture
def room() -> Room:
    return Room()


def conditions(receipt: Receipt) -> dict[int, str]:
    return {index: reason.condition for index, reason in receipt.refused if isinstance(reason, PeerError)}


def taken(receipt: Receipt, count: int) -> list[int]:
    """Return the indices of a batch that a partition accepted."""
    return sorted(
        index for part in receipt.parts for index in (range(count) if part.indices is None else part.indices)
    )


def test_a_bound_link_puts_everything_into_its_partition_as_it_came(room: Room) -> None:
    batch = [plain("a"), plain("b"), plain("c")]
    receipt = room.receive(Producing(room.temps, room.temps.partitions[2]), *batch)
    assert room.stored(room.temps) == [[], [], batch, []]
    (part,) = receipt.parts
    assert (part.partition, part.indices, part.count, part.bytes) == (
        room.temps.partitions[2],
        None,
        3,
        3 * len(plain("a")),
    )


def test_a_bound_link_does_not_follow_keys(room: Room) -> None:
    """4.6.7: the key is for partition-agnostic links."""
    room.receive(Producing(room.temps, room.temps.partitions[2]), hinted("a", key="x"), hinted("b", key="y"))
    assert room.counts(room.temps) == [0, 0, 2, 0]


@pytest.mark.parametrize("note", [None, "stripped, but no hint"])
def test_events_without_a_hint_are_dealt_in_turn(room: Room, note: str | None) -> None:
    grant = Producing(room.temps, None)
    for size in (3, 1, 5, 7):
        receipt = room.receive(grant, *(hinted("x", note=note) if note else plain("x") for _ in range(size)))
        assert taken(receipt, size) == list(range(size))
    assert room.counts(room.temps) == [4, 4, 4, 4]


def test_a_log_with_one_partition_takes_whole_batches(room: Room) -> None:
    receipt = room.receive(Producing(room.other, None), plain("a"), plain("b"))
    assert [part.indices for part in receipt.parts] == [None]


@given(st.lists(st.text(max_size=5), min_size=1, max_size=20))
def test_a_key_always_leads_to_its_partition(keys: list[str]) -> None:
    room = Room()
    room.receive(
        Producing(room.temps, None), *(hinted(f"{index}", key=key) for index, key in enumerate(keys))
    )
    wanted = [sum(partition_of_key(key, PARTITIONS) == index for key in keys) for index in range(PARTITIONS)]
    assert room.counts(room.temps) == wanted


@pytest.mark.parametrize("kind", [proton.symbol, str])
def test_a_named_partition_comes_before_a_key(room: Room, kind: Callable[[str], str]) -> None:
    room.receive(Producing(room.temps, None), *(hinted("x", target=kind(name), key="k") for name in "3310"))
    assert room.counts(room.temps) == [1, 1, 0, 2]


def test_the_partition_named_is_stripped_and_all_else_kept_byte_by_byte(room: Room) -> None:
    """4.6.6: the event log MUST strip the annotation after evaluating it. The header and the bare message do
    not change.
    """
    message = hinted("x", target=proton.symbol("1"), key="k", durable=True)
    room.receive(Producing(room.temps, None), message)
    ((stored,),) = [messages for messages in room.stored(room.temps) if messages]
    read = proton.Message()
    read.decode(stored)
    assert (read.instructions or None, read.durable, read.annotations, read.body) == (
        None,
        True,
        {names.GROUP_KEY: "k"},
        "x",
    )
    assert stored == strip(message)[1]
    assert names.TARGET_PARTITION.encode() not in stored


def test_a_partition_named_on_a_bound_link_is_the_links_or_refused(room: Room) -> None:
    grant = Producing(room.temps, room.temps.partitions[2])
    messages = [
        hinted("good", target=proton.symbol("2")),
        hinted("bad", target=proton.symbol("1")),
        hinted("none", target=proton.symbol("9")),
    ]
    receipt = room.receive(grant, *messages)
    assert conditions(receipt) == {1: names.NOT_ALLOWED, 2: names.NOT_FOUND}
    assert room.counts(room.temps) == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("message", "condition"),
    [
        (GARBAGE, names.DECODE_ERROR),
        (b"", names.DECODE_ERROR),
        (hinted("x", target=proton.symbol("9")), names.NOT_FOUND),
        (hinted("x", target=7), names.DECODE_ERROR),
        (hinted("x", key=7), names.DECODE_ERROR),
        (b"\x00\x53\x70\xc0\xff\x01", names.DECODE_ERROR),
        (b"\x00\x53\x71\xc1\xff\x01", names.DECODE_ERROR),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_message_refuses_itself_only(room: Room, message: bytes, condition: str, place: int) -> None:
    batch = [plain("a"), plain("b")]
    batch.insert(place, message)
    receipt = room.receive(Producing(room.temps, None), *batch)
    assert conditions(receipt) == {place: condition}
    assert taken(receipt, 3) == [index for index in range(3) if index != place]
    assert sum(room.counts(room.temps)) == 2


def test_a_batch_of_nothing_but_garbage_is_refused_whole(room: Room) -> None:
    receipt = room.receive(Producing(room.temps, None), GARBAGE, GARBAGE)
    assert (conditions(receipt), receipt.parts) == ({0: names.DECODE_ERROR, 1: names.DECODE_ERROR}, [])


@given(
    st.lists(st.sampled_from(["plain", "keyed", "named", "wrong", "garbage", "noted"]), max_size=20),
    st.booleans(),
)
def test_each_message_of_a_batch_is_taken_once_or_refused_once(kinds: list[str], bound: bool) -> None:
    room = Room()
    batch = [
        {
            "plain": plain(f"{index}"),
            "keyed": hinted(f"{index}", key="k"),
            "named": hinted(f"{index}", target=proton.symbol("1")),
            "wrong": hinted(f"{index}", target=proton.symbol("77")),
            "garbage": GARBAGE,
            "noted": hinted(f"{index}", note="n"),
        }[kind]
        for index, kind in enumerate(kinds)
    ]
    if not batch:
        return
    receipt = room.receive(Producing(room.temps, room.temps.partitions[1] if bound else None), *batch)
    refused = [index for index, _ in receipt.refused]
    assert sorted(taken(receipt, len(batch)) + refused) == list(range(len(batch)))
    assert set(refused) == {index for index, kind in enumerate(kinds) if kind in {"wrong", "garbage"}}
    for (
        part
    ) in receipt.parts:  # what a part says it took is what lies in the partition, in the order of the batch
        indices = range(len(batch)) if part.indices is None else part.indices
        wanted = [strip(batch[index])[1] for index in indices]
        assert part.count == len(wanted)
        assert set(wanted) <= set(lying(part.partition))
        assert part.bytes == sum(map(len, wanted))


def test_a_stopped_partition_refuses_what_is_for_it_and_the_turn_passes_it_by(room: Room) -> None:
    room.store.fail(room.temps.partitions[1], StorageError("broken"))
    grant = Producing(room.temps, None)
    first = room.receive(grant, *[plain("x")] * 4)
    assert [(index, str(reason)) for index, reason in first.refused] == [(1, "broken")]
    second = room.receive(grant, *[plain("x")] * 6)
    assert second.refused == []
    assert sum(room.counts(room.temps)) == 9
    third = room.receive(grant, hinted("x", target=proton.symbol("1")))
    assert [index for index, _ in third.refused] == [0]


def test_when_every_partition_has_stopped_everything_is_refused(room: Room) -> None:
    for partition in room.temps.partitions:
        room.store.fail(partition, StorageError("broken"))
    for _ in range(2):
        receipt = room.receive(Producing(room.temps, None), *[plain("x")] * 8)
        assert sorted(index for index, _ in receipt.refused) == list(range(8))


@pytest.mark.parametrize("error", [DiskFullError("full"), StorageError("the commit before this one failed")])
def test_a_refusal_that_passes_takes_no_partition_out_of_the_turn(room: Room, error: StorageError) -> None:
    """A full disk recovers, and so does a partition that waits for the end of a failed commit. Only a stopped
    partition remains unusable.
    """
    partition = room.temps.partitions[1]
    grant = Producing(room.temps, None)
    partition.refusal = error  # type: ignore[attr-defined]  # the twin's own
    assert [index for index, _ in room.receive(grant, *[plain("x")] * 4).refused] == [1]
    partition.refusal = None  # type: ignore[attr-defined]
    assert room.receive(grant, *[plain("x")] * 8).refused == []
    assert room.counts(room.temps) == [3, 2, 3, 3]


# -- the anonymous terminus


def test_on_a_null_target_each_message_says_where_it_goes(room: Room) -> None:
    grant = Relaying()
    receipt = room.receive(
        grant,
        hinted("a", to="temps"),
        hinted("b", to="other"),
        hinted("c", to="temps"),
        hinted("d", to="temps"),
    )
    assert receipt.refused == []
    assert taken(receipt, 4) == [0, 1, 2, 3]
    assert (room.counts(room.temps), room.counts(room.other)) == ([1, 1, 1, 0], [1])


def test_hints_hold_on_a_null_target_too(room: Room) -> None:
    room.receive(Relaying(), *(hinted("x", to="temps", target=proton.symbol("3")) for _ in range(3)))
    assert room.counts(room.temps) == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("message", "condition"),
    [
        (hinted("x", to="nowhere"), names.NOT_FOUND),
        (hinted("x"), names.INVALID_FIELD),
        (plain("x"), names.INVALID_FIELD),
        (hinted("x", to=""), names.INVALID_FIELD),
        (hinted("x", to="temps", target=proton.symbol("9")), names.NOT_FOUND),
        (b"\x00\x53\x73\xc0\x04\x03\x40\x40\x41", names.DECODE_ERROR),
        (b"\x00\x53\x72\xc1\xff\x01", names.DECODE_ERROR),
        (GARBAGE, names.DECODE_ERROR),
    ],
)
def test_a_relayed_message_without_a_log_refuses_only_itself(
    room: Room, message: bytes, condition: str
) -> None:
    receipt = room.receive(Relaying(), hinted("a", to="other"), message, hinted("b", to="other"))
    assert conditions(receipt) == {1: condition}
    assert room.counts(room.other) == [2]


def test_a_recreated_log_is_found_again(room: Room) -> None:
    grant = Relaying()
    room.receive(grant, hinted("a", to="other"))
    room.store.delete("other")
    assert conditions(room.receive(grant, hinted("b", to="other"))) == {0: names.NOT_FOUND}
    again = room.store.create("other", LogSettings(), incarnation="second")
    room.receive(grant, hinted("c", to="other"))
    assert room.counts(again) == [1]


def test_a_log_that_cannot_be_made_for_a_relayed_message_refuses_that_message(room: Room) -> None:
    """If logs are created on demand, the disk may refuse."""

    def broken(address: str, _permissions: Permissions) -> StoredLog:
        raise StorageError(address)

    intake = Intake(room.store, broken)
    receipt = intake.receive(Relaying(), [hinted("a", to="new")], NOW)
    assert [(index, str(reason)) for index, reason in receipt.refused] == [(0, "new")]


ELSEWHERE = {1: Elsewhere("b.example", 5672), 3: Elsewhere("c.example", 5672)}


def test_events_without_a_hint_go_to_the_partitions_that_are_here(room: Room) -> None:
    grant = Producing(room.temps, None, elsewhere=ELSEWHERE)
    assert not room.receive(grant, *(plain(str(index)) for index in range(8))).refused
    assert room.counts(room.temps) == [4, 0, 4, 0]
    assert not room.receive(grant, hinted("a", note="x"), hinted("b", note="x")).refused
    assert room.counts(room.temps) == [5, 0, 5, 0]


def test_events_for_a_partition_elsewhere_are_refused_naming_the_way(room: Room) -> None:
    grant = Producing(room.temps, None, elsewhere=ELSEWHERE)
    keys = {partition_of_key(str(key), PARTITIONS): str(key) for key in range(100)}
    messages = [hinted("t", target=str(index)) for index in range(PARTITIONS)] + [
        hinted("k", key=keys[index]) for index in range(PARTITIONS)
    ]
    receipt = room.receive(grant, *messages)
    assert conditions(receipt) == dict.fromkeys((1, 3, 5, 7), names.LINK_REDIRECT)
    assert [
        "b.example" in str(reason) for _, reason in sorted(receipt.refused, key=lambda each: each[0])
    ] == [True, False, True, False]
    assert room.counts(room.temps) == [2, 0, 2, 0]


def test_a_relay_follows_what_is_elsewhere_now(room: Room) -> None:
    """Redirects change while the link stays attached. A log that this container does not have is refused as a
    whole.
    """
    elsewhere: list[Redirected] = [NOWHERE]
    intake = Intake(room.store, room.log_at, lambda _log: elsewhere[0])
    grant = Relaying()
    assert not intake.receive(grant, [hinted("a", to="temps", target="1")], NOW).refused
    elsewhere[0] = ELSEWHERE
    assert conditions(intake.receive(grant, [hinted("b", to="temps", target="1")], NOW)) == {
        0: names.LINK_REDIRECT
    }
    assert not intake.receive(grant, [hinted("c", to="temps", target="2")], NOW).refused
    elsewhere[0] = dict.fromkeys(range(PARTITIONS), ELSEWHERE[1])
    assert conditions(
        intake.receive(grant, [hinted("d", to="temps"), hinted("e", to="temps")], NOW)
    ) == dict.fromkeys((0, 1), names.LINK_REDIRECT)
    elsewhere[0] = NOWHERE
    assert not intake.receive(grant, [hinted("f", to="temps", target="1")], NOW).refused


def test_relayed_messages_go_to_logs_that_their_sender_may_send_to(room: Room) -> None:
    """Each `to` is checked once for a link. The refusal is the same whether the log exists or not."""
    rule = AccessRule(users=("alice",), logs=("temps",), allow=(Right.SEND,))
    grant = Relaying(Access([rule]).of(Identity("alice")))
    receipt = room.receive(
        grant,
        hinted("a", to="temps"),
        hinted("b", to="other"),
        hinted("c", to="unknown"),
        hinted("d", to="temps"),
    )
    assert conditions(receipt) == {1: names.UNAUTHORIZED_ACCESS, 2: names.UNAUTHORIZED_ACCESS}
    told = [str(reason).replace("'unknown'", "'other'") for _, reason in receipt.refused]
    assert told[0] == told[1]
    assert sum(room.counts(room.temps)) == 2
    assert room.counts(room.other) == [0]
    assert list(grant.producing) == ["temps"]


def test_a_relayed_message_for_a_stopped_partition_is_refused(room: Room) -> None:
    room.store.fail(room.other.partitions[0], StorageError("broken"))
    receipt = room.receive(Relaying(), hinted("a", to="temps"), hinted("b", to="other"))
    assert [(index, str(reason)) for index, reason in receipt.refused] == [(1, "broken")]


def test_a_receipt_names_the_commit_that_its_records_are_in(room: Room) -> None:
    grant = Producing(room.other, None)
    assert [room.receive(grant, plain("x")).parts[0].commit for _ in range(3)] == [0, 1, 2]
