"""How many times an event may go through Brokers, so that replies do not circulate without limit. Pure.

The attribute is `knativebrokerttl`. The ingress adds it to events without it, and decreases it in other
events. Subscribers do not receive it. A reply has the value of the event that caused it, minus one. An event
that was sent to a Broker's log over AMQP counts as new.
"""

import re
from collections.abc import Mapping
from typing import Final

from event_formats.event import CloudEvent, Value

TTL: Final = "knativebrokerttl"
TTL_DEFAULT: Final = 255
ARRIVAL: Final = "knativearrivaltime"
"""The other attribute that a Broker adds: when it received the event."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)


def ttl_of(attributes: Mapping[str, Value]) -> int | None:
    """Return the attribute's value, at least 0; None if the event does not have it, or it is not an
    integer.
    """
    value = attributes.get(TTL)
    # Over HTTP every attribute is a text.
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else None


def arriving(event: CloudEvent, default: int = TTL_DEFAULT) -> CloudEvent | None:
    """Return the event in the form that a Broker stores; None if it went through too many Brokers."""
    held = ttl_of(event.attributes)
    left = default if held is None else held - 1
    return None if left <= 0 else CloudEvent({**event.attributes, TTL: left}, event.data)


def departing(event: CloudEvent) -> CloudEvent:
    """Return the event without the attribute, for subscribers."""
    if TTL not in event.attributes:
        return event
    return CloudEvent({name: value for name, value in event.attributes.items() if name != TTL}, event.data)


def reply_to(cause: CloudEvent, reply: CloudEvent, default: int = TTL_DEFAULT) -> CloudEvent | None:
    """Return a reply in the form that the Broker of its cause stores; None if the chain of replies is too
    long.

    A value that the subscriber set in the reply is ignored.
    """
    held = ttl_of(cause.attributes)
    # The count of the cause replaces that of the reply: a subscriber could otherwise restart the count with
    # each reply.
    return arriving(CloudEvent({**reply.attributes, TTL: default if held is None else held}, reply.data))
