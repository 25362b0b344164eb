"""What a consumer brought, as columns."""

from confluent_kafka import KafkaError, Message

from amqp_streams.kafka.brokers.taking import Place, consumed, is_end, place_of, size_of, sorted_out
from amqp_streams.kafka.records.chunks import Consumed


def record(
    topic: str, partition: int, offset: int, value: bytes | None = b"v", error: KafkaError | None = None
) -> Message:
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=b"k",
        value=value,
        headers=[("site", b"roof")] if offset else None,
        error=error,
        timestamp=(2, 1000 + offset),
    )


END = KafkaError(KafkaError._PARTITION_EOF)


def test_records_are_sorted_by_partition_in_their_order_and_apart_from_the_rest() -> None:
    one, other = Place("t", 0), Place("t", 1)
    messages = [record(*one, 4), record(*other, 9), record(*one, 5, error=END), record(*one, 5)]
    found, others = sorted_out(messages)
    assert found == {one: [messages[0], messages[3]], other: [messages[1]]}
    assert others == [messages[2]]
    assert place_of(others[0]) == one
    error = others[0].error()
    assert error is not None
    assert is_end(error)
    assert not is_end(KafkaError(KafkaError._TRANSPORT))
    assert sorted_out([]) == ({}, [])
    assert sorted_out(messages[:1]) == ({one: messages[:1]}, [])


def test_records_become_columns() -> None:
    some = [record("t", 0, 4), record("t", 0, 6, None)]
    assert consumed(some, plain=False) == Consumed([4, 6], [1004, 1006], [b"v", None])
    assert size_of(some) == 1


def test_records_of_other_programs_have_keys_and_headers() -> None:
    some = [record("t", 0, 0), record("t", 0, 1)]
    found = consumed(some, plain=True)
    assert (found.keys, found.headers) == ([b"k", b"k"], [(), [("site", b"roof")]])
