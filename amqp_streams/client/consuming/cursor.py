"""The positions of a consumer in its log, so that it can continue after its link was lost. Pure.

A filter names one offset for all partitions of a link. A consumer of several partitions therefore continues
at the partition that is furthest behind. Events of the other partitions that arrive again are recognized by
partition and offset and dropped.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from amqp_streams import names
from amqp_streams.client.message import Place, place_of
from amqp_streams.client.options import EARLIEST, AfterOffset, AfterTime, Start
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol, Timestamp

FILTER_NAME: Final = "event-streams-start"

_NOWHERE: Final = Place(None, None, None)
NEW_EVENTS: Final = {
    FILTER_NAME: Described(
        Symbol(names.FILTER_DELIVERY_ANNOTATIONS), {Symbol(names.OFFSET): Symbol(names.OFFSET_LATEST)}
    )
}
"""The filter for events that are accepted after the attach.

A link without filters begins there anyway. A link with another filter begins at the earliest event instead,
so it needs this filter as well.
"""


class Cursor:
    """One position for each partition: the offset after which the next event comes."""

    def __init__(
        self,
        start: Start,
        partition: str | None,
        *,
        redelivers: bool = False,
        kept: bool = False,
        assigned: bool = False,
    ) -> None:
        """`redelivers`: events may arrive again on the same link because the program releases some. `kept`:
        the node keeps the cursor and knows where to continue. `assigned`: the node chooses the partition at
        each attach.
        """
        self._start = start
        self._partition: Final = partition
        self._redelivers: Final = redelivers
        self._kept: Final = kept
        self._assigned: Final = assigned
        self.partition_count = 0 if partition is None else 1
        """How many partitions the link brings events of; 0: not known."""
        self._after: dict[str, str] = {}
        self._repeated: dict[str, str] = {}
        self._incarnations: dict[str, str] = {}
        self.anchored = False

    @property
    def after(self) -> Mapping[str, str]:
        """Offset of the last received event by partition.

        It is `@earliest` if the partition was empty when the consumer began.
        """
        return self._after

    def anchor(self, ends: Mapping[str, str | None]) -> None:
        """Store the ends of the partitions when the consumer first attached: offset of the latest event, or
        None if empty.
        """
        self.anchored = True
        self._after.clear()
        for partition, latest in ends.items():
            if self._partition is None or partition == self._partition:
                self._after.setdefault(partition, latest or names.OFFSET_EARLIEST)

    def other_log(self, incarnation: str | None, container: str = "") -> bool:
        """Store the log's incarnation. Return True if the log was deleted and recreated: it must be read from
        its beginning.

        A log may be spread over several containers, each with its own incarnation, so incarnations are
        compared per container.
        """
        before = self._incarnations.get(container)
        if incarnation is not None:
            self._incarnations[container] = incarnation
        if incarnation is None or before is None or before == incarnation:
            return False
        self._after.clear()
        if not isinstance(self._start, AfterTime):
            self._start = EARLIEST
        return True

    def condition(self, partitions: Iterable[str]) -> dict[Symbol, object] | None:
        """Return the start to request in the next attach as annotations, or None for new events only.

        `partitions`: the partitions of the log, as far as they are known.
        """
        if self._kept:
            return self._from_start()
        if self._partition is not None:
            known = {self._partition}
        else:
            known = set(partitions) if self._assigned else set(partitions) | set(self._after)
        self._repeated = {
            partition: after for partition, after in self._after.items() if after != names.OFFSET_EARLIEST
        }
        if known and known <= self._after.keys():
            return {
                Symbol(names.OFFSET): Symbol(min((self._after[partition] for partition in known), key=_rank))
            }
        if isinstance(self._start, AfterTime) or not self._after or self._assigned:
            return self._from_start()
        # Some partitions have not brought an event yet, so the start counts as well. The lowest offset is
        # requested: events before the other positions are recognized and dropped.
        offsets = (
            [self._start.symbol, *self._after.values()]
            if isinstance(self._start, AfterOffset)
            else self._after.values()
        )
        return {Symbol(names.OFFSET): Symbol(min(offsets, key=_rank))}

    def _from_start(self) -> dict[Symbol, object] | None:
        match self._start:
            case AfterOffset():
                return {Symbol(names.OFFSET): Symbol(self._start.symbol)}
            case AfterTime(timestamp_ms):
                return {Symbol(names.TIMESTAMP): Timestamp(timestamp_ms)}
            case _:
                return None

    def filters(self, partitions: Iterable[str]) -> dict[str, object]:
        """Return `condition` as a filter set."""
        condition = self.condition(partitions)
        return (
            {}
            if condition is None
            else {FILTER_NAME: Described(Symbol(names.FILTER_DELIVERY_ANNOTATIONS), cast("Any", condition))}
        )

    def note(self, messages: list[bytes]) -> list[int]:
        """Record received messages, in order. Return the indexes of those that were received before."""
        if self._repeated or self._redelivers:
            return self._note_each(messages)
        # Hot path: messages are in order within each partition, so only the last one of each partition is
        # decoded.
        seen: set[str] = set()
        for message in reversed(messages):
            place = _place(message)
            partition = place.partition or self._partition or ""
            if place.offset is not None and partition not in seen:
                seen.add(partition)
                self._after[partition] = place.offset
                if len(seen) == self.partition_count:
                    break
        return []

    def _note_each(self, messages: list[bytes]) -> list[int]:
        repeated, after, before = self._repeated, self._after, []
        for index, message in enumerate(messages):
            partition, offset, _ = _place(message)
            if offset is None:
                continue
            partition = partition or self._partition or ""
            # After a reattach the first new event of a partition ends the search for repeated ones.
            if (last := repeated.get(partition)) is not None:
                if offset <= last:
                    before.append(index)
                    continue
                del repeated[partition]
            if _rank(offset) > _rank(after.get(partition, names.OFFSET_EARLIEST)):
                after[partition] = offset
        return before


def _place(message: bytes) -> Place:
    """Return the place of a message; a message that cannot be decoded has none and must not stop the
    others.
    """
    try:
        return place_of(message)
    except WireError:
        return _NOWHERE


def _rank(offset: str) -> tuple[bool, str]:
    """Sort key of offsets: bytewise, with `@earliest` before and `@latest` after all others. Spec: Event
    Streams 5.1.1.
    """
    if offset == names.OFFSET_EARLIEST:
        return False, ""
    return offset == names.OFFSET_LATEST, offset
