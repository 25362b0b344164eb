"""What a producer sends: the message bytes and the message-format of what a program gave to it."""

from typing import Final

from amqp_streams.client.events import Event
from amqp_streams.client.message import with_target_partition
from amqp_streams.client.received import ReceivedEvent
from amqp_streams.errors import WireError

Sent = Event | ReceivedEvent | bytes
"""What can be sent: an event, a received event, or the bytes of an AMQP message."""

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
