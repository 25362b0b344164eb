"""The positions of a consumer in its log, so that it can continue after its link was lost. Pure.

A filter names one offset for all partitions of a link. A consumer of several partitions therefore continues
at the partition that is furthest behind. Events of the other partitions that arrive again are recognized by
partition and offset and dropped.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never, cast

from amqp_streams import names
from amqp_streams.client.errors import LinkRefusedError
from amqp_streams.client.message import EventPosition, position_of
from amqp_streams.client.options import EARLIEST, AfterOffset, AfterTime, Earliest, Latest, Start
from amqp_streams.errors import WireError
from amqp_streams.wire.codec import Described, Symbol, Timestamp
from amqp_streams.wire.offsets import offset_text

FILTER_NAME: Final = "event-streams-start"

_BEFORE_ALL: Final = -1
"""The position before offset 0: `@earliest` on the wire."""
_NOWHERE: Final = EventPosition(None, None, None)
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
        """`redelivers`: events may arrive again on the same link because the program releases some.

        `kept`: the node keeps the cursor and knows where to continue. `assigned`: the node chooses the
        partition at each attach.
        """
        self._start = start
        self._partition: Final = partition
        self._redelivers: Final = redelivers
        self._kept: Final = kept
        self._assigned: Final = assigned
        self.partition_count = 0 if partition is None else 1
        """How many partitions the link brings events of; 0: not known."""
        self._after: dict[str, int] = {}
        self._repeated: dict[str, int] = {}
        self._incarnations: dict[str, str] = {}
        self._home: str | None = None
        self.anchored = False

    @property
    def after(self) -> Mapping[str, int]:
        """Offset of the last received event by partition.

        A partition that was empty when the consumer began, and has had no event since, is not in it.
        """
        return _with_events(self._after)

    def anchor(self, ends: Mapping[str, int | None]) -> None:
        """Store the ends of the partitions when the consumer first attached.

        Offset of the latest event, or None if empty.
        """
        self.anchored = True
        self._after.clear()
        for partition, latest in ends.items():
            if self._partition is None or partition == self._partition:
                self._after.setdefault(partition, _BEFORE_ALL if latest is None else latest)

    def other_log(
        self,
        incarnation: str | None,
        container: str = "",
        store: str | None = None,
        *,
        redirected: bool = False,
    ) -> bool:
        """Store the log's incarnation.

        Return True if the log was deleted and recreated: it must be read from its beginning.

        `store`: the store of the node at `container`; None: not known. `redirected`: the link was redirected
        to it. A log may be spread over several containers, each with its own incarnation, so incarnations are
        compared per store, or else per container.

        Raises:
            LinkRefusedError: the client has changed to a node of other logs, where the positions mean other
            events.
        """
        if incarnation is None:
            return False
        places = [container] if store is None else [f"store {store}", container]
        before = next(filter(None, map(self._incarnations.get, places)), None)
        if before is None and not redirected and self._after and self._home not in {None, incarnation}:
            description = (
                f"the log of container {container!r} is not the log that was read: its incarnation is"
                f" {incarnation}, expected {self._home}. The endpoints must be nodes of one cluster"
            )
            raise LinkRefusedError(names.RESOURCE_DELETED, description)
        self._incarnations.update(dict.fromkeys(places, incarnation))
        self._home = self._home if redirected else incarnation
        if before in {None, incarnation}:
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
        self._repeated = _with_events(self._after)
        if known and known <= self._after.keys():
            return _greater_than(min(self._after[partition] for partition in known))
        if isinstance(self._start, AfterTime) or not self._after or self._assigned:
            return self._from_start()
        # Some partitions have not brought an event yet, so the start counts as well. The lowest offset is
        # requested: events before the other positions are recognized and dropped.
        offsets = list(self._after.values())
        match self._start:
            case Earliest():
                offsets.append(_BEFORE_ALL)
            case AfterOffset(offset):
                offsets.append(offset)
        return _greater_than(min(offsets))

    def _from_start(self) -> dict[Symbol, object] | None:
        match self._start:
            case Earliest():
                return _greater_than(_BEFORE_ALL)
            case AfterOffset(offset):
                return _greater_than(offset)
            case AfterTime(timestamp_ms):
                return {Symbol(names.TIMESTAMP): Timestamp(timestamp_ms)}
            case Latest():
                return None
            case _ as never:
                assert_never(never)

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
            position = _position(message)
            partition = position.partition or self._partition or ""
            if position.offset is not None and partition not in seen:
                seen.add(partition)
                self._after[partition] = position.offset
                if len(seen) == self.partition_count:
                    break
        return []

    def _note_each(self, messages: list[bytes]) -> list[int]:
        repeated, after, before = self._repeated, self._after, []
        for index, message in enumerate(messages):
            partition, offset, _ = _position(message)
            if offset is None:
                continue
            partition = partition or self._partition or ""
            # After a reattach the first new event of a partition ends the search for repeated ones.
            if (last := repeated.get(partition)) is not None:
                if offset <= last:
                    before.append(index)
                    continue
                del repeated[partition]
            if offset > after.get(partition, _BEFORE_ALL):
                after[partition] = offset
        return before


def _position(message: bytes) -> EventPosition:
    """Return the position of a message.

    A message that cannot be decoded has none and must not stop the others.
    """
    try:
        return position_of(message)
    except WireError:
        return _NOWHERE


def _with_events(after: Mapping[str, int]) -> dict[str, int]:
    return {partition: offset for partition, offset in after.items() if offset != _BEFORE_ALL}


def _greater_than(offset: int) -> dict[Symbol, object]:
    """The condition of the filter, as the wire has it."""
    text = names.OFFSET_EARLIEST if offset == _BEFORE_ALL else offset_text(offset)
    return {Symbol(names.OFFSET): Symbol(text)}
