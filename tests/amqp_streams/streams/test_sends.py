"""A batch is stored as the single events it holds, or not at all; a rejected one stops its link."""

import re
from array import array
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.config import Limits, LogSettings
from amqp_streams.errors import DiskFullError, PeerError, StorageError
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams import routing
from amqp_streams.streams.attach import AttachRequest, Producing, Relaying, answered_properties
from amqp_streams.streams.intake import Intake
from amqp_streams.streams.numbered_intake import NumberedIntake
from amqp_streams.streams.numbering import Numbering
from amqp_streams.streams.redirects import NOWHERE, Elsewhere, Redirected
from amqp_streams.streams.routing import partition_of_key
from amqp_streams.streams.sends import Sends, Taken
from amqp_streams.streams.steps import finish
from amqp_streams.testing import MemoryStore
from amqp_streams.wire.batched.arrays import SplitSections, heads_match, split_sections
from amqp_streams.wire.batched.compression import CODECS, codec, compressed
from amqp_streams.wire.batched.packed import Packed
from amqp_streams.wire.batched.sends import write_sent_batch
from amqp_streams.wire.codec import encode
from amqp_streams.wire.layout import DATA_BINARY8
from amqp_streams.wire.sections import strip
from amqp_streams.wire.sequences import with_sequence
from amqp_streams.wire.types import Described, Symbol, ULong
from tests.amqp_streams.streams.conftest import NOW
from tests.amqp_streams.streams.test_intake import hinted, plain

GARBAGE = b"no message"
PARTITIONS = 4
EVENTS_MAX = 50
UNCOMPRESSED_MAX = 64 << 10
LIMITS = Limits(batch_events=EVENTS_MAX, uncompressed_bytes=UNCOMPRESSED_MAX)


def outer(code: int, name: str, value: str) -> bytes:
    """A section of the batch itself, with one annotation."""
    return encode(Described(ULong(code), {Symbol(name): value}))


def azure(*messages: bytes, head: bytes = b"") -> bytes:
    return head + b"".join(DATA_BINARY8 + bytes((len(each),)) + each for each in messages)


def into_one_buffer(message: bytes, at: int, sizes: "array[int]") -> bytes | None:
    """What the compiled loops do with the sections of a batch."""
    return b"".join(split_sections(message, at, sizes)) if heads_match(message, at, sizes) else None


class Room:
    """A store with two logs, and the node's part that takes batches.

    `split`: how the events of a batch are cut.
    """

    split: SplitSections | None = None

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.temps = self.store.create("temps", LogSettings(partitions=PARTITIONS), incarnation="i")
        self.other = self.store.create("other", LogSettings(), incarnation="j")
        self.elsewhere: Redirected = NOWHERE
        self.numbering = Numbering(limit=100, expiry_ms=1000)
        self.store.on_commit = self.numbering.committed
        self.intake = Intake(self.store, self.log_at, lambda _log: self.elsewhere)
        self.sends = Sends(self.intake, NumberedIntake(self.store, self.numbering), LIMITS)
        self.sends.split = self.split

    def log_at(self, address: str, permissions: object) -> StoredLog:
        if address not in self.store.logs:
            raise PeerError(names.NOT_FOUND, f"no log named {address}")
        return self.store.logs[address]

    def grant(self, partition: int | None = None, *, events: int = EVENTS_MAX, **options: Any) -> Producing:
        bound = None if partition is None else self.temps.partitions[partition]
        return self.intake.producing(self.temps, bound, self.elsewhere, batch_events=events, **options)

    def numbered(self, partition: int | None = None, *, events: int = EVENTS_MAX) -> Producing:
        bound = None if partition is None else self.temps.partitions[partition]
        return self.grant(partition, events=events, numbered=self.numbering.attach(self.temps, "p", bound))

    def send(self, grant: Producing | Relaying, message: bytes) -> Taken:
        taken = finish(self.sends.receive(grant, message, NOW))
        self.store.commit()
        return taken

    def stored(self, index: int, log: str = "temps") -> list[bytes]:
        found: list[bytes] = []
        while chunk := self.store.logs[log].partitions[index].read(len(found), 1 << 20):
            found += chunk.messages
        return found

    def everything(self) -> list[list[bytes]]:
        return [self.stored(index) for index in range(PARTITIONS)]


