"""What `$info` and `$management` say of a log, as values. Spec: Event Streams section 6."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A moment's figures of one partition; what the peer did not say is None.

    `earliest_offset` and `latest_offset` are those of the first and the last event; an empty partition has
    none.
    """

    partition: str
    earliest_offset: int | None
    latest_offset: int | None
    event_count: int | None = None
    bytes: int | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class LogInfo:
    """A moment's figures of a log.

    `settings`: the settings that can change, by their names in `amqp_streams.log_settings` (`retention_ms`);
    a setting without a bound, or that the node does not give, is not in it. `details` has every entry of the
    answer as the node sent it, also those without a field here; offsets are texts there.
    """

    log: str
    partitions: tuple[PartitionInfo, ...]
    incarnation: str | None = None
    sync: str | None = None
    settings: Mapping[str, int] = field(default_factory=dict)
    details: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)

    @property
    def retention_ms(self) -> int | None:
        """Events older than this may be deleted; None: no bound, or the node does not say."""
        return self.settings.get("retention_ms")

    @property
    def retention_bytes(self) -> int | None:
        """A larger partition loses its oldest segments; None: no bound, or the node does not say."""
        return self.settings.get("retention_bytes")


@dataclass(frozen=True, slots=True)
class LogSummary:
    """One log in a list."""

    name: str
    partitions: int
    details: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
