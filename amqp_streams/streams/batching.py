"""Negotiation of deliveries that carry many events. An extension: docs/batched-deliveries.md.

Law: such a link only reads. Groups and cursors need a settlement for each event, so they get single
deliveries.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.wire.batched.compression import Codec, available
from amqp_streams.wire.types import Value

EVENTS_DEFAULT: Final = 16_384
EVENTS_MAX: Final = 65_536
"""The most events of one delivery, which both sides decode at once."""
BYTES_DEFAULT: Final = 256 << 10
BYTES_MIN: Final = 4 << 10
BYTES_MAX: Final = 1 << 20
"""The most bytes of a delivery with more than one event."""


@dataclass(frozen=True, slots=True)
class Batching:
    """The most events of a delivery, and its most bytes unless it has one event.

    `formats`: may say message-formats. `codec`: compresses the deliveries.
    """

    events: int = EVENTS_DEFAULT
    bytes: int = BYTES_DEFAULT
    formats: bool = False
    codec: Codec | None = None


def requested_batching(
    capabilities: frozenset[str], properties: Mapping[str, Value], *, durable: bool = False
) -> Batching | None:
    """What a consumer's source and link properties request, within our bounds; None: ordinary deliveries.

    Raises:
        PeerError: a value is not a valid number, or the link also has a group, an epoch or a durable source.
    """
    if names.CAPABILITY_BATCHED_DELIVERIES not in capabilities:
        return None
    # A settlement of a batch cannot name single events.
    if durable or names.CONSUMER_GROUP in properties or names.EPOCH in properties:
        description = (
            f"{names.CAPABILITY_BATCHED_DELIVERIES} is for links without a consumer group, an epoch or a"
            " durable source"
        )
        raise PeerError(names.NOT_IMPLEMENTED, description, {"field": "source"})
    events = _number(properties, names.BATCH_EVENTS, EVENTS_DEFAULT)
    size = _number(properties, names.BATCH_BYTES, BYTES_DEFAULT)
    return Batching(
        min(events, EVENTS_MAX),
        min(max(size, BYTES_MIN), BYTES_MAX),
        properties.get(names.BATCH_FORMATS) is True,
        available(properties.get(names.BATCH_COMPRESSION)),
    )


def _number(properties: Mapping[str, Value], name: str, otherwise: int) -> int:
    value = properties.get(name, otherwise)
    # In Python, a bool is an int.
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PeerError(
            names.INVALID_FIELD,
            f"link property {name} must be an integer of at least 1",
            {"field": "properties"},
        )
    return int(value)