@pytest.fixture(autouse=True, params=[False, True], ids=["list", "packed"])
def _split(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room, "split", staticmethod(into_one_buffer) if request.param else None)


def refusal(taken: Taken) -> tuple[str, str, object]:
    error = taken.refused
    assert isinstance(error, PeerError)
    return error.condition, error.description, error.info.get(names.EVENT_INDEX)


KINDS = st.lists(
    st.sampled_from(["", "key=a", "key=b", "key=c", "target=0", "target=3"]), min_size=1, max_size=30
)


@given(KINDS, st.booleans())
def test_each_event_is_stored_as_if_it_was_sent_alone(kinds: list[str], negotiated: bool) -> None:
    """An event with a key or a partition goes where it goes alone; the others are dealt."""
    room, single = Room(), Room()
    messages = [
        hinted(str(number), **{name: value for name, _, value in [kind.partition("=")] if value})  # type: ignore[arg-type]
        for number, kind in enumerate(kinds)
    ]
    taken = room.send(room.grant(events=EVENTS_MAX if negotiated else 0), write_sent_batch(messages))
    assert (taken.count, taken.refused, taken.released) == (len(messages), None, False)
    assert sum(part.count for part in taken.receipt.parts) == len(messages)
    kept = [strip(message)[1] for message in messages]
    free = [message for message, kind in zip(kept, kinds, strict=True) if not kind]
    assert sorted(message for each in room.everything() for message in each) == sorted(kept)
    for message, kind in zip(messages, kinds, strict=True):
        if kind:
            single.intake.receive(single.grant(), [message], NOW)
    single.store.commit()
    for found, alone in zip(room.everything(), single.everything(), strict=True):
        assert [message for message in found if message not in free] == alone
        assert abs(sum(message in free for message in found) - len(free) / PARTITIONS) < 1
        assert found == [message for message in kept if message in found], "the order of the batch"


def test_events_without_a_hint_take_turns_over_all_batches() -> None:
    room = Room()
    grant = room.grant()
    for number in range(6):
        room.send(grant, write_sent_batch([plain(f"{number}{index}") for index in range(3)]))
    assert [len(each) for each in room.everything()] == [5, 5, 4, 4]
    room.send(grant, write_sent_batch([plain("x"), hinted("y", target="2")]))
    assert [len(each) for each in room.everything()] == [5, 5, 6, 4]
    room.send(grant, azure(plain("x"), plain("y"), head=outer(0x71, names.TARGET_PARTITION, "0")))
    room.send(grant, write_sent_batch([plain("x")]))
    assert [len(each) for each in room.everything()] == [7, 5, 6, 5], "the next turn is that of partition 3"


