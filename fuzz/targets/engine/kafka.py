"""Records of Kafka, which any program may have written: taken in Python and by the compiled loop, they become
the same chunk, and a record of a Kafka client becomes a message that can be read.
"""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import Message

from amqp_streams.errors import PeerError
from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.compiled import Columns, consumed_columns
from amqp_streams.kafka.brokers.taking import consumed
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


def run(data: bytes) -> str:
    """The first byte chooses: a topic of our own, or one of other programs."""
    draw = Draw(data)
    return _plain(draw) if draw.chance(3) else _own(draw)


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


def _plain(draw: Draw) -> str:
    key = None if draw.chance(2) else draw.raw(10)
    value = None if draw.chance(4) else draw.raw(300)
    headers = [(draw.pick(_NAMES), None if draw.chance(6) else draw.raw(40)) for _ in range(draw.below(4))]
    message, header_size = plain_message(PlainRecord(key, value, headers))
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


TARGET: Final = Target(name="kafka", run=run, seconds_max=0.05, guided=False)
