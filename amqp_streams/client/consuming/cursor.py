"""Where a consumer is in its log, so that it can go on after its link was lost. Pure.

A filter names one offset for all partitions of a link. A consumer of several partitions therefore goes on
from the partition that is furthest behind, and what others bring again is told apart by (partition, offset)
and dropped.
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
"""Events accepted after the attach: the default of a link without filters.

With another filter a link starts at the earliest event.
"""


class Cursor:
    """The position in each partition: the offset after which the next event comes."""

    def __init__(
        self,
        start: Start,
        partition: str | None,
        *,
        redelivers: bool = False,
        kept: bool = False,
        assigned: bool = False,
    ) -> None:
        """`redelivers`: events may come again on the same link, because some are released. `kept`: the node
        knows where to go on.

        `assigned`: the node chooses the partition at each attach.
        """
        self._start = start
        self._partition: Final = partition
        self._redelivers: Final = redelivers
        self._kept: Final = kept
        self._assigned: Final = assigned
        self.partition_count = 0 if partition is None else 1
        """Partitions that the link brings events of; 0: not known."""
        self._after: dict[str, str] = {}
        self._repeated: dict[str, str] = {}
        self._incarnations: dict[str, str] = {}
        self.anchored = False

    @property
    def after(self) -> Mapping[str, str]:
        """Offset of the last event taken, by partition;

        `@earliest` where the partition was empty when the consumer began.
        """
        return self._after

    def anchor(self, ends: Mapping[str, str | None]) -> None:
        """Remember where the log ended when the consumer first attached (offset of the latest event;

        None: empty).
        """
        self.anchored = True
        self._after.clear()
        for partition, latest in ends.items():
            if self._partition is None or partition == self._partition:
                self._after.setdefault(partition, latest or names.OFFSET_EARLIEST)

    def other_log(self, incarnation: str | None, container: str = "") -> bool:
        """Note which log this is. True: it is not the one that was read before, but a namesake, to be read
        from its beginning.

        Each container of a log that is spread over several has an incarnation of its own.
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
        """What the next attach asks for, `partitions` being those of the log as far as known;

        None: new events only.
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
        # Not all partitions seen: those seen say where to go on, unless the start was before that.
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
        """`condition` as a filter set."""
        condition = self.condition(partitions)
        return (
            {}
            if condition is None
            else {FILTER_NAME: Described(Symbol(names.FILTER_DELIVERY_ANNOTATIONS), cast("Any", condition))}
        )

    def note(self, messages: list[bytes]) -> list[int]:
        """Take what came, in order; the indexes of those that were delivered before."""
        if self._repeated or self._redelivers:
            return self._note_each(messages)
        # In order within each partition: the last of each is the furthest, and there are not many of them.
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
            if (last := repeated.get(partition)) is not None:
                if offset <= last:
                    before.append(index)
                    continue
                del repeated[partition]
            if _rank(offset) > _rank(after.get(partition, names.OFFSET_EARLIEST)):
                after[partition] = offset
        return before


def _place(message: bytes) -> Place:
    """A message that cannot be read has no position; reading it raises, and the other messages are received."""
    try:
        return place_of(message)
    except WireError:
        return _NOWHERE


def _rank(offset: str) -> tuple[bool, str]:
    """Order of offsets: bytewise, but `@latest` after and `@earliest` before all (5.1.1)."""
    if offset == names.OFFSET_EARLIEST:
        return False, ""
    return offset == names.OFFSET_LATEST, offset