def test_a_share_of_a_batch_keeps_no_other_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition may keep its share longer than the others."""
    monkeypatch.setattr(routing, "RUN_MIN", 4)
    room = Room()
    wide = room.store.create("wide", LogSettings(partitions=40), incarnation="w")
    grant = room.intake.producing(wide, None, NOWHERE, batch_events=EVENTS_MAX)
    messages = [plain(f"{number}") for number in range(EVENTS_MAX)]
    assert room.send(grant, write_sent_batch(messages)).refused is None
    chunks = [chunk for each in wide.partitions if (chunk := each.read(0, 1 << 20))]
    assert len(chunks) > 5
    assert [message for chunk in chunks for message in chunk.messages] == messages
    for chunk in chunks:
        if isinstance(chunk.messages, Packed):
            assert len(chunk.messages.buffer) == chunk.messages.body_bytes


@pytest.mark.parametrize("partition", [None, 2])
def test_the_batch_itself_may_name_a_partition_or_a_key(partition: int | None) -> None:
    """It counts for the events that have none of their own."""
    room = Room()
    own = hinted("own", target="1" if partition is None else "2")
    for head in (
        outer(0x71, names.TARGET_PARTITION, "2"),
        outer(0x72, names.GROUP_KEY, next(key for key in "abcdefgh" if partition_of_key(key, 4) == 2)),
    ):
        assert room.send(room.grant(partition), azure(plain("x"), own, plain("y"), head=head)).refused is None
    sizes = [len(each) for each in room.everything()]
    assert sizes == ([0, 2, 4, 0] if partition is None else [0, 0, 6, 0])


def test_an_event_keeps_its_message_format() -> None:
    room = Room()
    room.send(room.grant(1), write_sent_batch([plain("a"), plain("b"), plain("c")], {1: 7, 2: 0}))
    chunk = room.temps.partitions[1].read(0, 1 << 20)
    assert chunk is not None
    assert list(chunk.formats or ()) == [0, 7, 0]
    taken = room.send(room.grant(1), write_sent_batch([plain("a")] * 3, {2: names.BATCH_MESSAGE_FORMAT}))
    assert refusal(taken)[::2] == (names.INVALID_FIELD, 2)


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (GARBAGE, names.DECODE_ERROR),
        (b"", names.DECODE_ERROR),
        (hinted("x", target="9"), names.NOT_FOUND),
        (hinted("x", target=3), names.DECODE_ERROR),
        (hinted("x", key=3), names.DECODE_ERROR),
    ],
)
@pytest.mark.parametrize("numbered", [False, True])
def test_one_event_that_is_not_valid_keeps_the_batch_out(bad: bytes, condition: str, numbered: bool) -> None:
    room = Room()
    events = [plain("a"), hinted("b", key="k"), hinted("c", target="1"), bad, hinted("d", target="8")]
    if numbered:
        events = [with_sequence(each, n) if each[:1] == b"\0" else each for n, each in enumerate(events)]
    grant = room.numbered() if numbered else room.grant()
    taken = room.send(grant, write_sent_batch(events))
    assert refusal(taken)[::2] == (condition, 3)
    assert refusal(taken)[1].startswith("event 3 of the batch: ")
    assert refusal(taken)[1].endswith("; no event of the batch is stored")
    assert taken.receipt.parts == []
    assert room.everything() == [[]] * PARTITIONS


def test_an_event_without_a_number_keeps_a_numbered_batch_out() -> None:
    room = Room()
    taken = room.send(room.numbered(), write_sent_batch([with_sequence(plain("a"), 0), plain("b")]))
    assert refusal(taken)[::2] == (names.INVALID_FIELD, 1)
    assert room.everything() == [[]] * PARTITIONS


def test_after_a_rejected_batch_nothing_is_taken_until_the_sender_resumes() -> None:
    """Without this, the events of the next batch would be stored before those that are sent again."""
    room = Room()
    grant = room.grant(0)
    later = write_sent_batch([plain("c")])
    assert room.send(grant, write_sent_batch([plain("a"), GARBAGE, plain("b")])).refused is not None
    assert grant.suspended
    assert [room.send(grant, later).released for _ in range(2)] == [True, True]
    assert not room.send(grant, write_sent_batch([plain("a")], resumes=True)).released
    assert not grant.suspended
    assert not room.send(grant, write_sent_batch([plain("b")])).released
    assert not room.send(grant, later).released
    assert room.stored(0) == [plain("a"), plain("b"), plain("c")]


def test_a_rejected_batch_of_one_event_stops_nothing() -> None:
    room = Room()
    grant = room.grant(0)
    assert room.send(grant, write_sent_batch([GARBAGE])).refused is not None
    assert not room.send(grant, write_sent_batch([plain("a")])).released
    grant.suspended = True
    assert room.send(grant, write_sent_batch([GARBAGE], resumes=True)).refused is not None
    assert not grant.suspended


def test_a_link_that_did_not_negotiate_is_never_suspended() -> None:
    """An Event Hubs client does not know how to resume."""
    room = Room()
    grant = room.grant(0, events=0)
    assert room.send(grant, azure(plain("a"), GARBAGE)).refused is not None
    assert room.send(grant, azure(plain("a"))).refused is None


@pytest.mark.parametrize("message", [b"", b"\x00\x53\x77\x40", azure(plain("a"))[:-1]])
def test_what_is_not_a_batch_is_rejected(message: bytes) -> None:
    room = Room()
    assert refusal(room.send(room.grant(), message))[::2] == (names.DECODE_ERROR, None)


def test_a_batch_has_at_most_as_many_events_as_the_limit() -> None:
    room = Room()
    assert room.send(room.grant(0), write_sent_batch([plain("a")] * EVENTS_MAX)).refused is None
    taken = room.send(room.grant(0), write_sent_batch([plain("a")] * (EVENTS_MAX + 1)))
    assert refusal(taken)[0] == names.LINK_MESSAGE_SIZE_EXCEEDED
    assert f"at most {EVENTS_MAX} events" in refusal(taken)[1]
    assert len(room.stored(0)) == EVENTS_MAX


def test_a_numbered_batch_is_stored_once() -> None:
    room = Room()
    events = [with_sequence(plain(str(number)), number) for number in range(10)]
    first = room.send(room.numbered(1), write_sent_batch(events[:6]))
    assert (len(first.receipt.settled), first.receipt.parts[0].count) == (0, 6)
    again = room.send(room.numbered(1), write_sent_batch(events))
    assert (list(again.receipt.settled), again.receipt.parts[0].count) == ([*range(6)], 4)
    assert room.stored(1) == [plain(str(number)) for number in range(10)]


def test_numbered_batches_need_the_capability() -> None:
    """A producer that cannot be suspended could lose the rest of a rejected batch: its numbers would count
    as stored.
    """
    room = Room()
    taken = room.send(room.numbered(1, events=0), write_sent_batch([with_sequence(plain("a"), 0)]))
    assert refusal(taken)[0] == names.NOT_ALLOWED
    assert names.CAPABILITY_BATCHED_SENDS in refusal(taken)[1]


@pytest.mark.parametrize("failed", [0, 1])
def test_a_partition_that_fails_refuses_the_batch_and_later_partitions_get_nothing(failed: int) -> None:
    room = Room()
    room.store.fail(room.temps.partitions[failed], DiskFullError("the disk is full"))
    events = [hinted("a", target="0"), hinted("b", target="1"), hinted("c", target="2")]
    taken = room.send(room.grant(), write_sent_batch(events))
    assert isinstance(taken.refused, StorageError)
    assert not taken.released
    assert [len(each) for each in room.everything()] == ([0, 0, 0, 0] if failed == 0 else [1, 0, 0, 0])


def test_events_of_partitions_that_another_container_serves_keep_the_batch_out() -> None:
    room = Room()
    room.elsewhere = {2: Elsewhere("far", 5672, None)}
    taken = room.send(room.grant(), azure(plain("a"), hinted("b", target="2")))
    assert refusal(taken)[::2] == (names.LINK_REDIRECT, 1)
    taken = room.send(room.grant(), azure(plain("a"), head=outer(0x71, names.TARGET_PARTITION, "2")))
    assert refusal(taken)[::2] == (names.LINK_REDIRECT, None)
    for _ in range(PARTITIONS):
        assert room.send(room.grant(), azure(plain("a"))).refused is None
    assert room.stored(2) == []


def test_on_a_link_without_a_target_the_batch_names_its_log() -> None:
    room = Room()
    to = bytes(proton.Message(address="other").encode())
    assert room.send(Relaying(), azure(plain("a"), plain("b"), head=to)).refused is None
    assert room.stored(0, "other") == [plain("a"), plain("b")]
    nowhere = bytes(proton.Message(address="nowhere").encode())
    assert refusal(room.send(Relaying(), azure(plain("a"), head=nowhere)))[::2] == (names.NOT_FOUND, None)
    assert refusal(room.send(Relaying(), azure(plain("a"))))[0] == names.INVALID_FIELD


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(message: bytes) -> None:
    room = Room()
    taken = room.send(room.grant(), message)
    assert taken.refused is not None or taken.count


@pytest.mark.parametrize("name", CODECS)
def test_a_compressed_batch_is_stored_as_the_events_that_it_holds(name: str) -> None:
    """Also if the link did not ask for compression: the batch says what it is."""
    room, plain = Room(), Room()
    head = outer(0x71, names.TARGET_PARTITION, "2")
    batch = head + b"".join(
        DATA_BINARY8 + bytes((len(each),)) + each for each in [plain_event()] * EVENTS_MAX
    )
    taken = room.send(room.grant(), compressed(batch, codec(name)))
    assert (taken.count, taken.bytes, taken.refused) == (EVENTS_MAX, len(batch), None)
    plain.send(plain.grant(), batch)
    assert room.everything() == plain.everything()
    assert len(room.stored(2)) == EVENTS_MAX


def plain_event() -> bytes:
    return plain("an event of a compressed batch")


def test_a_compressed_batch_on_a_link_without_a_target_names_its_log_inside() -> None:
    room = Room()
    batch = encode(Described(ULong(0x73), [None, None, "other"])) + azure(*[plain_event()] * EVENTS_MAX)
    assert room.send(Relaying(), compressed(batch, codec("zstd"))).refused is None
    assert len(room.stored(0, "other")) == EVENTS_MAX


@pytest.mark.parametrize(
    ("message", "condition", "text"),
    [
        (
            compressed(write_sent_batch([bytes(UNCOMPRESSED_MAX)]), codec("zstd")),
            names.LINK_MESSAGE_SIZE_EXCEEDED,
            r"when it is decompressed, and the limit is 65536 \(limits.uncompressed_bytes",
        ),
        (
            compressed(write_sent_batch([plain_event()] * 200), codec("zstd")).replace(b"zstd", b"gzip"),
            names.NOT_IMPLEMENTED,
            "'gzip' is not supported",
        ),
        (
            compressed(write_sent_batch([plain_event()] * 200), codec("zstd"))[:-1] + b"x",
            names.DECODE_ERROR,
            "zstd frame",
        ),
    ],
    ids=["too large", "unknown codec", "damaged"],
)
def test_a_compressed_batch_that_cannot_be_read_is_rejected_and_the_link_waits(
    message: bytes, condition: str, text: str
) -> None:
    room = Room()
    grant = room.grant()
    refused = refusal(room.send(grant, message))
    assert (refused[0], refused[2]) == (condition, None)
    assert re.search(text, refused[1])
    assert room.everything() == [[]] * PARTITIONS
    batch = write_sent_batch([plain_event()] * EVENTS_MAX)
    assert room.send(grant, compressed(batch, codec("lz4"))).released
    batch = write_sent_batch([plain_event()] * EVENTS_MAX, resumes=True)
    assert room.send(grant, compressed(batch, codec("lz4"))).refused is None


def test_an_event_of_a_compressed_batch_is_not_larger_than_one_that_is_sent_alone() -> None:
    room = Room()
    sends = Sends(room.intake, NumberedIntake(room.store, room.numbering), Limits(message_bytes=1024))
    message = compressed(write_sent_batch([bytes(2000)]), codec("zstd"))
    taken = finish(sends.receive(room.grant(), message, NOW))
    assert refusal(taken)[0] == names.LINK_MESSAGE_SIZE_EXCEEDED


@pytest.mark.parametrize(
    ("capability", "wanted", "answered"),
    [
        (names.CAPABILITY_BATCHED_SENDS, "zstd", {names.BATCH_COMPRESSION: Symbol("zstd")}),
        (names.CAPABILITY_BATCHED_SENDS, "lz4", {names.BATCH_COMPRESSION: Symbol("lz4")}),
        (names.CAPABILITY_BATCHED_SENDS, "gzip", {}),
        (names.CAPABILITY_BATCHED_SENDS, None, {}),
        (names.CAPABILITY_BATCHED_SENDS, ["zstd"], {}),
        ("queue", "zstd", {}),
    ],
)
def test_compression_is_offered_to_a_link_that_asks_for_it(
    capability: str, wanted: Any, answered: dict[str, Any]
) -> None:
    room = Room()
    request = AttachRequest(
        "link",
        "container",
        consumer=False,
        address="temps",
        properties={names.BATCH_COMPRESSION: wanted},
        capabilities=frozenset({capability}),
    )
    properties = answered_properties(room.sends.offered(request, room.grant(events=0)))
    if answered:
        answered = answered | {names.BATCH_UNCOMPRESSED_BYTES: UNCOMPRESSED_MAX}
    if capability != "queue":
        answered = answered | {names.BATCH_EVENTS: EVENTS_MAX}
    assert properties == answered
