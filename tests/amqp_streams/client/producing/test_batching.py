"""Which events share a transfer, and whom the outcome of a batch concerns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_streams import names
from amqp_streams.client.errors import EndpointError, RejectedError, ReleasedError
from amqp_streams.client.producing.batching import BYTES_DEFAULT, Batch, Batching, events_of
from amqp_streams.client.producing.outbox import Entry, Outbox
from amqp_streams.proton.sending import Sendable
from amqp_streams.wire.batched.sends import read_sent_batch, rejection_text, write_sent_batch
from amqp_streams.wire.types import Symbol

EVENTS_MAX = 20
BYTES_MAX = 4096


def batching(events_max: int = EVENTS_MAX, bytes_max: int = BYTES_MAX) -> Batching:
    made = Batching(bytes_max)
    made.attached({names.BATCH_EVENTS: events_max})
    return made


def entries(*sizes: int) -> list[Entry]:
    made = [Entry(number, b"m" * size) for number, size in enumerate(sizes)]
    Outbox(events_max=10_000, bytes_max=1 << 30, attempts_max=3).add(made)
    for entry in made:
        entry.attempts = 1
    return made


def shape(sendables: list[Sendable]) -> list[object]:
    return [
        [entry.event for entry in each.entries] if isinstance(each, Batch) else "alone" for each in sendables
    ]


@given(
    st.lists(st.sampled_from([0, 10, 300, 2000, 4000, 5000]), max_size=60),
    st.integers(0, 6000),
    st.booleans(),
)
def test_batches_keep_the_order_and_the_limits(
    sizes: list[int], message_bytes_max: int, formatted: bool
) -> None:
    made = entries(*sizes)
    sendables = batching().group(made, message_bytes_max, formatted=formatted)
    assert shape(sendables) == shape(batching().group(made, message_bytes_max))
    assert events_of(sendables) == made
    for each in sendables:
        if isinstance(each, Batch):
            assert 1 < len(each.entries) <= EVENTS_MAX
            assert len(each.message) <= min(BYTES_MAX, message_bytes_max or BYTES_MAX)
            assert read_sent_batch(each.message, EVENTS_MAX).messages == [
                entry.message for entry in each.entries
            ]


def test_one_event_is_an_ordinary_transfer() -> None:
    made = entries(10)
    assert batching().group(made, 0) == made


def test_a_batch_says_the_formats_of_its_events() -> None:
    made = entries(1, 2, 3)
    made[1].message_format = 7
    (batch,) = batching().group(made, 0)
    assert batch.message_format == names.BATCH_MESSAGE_FORMAT
    assert read_sent_batch(batch.message, 3).formats == {1: 7}


def test_an_event_that_must_be_alone_is_alone_whatever_the_formats() -> None:
    made, producer = entries(1, 1, 1), batching()
    rejected = RejectedError("amqp:decode-error", "", {})
    producer.refused([(Batch(made[1:]), rejected)])
    producer.resuming = False
    assert shape(producer.group(made, 0, formatted=False)) == ["alone"] * 3


def test_what_is_a_batch_already_is_sent_alone() -> None:
    made = entries(1, 1, 1, 1, 1)
    made[2].message_format = names.BATCH_MESSAGE_FORMAT
    assert shape(batching().group(made, 0)) == [[0, 1], "alone", [3, 4]]


def test_a_node_without_the_extension_gets_no_batches() -> None:
    for made, properties in (
        (Batching(BYTES_DEFAULT), {}),
        (Batching(BYTES_DEFAULT), {names.BATCH_EVENTS: "many"}),
        (Batching(0), {names.BATCH_EVENTS: 100}),
    ):
        made.attached(properties)
        assert made.events_max == 0
    assert Batching(0).wanted == ()
    assert Batching(1).wanted == (names.CAPABILITY_BATCHED_SENDS,)


def test_batches_are_compressed_if_the_node_agrees() -> None:
    made = Batching(BYTES_MAX, "lz4")
    assert made.properties == {names.BATCH_COMPRESSION: Symbol("lz4")}
    offered = {names.BATCH_EVENTS: 100, names.BATCH_COMPRESSION: "lz4", names.BATCH_UNCOMPRESSED_BYTES: 2000}
    events = entries(*[100] * 30)
    for properties, compressed, bytes_max in (
        (offered, True, 2000),
        ({**offered, names.BATCH_COMPRESSION: "zstd"}, False, BYTES_MAX),
        ({names.BATCH_EVENTS: 100}, False, BYTES_MAX),
        ({**offered, names.BATCH_UNCOMPRESSED_BYTES: 1 << 20}, True, BYTES_MAX),
    ):
        made.attached(properties)
        batches = made.group(events, 0)
        assert events_of(batches) == events
        for batch in batches:
            assert (names.BATCH_COMPRESSION.encode() in batch.message) == compressed
            found = read_sent_batch(batch.message, 100, bytes_max)
            assert set(found.messages) == {b"m" * 100}
            assert (len(batch.message) < len(found.encoded)) == compressed


def test_a_batch_that_a_program_made_is_compressed_too() -> None:
    batch = write_sent_batch([b"m" * 100] * 10)
    (entry,) = entries(0)
    entry.message, entry.message_format = batch, names.BATCH_MESSAGE_FORMAT
    made = Batching(BYTES_MAX, "zstd")
    offered = {names.BATCH_EVENTS: 100, names.BATCH_COMPRESSION: "zstd"}
    for largest, resuming, compressed in (
        (len(batch), False, True),
        (len(batch) - 1, False, False),
        (len(batch), True, False),
    ):
        made.attached({**offered, names.BATCH_UNCOMPRESSED_BYTES: largest})
        made.resuming = resuming
        (sendable,) = made.group([entry], 0)
        assert events_of([sendable]) == [entry]
        assert sendable.message_format == names.BATCH_MESSAGE_FORMAT
        found = read_sent_batch(sendable.message, 10, largest)
        assert (found.messages, found.resumes) == ([b"m" * 100] * 10, resuming)
        assert (len(sendable.message) < 200) == compressed


def test_a_refused_batch_of_a_program_fails_and_the_next_one_resumes_the_link() -> None:
    made = batching()
    first, second, third = entries(0, 0, 0)
    for entry in (first, second):
        entry.message, entry.message_format = (
            write_sent_batch([b"m", b"n"]),
            names.BATCH_MESSAGE_FORMAT,
        )
    error = RejectedError("amqp:decode-error", "bad")
    released = ReleasedError("released", "")
    assert made.refused([(first, error), (second, released)]) == [(first, error), (second, released)]
    assert second.attempts == 0, "the node did not look at it"
    sendables = made.group([second, third], 0)
    assert events_of(sendables) == [second, third]
    assert read_sent_batch(sendables[0].message, 2).resumes


def test_bytes_that_are_not_a_batch_are_sent_as_they_are() -> None:
    made = batching()
    (entry,) = entries(3)
    entry.message_format = names.BATCH_MESSAGE_FORMAT
    made.resuming = True
    assert [each.message for each in made.group([entry], 0)] == [b"mmm"]


def test_compression_needs_batches_and_a_codec() -> None:
    assert Batching(0, "zstd").properties == Batching(BYTES_MAX).properties == {}
    with pytest.raises(ValueError, match="compression must be one of zstd, lz4"):
        Batching(BYTES_MAX, "gzip")


def rejected(index: int | None) -> EndpointError:
    info = {} if index is None else {names.EVENT_INDEX: index}
    return RejectedError(names.NOT_FOUND, rejection_text(index or 0, "no such partition"), info)


def test_a_rejected_batch_fails_only_the_event_that_the_node_names() -> None:
    made, ours = entries(1, 1, 1, 1), batching()
    (batch,) = ours.group(made, 0)
    found = ours.refused([(batch, rejected(2))])
    assert [(entry.event, type(error)) for entry, error in found] == [
        (0, ReleasedError),
        (1, ReleasedError),
        (2, RejectedError),
        (3, ReleasedError),
    ]
    assert str(found[2][1]) == f"{names.NOT_FOUND}: no such partition"
    assert names.EVENT_INDEX not in found[2][1].info
    assert [entry.attempts for entry in made] == [0, 0, 1, 0], "nothing of the batch was stored"


def test_the_remaining_events_are_sent_alone_and_first_and_resume_the_link() -> None:
    ours = batching()
    made = entries(1, 1, 1, 1, 1, 1)
    (batch,) = ours.group(made[:4], 0)
    ours.refused([(batch, rejected(2))])
    assert ours.resuming
    again = ours.group([made[0], made[1], made[3], made[4], made[5]], 0)
    assert shape(again) == [[0], "alone", "alone", [4, 5]]
    assert [read_sent_batch(each.message, 9).resumes for each in again if isinstance(each, Batch)] == [
        True,
        False,
    ]
    ours.resuming = False
    ours.accepted(again)
    assert shape(ours.group(made[:4], 0)) == [[0, 1, 2, 3]], "nothing is remembered of events with an outcome"


def test_a_batch_that_is_rejected_without_a_name_is_sent_again_event_by_event() -> None:
    ours, made = batching(), entries(1, 1)
    (batch,) = ours.group(made, 0)
    assert [type(error) for _, error in ours.refused([(batch, rejected(None))])] == [ReleasedError] * 2
    assert shape(ours.group(made, 0)) == [[0], "alone"]


def test_events_of_a_batch_that_is_stored_in_part_are_sent_again_alone_until_they_are_stored() -> None:
    """Otherwise all of them would be stored with each attempt while one partition is away."""
    ours, made = batching(), entries(10, 10, 10)
    (batch,) = ours.group(made, 0)
    modified = ReleasedError("modified", "the peer did not store it (modified)")
    assert ours.refused([(batch, modified)]) == [(entry, modified) for entry in made]
    again = ours.group(made, 0)
    assert shape(again) == ["alone"] * 3
    assert ours.accepted(again[:2]) == made[:2]
    ours.refused([(again[2], modified)])
    more = [*made[2:], *entries(10, 10, 10, 10)[3:]]
    assert shape(ours.group(more, 0)) == ["alone", "alone"]
    ours.accepted(ours.group(made[2:], 0))
    assert shape(ours.group(made, 0)) == [[0, 1, 2]]


def test_an_event_that_is_rejected_alone_fails() -> None:
    ours, made = batching(), entries(1)
    ours.resuming = True
    (batch,) = ours.group(made, 0)
    assert isinstance(batch, Batch)
    assert [str(error) for _, error in ours.refused([(batch, rejected(0))])] == [
        f"{names.NOT_FOUND}: no such partition"
    ]


def test_a_release_of_a_waiting_link_is_not_an_attempt() -> None:
    ours, made = batching(), entries(1, 1, 1)
    first, second = Batch(made[:2]), made[2]
    released = ReleasedError("released")
    ours.refused([(first, ReleasedError(names.RESOURCE_LIMIT_EXCEEDED, "full"))])
    assert [entry.attempts for entry in made] == [1, 1, 1]
    ours.resuming = True
    assert [error for _, error in ours.refused([(first, released), (second, released)])] == [released] * 3
    assert [entry.attempts for entry in made] == [0, 0, 0]


def test_a_new_link_does_not_wait() -> None:
    ours = batching()
    ours.resuming = True
    ours.attached({names.BATCH_EVENTS: 5})
    assert not ours.resuming
