"""How often an event may go through Brokers, so that replies do not go round for ever: the attribute `knativebrokerttl`.

The ingress gives it to events that have none, and takes one off those that have; it is not shown to subscribers, and a reply has what its
cause had, less one. An event sent straight into a Broker's log over AMQP counts as new.
"""

import re
from collections.abc import Mapping
from typing import Final

from event_formats.event import CloudEvent, Value

TTL: Final = "knativebrokerttl"
TTL_DEFAULT: Final = 255

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)


def ttl_of(attributes: Mapping[str, Value]) -> int | None:
    """The event's, at least 0; None if there is none or it is no integer."""
    value = attributes.get(TTL)
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else None


def arriving(event: CloudEvent, default: int = TTL_DEFAULT) -> CloudEvent | None:
    """The event as it is stored when it comes to a Broker; None: it has been through too many, and goes no further."""
    held = ttl_of(event.attributes)
    left = default if held is None else held - 1
    return None if left <= 0 else CloudEvent({**event.attributes, TTL: left}, event.data)


def departing(event: CloudEvent) -> CloudEvent:
    """The event as subscribers see it."""
    if TTL not in event.attributes:
        return event
    return CloudEvent({name: value for name, value in event.attributes.items() if name != TTL}, event.data)


def reply_to(cause: CloudEvent, reply: CloudEvent, default: int = TTL_DEFAULT) -> CloudEvent | None:
    """The reply as it is stored in the Broker of its cause; None: the chain of replies ends here.

    What the subscriber wrote into the attribute counts for nothing.
    """
    held = ttl_of(cause.attributes)
    return arriving(CloudEvent({**reply.attributes, TTL: default if held is None else held}, reply.data))
