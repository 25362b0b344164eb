"""What a producer sends: the message bytes and the message-format of what a program gave to it."""

from collections.abc import Sequence
from typing import Final, cast

from amqp_streams.client.events import Event
from amqp_streams.client.message import with_target_partition
from amqp_streams.client.producing.outbox import Entry
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.errors import WireError

Sent = Event | ReceivedEvent | bytes
"""What can be sent: an event, a received event, or the bytes of an AMQP message."""

_BYTES: Final = {bytes}
_SHOWN_MAX: Final = 60
_FORMAT_MAX: Final = (1 << 32) - 1


def encode(event: Sent, partition: str | int | None) -> bytes:
    """Return the message bytes of an event, with `partition` as its target partition if given.

    Raises:
        TypeError if it cannot be sent; WireError.
    """
    # Hot path: bytes are sent as they are.
    message = event if type(event) is bytes else _encoded(event)
    return message if partition is None else with_target_partition(message, str(partition))


def format_of(event: Sent) -> int:
    """Return the message-format of an event.

    Raises:
        WireError: it is not from 0 to 2^32 - 1.
    """
    message_format = event.message_format if isinstance(event, Event | ReceivedEvent) else 0
    if not 0 <= message_format <= _FORMAT_MAX:
        message = f"message_format must be from 0 to {_FORMAT_MAX} (got {message_format})"
        raise WireError(message)
    return message_format


def entries_of(events: Sequence[Sent], partition: str | int | None, bytes_max: int) -> list[Entry]:
    """Return the entries of the first events, about as many as have `bytes_max` bytes.

    Raises: as `encode` and `format_of`.
    """
    # Hot path: without a step for each event, except for the object that it needs.
    if partition is None and set(map(type, events)) == _BYTES:
        messages = cast("Sequence[bytes]", events)
        if sum(map(len, messages)) <= bytes_max:
            return [Entry(message, message) for message in messages]
    entries: list[Entry] = []
    for event in events:
        message = encode(event, partition)
        entries.append(Entry(event, message, format_of(event)))
        bytes_max -= len(message)
        # The event that reaches the limit is still taken: otherwise a large one could never be sent.
        if bytes_max <= 0:
            break
    return entries


def _encoded(event: object) -> bytes:
    if isinstance(event, Event | ReceivedEvent):
        return event.encode()
    # A copy: the caller may change a buffer before it is sent.
    if isinstance(event, bytes | bytearray | memoryview):
        return bytes(event)
    shown = (
        f"Event({event!r})"
        if isinstance(event, str | dict | list | int | float) and len(repr(event)) <= _SHOWN_MAX
        else "Event(…)"
    )
    message = (
        f"a {type(event).__name__} cannot be sent: give {shown}, a ReceivedEvent, or the bytes of an AMQP"
        " message"
    )
    raise TypeError(message)
