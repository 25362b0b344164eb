"""What the node reports about a log in `$info` and `$management`, as values.

Spec: Event Streams section 6.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The state of one partition at one moment. A value is None if the node did not send it.

    An empty partition has no offsets. With `gaps`, some offsets belong to no event: `latest_offset` may be
    one of them, and `event_count` is the most that there can be.
    """

    partition: str
    earliest_offset: int | None
    latest_offset: int | None
    event_count: int | None = None
    bytes: int | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    state: str | None = None
    gaps: bool = False


@dataclass(frozen=True, slots=True)
class LogInfo:
    """The state of a log at one moment.

    `settings`: the settings that can be changed, by their names in `amqp_streams.log_settings`
    (`retention_ms`). A setting is missing if it has no limit, or if the node did not send it. `details`:
    every entry of the answer, including those without a field here.
    """

    log: str
    partitions: tuple[PartitionInfo, ...]
    incarnation: str | None = None
    sync: str | None = None
    settings: Mapping[str, int | str] = field(default_factory=dict)
    details: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)

    @property
    def retention_ms(self) -> int | None:
        """Retention may delete events that are older. None: no limit, or the node did not send it."""
        return _number(self.settings.get("retention_ms"))

    @property
    def retention_bytes(self) -> int | None:
        """Retention deletes the oldest segments of a larger partition.

        None: no limit, or the node did not send it.
        """
        return _number(self.settings.get("retention_bytes"))


@dataclass(frozen=True, slots=True)
class LogSummary:
    """One log in a list."""

    name: str
    partitions: int
    details: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)


def _number(value: int | str | None) -> int | None:
    return value if isinstance(value, int) else None
