"""An event as a producer gives it and as a consumer gets it; the bytes between are an AMQP message (AMQP 1.0 core 3.2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """An event to send. `body`: bytes become a data section, everything else an amqp-value. `key` chooses the partition.

    Times are milliseconds since 1970 UTC. `properties` are application properties: str, int, float, bool, bytes, None.
    """

    body: object = b""
    key: str | None = None
    properties: Mapping[str, object] | None = None
    subject: str | None = None
    content_type: str | None = None
    message_id: object = None
    correlation_id: object = None
    creation_time_ms: int | None = None
    to: str | None = None
    reply_to: str | None = None
    annotations: Mapping[str, object] | None = None

    def encode(self) -> bytes:
        """The AMQP message."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """An event as it came; everything but `message` is decoded when asked for. Same fields as `Event`, and these:

    `offset`, `partition`: symbols as text; `timestamp_ms`: when it was stored; `message`: the bytes, delivery annotations included;
    `delivery_annotations`.
    """

    message: bytes = field(repr=False)
    offset: str | None = None
    partition: str | None = None
    timestamp_ms: int | None = None
    body: object = b""
    key: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)
