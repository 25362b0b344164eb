"""Records of Kafka, which any program may have written: taken in Python and by the compiled loop, they become
the same chunk, and a record of a Kafka client becomes a message that can be read.
"""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, Message

from amqp_streams.errors import PeerError
from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.compiled import Columns, consumed_columns
from amqp_streams.kafka.brokers.taking import consumed, sorted_out
from amqp_streams.kafka.records.chunks import Consumed, chunk_of, joined
from amqp_streams.kafka.records.plain import REMAINDER, PlainRecord, plain_message, plain_record
from amqp_streams.storage.ports import Chunk
from amqp_streams.wire.layout import sections
from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from tests.amqp_streams.kafka.brokers.library import Library, Made

_RECORDS_MAX: Final = 20
_FRONTS: Final = (
    b"",
    b"\x00\x53\x75\xa0\x01x",
    b"\x00\x53\x70\x45\x00\x53\x75\xa0\x00",
    b"\x01\x05\x00\x00\x00\x07",
)
_NAMES: Final = ("a", "", REMAINDER, "ü")
_CODES: Final = (KafkaError._PARTITION_EOF, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._TRANSPORT)
_PARTITIONS: Final = 3


def run(data: bytes) -> str:
    """The first byte chooses: a topic of our own, or one of other programs. The rest of an input about the
    latter is what one call of the client brings.
    """
    draw = Draw(data)
    if not draw.chance(3):
        return _own(draw)
    alone = _plain(draw)
    return f"{alone}, {_together(draw)}"


def _own(draw: Draw) -> str:
    made, offset = [], draw.number(2)
    same = draw.pick(_FRONTS) + draw.raw(20) if draw.chance(2) else None
    for _ in range(1 + draw.below(_RECORDS_MAX)):
        value = same if same is not None else None if draw.chance(8) else draw.pick(_FRONTS) + draw.raw(20)
        made.append(Made("t", 0, offset, value, draw.number(3)))
        offset += 1 + (draw.below(5) if draw.chance(8) else 0)
    messages = [
        Message(topic="t", partition=0, offset=each.offset, value=each.value, timestamp=(2, each.time_ms))
        for each in made
    ]
    in_python = _contents(chunk_of(consumed(messages, plain=False)))
    if compiled.loaded is not None:
        in_c = _contents(chunk_of(_taken(made, 1 + draw.below(_RECORDS_MAX))))
        if in_c != in_python:
            message = f"compiled {in_c}, in Python {in_python}"
            raise WrongError(message)
    return f"{len(made)} records, {in_python[-1] is not None}"


def _taken(made: Sequence[Made], at_once: int) -> Consumed:
    with Library(made, at_once) as library:
        runs, others = library.take()
    if others or sorted(library.destroyed) != [each.offset for each in made]:
        message = f"others {others}, given back {library.destroyed}"
        raise WrongError(message)
    return joined([consumed_columns(columns) for columns in map(Columns._make, runs)])


def _contents(chunk: Chunk) -> tuple[list[int], list[int], list[bytes], bytes, list[int] | None]:
    numbers = [chunk.number(index) for index in range(len(chunk))]
    formats = None if chunk.formats is None else list(chunk.formats)
    return numbers, list(chunk.timestamps), list(chunk.messages), chunk.header_sizes, formats


def _record(draw: Draw) -> PlainRecord:
    key = None if draw.chance(2) else draw.raw(10)
    value = None if draw.chance(4) else draw.raw(300)
    headers = [(draw.pick(_NAMES), None if draw.chance(6) else draw.raw(40)) for _ in range(draw.below(4))]
    return PlainRecord(key, value, headers)


def _plain(draw: Draw) -> str:
    message, header_size = plain_message(_record(draw))
    found = sections(message)
    if header_size and (found[0].end != header_size):
        message_text = f"a header of {header_size} bytes, {found[0]} was read"
        raise WrongError(message_text)
    try:
        again, _ = plain_message(plain_record(message))
    except PeerError as error:
        # A record that another program has written may be a message that no producer may send.
        return error.description[-40:]
    if again != message:
        message_text = f"{message!r} came back as {again!r}"
        raise WrongError(message_text)
    return f"{len(found)} sections"


def _together(draw: Draw) -> str:
    """Records of several partitions, errors and ends, mixed: as columns they are what each is alone."""
    sent: list[list[tuple[int, bytes]]] = [[] for _ in range(_PARTITIONS)]
    messages, others, offset = [], 0, draw.number(2)
    for _ in range(draw.below(_RECORDS_MAX)):
        partition, record = draw.below(_PARTITIONS), _record(draw)
        error = KafkaError(draw.pick(_CODES)) if draw.chance(8) else None
        offset += 1 + (draw.below(5) if draw.chance(8) else 0)
        message = Message(
            topic="t",
            partition=partition,
            offset=offset,
            key=record.key,
            value=record.value,
            headers=list(record.headers) or None,
            timestamp=(1, draw.number(3)),
            error=error,
        )
        messages.append(message)
        if error is None:
            sent[partition].append((offset, plain_message(record)[0]))
        else:
            others += 1
    runs, besides = sorted_out(messages)
    came: list[list[tuple[int, bytes]]] = [[] for _ in range(_PARTITIONS)]
    for place, run_ in runs.items():
        cut = draw.below(len(run_) + 1)
        parts = [consumed(part, plain=True) for part in (run_[:cut], run_[cut:]) if part]
        chunk = chunk_of(joined(parts))
        numbers = [chunk.number(index) for index in range(len(chunk))]
        came[place.partition] = list(zip(numbers, chunk.messages, strict=True))
    if came != sent or len(besides) != others:
        message_text = f"{len(besides)} of {others} others, {came} instead of {sent}"
        raise WrongError(message_text)
    return f"{len(runs)} partitions, {bool(others)}"


TARGET: Final = Target(name="kafka", run=run, seconds_max=0.05, guided=False)
