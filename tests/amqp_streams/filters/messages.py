"""Messages built from values, and results of filters for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amqp_streams.filters.evaluation.sql import condition
from amqp_streams.filters.language.parser import parse
from amqp_streams.filters.language.syntax import Dialect
from amqp_streams.filters.record import Record
from amqp_streams.filters.refusal import Limits
from amqp_streams.filters.values import FAILED, Truth
from amqp_streams.wire.encoder import encode
from amqp_streams.wire.types import Value

LIMITS = Limits()
NOW_MS = 1_700_000_000_000
LATEST = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """A record by its sections: lists for header and properties, maps for the others, None for an absent
    section.
    """

    header: Sequence[Value] | None = None
    message_annotations: Mapping[Any, Any] | None = None
    properties: Sequence[Value] | None = None
    application_properties: Mapping[Any, Any] | None = field(default_factory=dict)
    footer: Mapping[Any, Any] | None = None
    number: int = 7
    timestamp_ms: int = 1000

    def encoded(self) -> bytes:
        """Return the message as it is stored."""
        parts = (
            (0x70, self.header),
            (0x72, self.message_annotations),
            (0x73, self.properties),
            (0x74, self.application_properties),
            (0x77, "body"),
            (0x78, self.footer),
        )
        return b"".join(
            bytes((0, 0x53, code)) + encode(_plain(value)) for code, value in parts if value is not None
        )

    def record(self) -> Record:
        """Return the record as filters see it."""
        record = Record(partition="3", latest=LATEST, now_ms=NOW_MS)
        record.turn_to(self.encoded(), self.number, self.timestamp_ms)
        return record


def _plain(value: str | Mapping[Any, Any] | Sequence[Value]) -> Value:
    if isinstance(value, str):
        return value
    return dict(value) if isinstance(value, Mapping) else list(value)


def application(**properties: Value) -> Sample:
    """A record with these application properties; a `_` in a name stays."""
    return Sample(application_properties=dict(properties))


def truth(text: str, sample: Sample, dialect: Dialect = Dialect.SQL) -> Truth:
    """Return the result of a filter text for a record."""
    unlike: Truth = False if dialect is Dialect.SELECTOR else FAILED
    return condition(parse(text, dialect, LIMITS), unlike)(sample.record())
