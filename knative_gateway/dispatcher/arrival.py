"""[io] An event that a reader of a log has read. It is decoded on first use, once for all subscribers."""

import asyncio
from collections.abc import Hashable, Mapping
from typing import Final

import structlog

from event_formats.amqp_binding import decode, identity, passed_on
from event_formats.amqp_binding.reading import IDENTITY_MAX
from event_formats.amqp_to_http import MessageTranscoder, Outgoing
from event_formats.attributes import text_of
from event_formats.errors import InvalidEventError
from event_formats.event import CloudEvent, Value
from event_formats.http_binding import HttpMessage, to_http
from event_formats.names import KEY
from knative_gateway.delivery.ttl import ARRIVAL, TTL, departing
from knative_gateway.offsets import offset_number
from knative_gateway.ports import Stored

log = structlog.get_logger(__name__)

OVERHEAD_BYTES: Final = 1024
"""Estimated memory in bytes of an `Arrival`, in addition to the message."""
LARGE_BYTES: Final = 32 << 10
"""A thread decodes larger messages, and writes larger events as JSON: both may take 100 ms."""
outgoing: Final = MessageTranscoder(apart=TTL, last=ARRIVAL).outgoing


class Arrival:
    """One stored event.

    `before`: the position just before the event. `attributes`: None if the stored message is not a
    CloudEvent; then `problem` gives the reason. `identity`: id and source, even of a message that is not
    valid, as far as they can be read. `passed_on`: headers of the sender's request that subscribers get, too.
    `plain`: the parts of the request to a subscriber; None if the message does not have the layout that the
    ingress writes.
    """

    __slots__ = (
        "_event",
        "_identity",
        "_requests",
        "attributes",
        "before",
        "offset",
        "partition",
        "passed_on",
        "plain",
        "problem",
        "size",
        "timestamp_ms",
    )

    def __init__(self, stored: Stored, before: str) -> None:
        message = stored.message
        self.partition: Final = stored.partition
        self.offset: Final = stored.offset
        self.timestamp_ms: Final = stored.timestamp_ms
        # Small events would otherwise count as almost nothing, and many of them would use far more memory
        # than the limit.
        self.size: Final = len(message) + OVERHEAD_BYTES
        self.before: Final = before
        self.plain: Outgoing | None = None
        self.attributes: Mapping[str, Value] | None = None
        self.passed_on: tuple[tuple[bytes, bytes], ...] = ()
        self.problem = ""
        self._identity = ("", "")
        self._event: CloudEvent | None = None
        self._requests: dict[tuple[bool, bool], HttpMessage] | None = None
        if stored.message_format:
            self.problem = (
                f"the message has message-format 0x{stored.message_format:08x}: CloudEvents are in messages"
                " of format 0"
            )
            return
        try:
            self._read(message)
        except InvalidEventError as error:
            self.problem = str(error)
            self._identity = identity(message)
        except Exception as error:
            # An internal error costs this event only: the events behind it must not wait.
            log.exception("event_not_read", **self.where)
            self.problem = f"internal error: {error!r}"

    @property
    def where(self) -> dict[str, int | str | None]:
        """Partition and offset, as fields of a log line."""
        return {"partition": self.partition, "offset": offset_number(self.offset)}

    def _read(self, message: bytes) -> None:
        # The ingress writes nearly all messages in one layout. Copying their parts is much cheaper than
        # decoding the event.
        plain = outgoing(message)
        if plain is not None:
            self.plain, self.attributes = plain, plain.attributes
            return
        self.passed_on = tuple(passed_on(message))
        self._event = event = decode(message)
        # Filters read the text of a binary value many times, and an AMQP sender chooses its length. So the
        # text is made once.
        binary = {
            name: text_of(value) for name, value in event.attributes.items() if isinstance(value, bytes)
        }
        self.attributes = {**event.attributes, **binary} if binary else event.attributes

    @property
    def event(self) -> CloudEvent | None:
        """The decoded event; None if the stored message is not a CloudEvent."""
        if self._event is None and self.plain is not None:
            self._event = CloudEvent(self.plain.attributes, self.plain.data)
        return self._event

    @property
    def identity(self) -> tuple[str, str]:
        if self.attributes is None:
            return self._identity
        event_id, source = (text_of(self.attributes[name])[:IDENTITY_MAX] for name in ("id", "source"))
        return event_id, source

    @property
    def key(self) -> Hashable | None:
        """The ordering key."""
        return None if self.attributes is None else self.attributes.get(KEY)

    def request(self, *, departs: bool, structured: bool) -> HttpMessage:
        """Return the request to subscribers. It is built once and shared.

        `departs`: the event leaves the Brokers, so the attributes that the Brokers added are removed.
        """
        event = self.event
        assert event is not None
        if self._requests is None:
            self._requests = {}
        # At most four forms exist. Thousands of subscribers of one event share them.
        made = self._requests.get((departs, structured))
        if made is None:
            made = self._requests[departs, structured] = to_http(
                departing(event) if departs else event,
                structured=structured,
            )
        return made


async def read_arrival(stored: Stored, before: str) -> Arrival:
    """Return the event of a stored message. A thread decodes a large one that the ingress has not written."""
    message = stored.message
    if len(message) <= LARGE_BYTES or stored.message_format or outgoing(message) is not None:
        return Arrival(stored, before)
    return await asyncio.to_thread(Arrival, stored, before)
