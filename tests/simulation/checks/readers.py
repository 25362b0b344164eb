"""One consumer link: it gets its partitions' events one after the other, without a gap that nothing
explains.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.simulation.checks.ledger import Ledger, Sent
from tests.simulation.peers.frames import Event

Matches = Callable[[Sent], bool]


@dataclass(eq=False)
class Reading:
    """What one link has read.

    `matches`: a naive evaluation of its filter; None: it has no filter. `next`: by partition, its position; a
    partition that is missing begins with its first delivery.
    """

    ledger: Ledger
    log: str
    matches: Matches | None = None
    next: dict[int, int] = field(default_factory=dict)
    begin: dict[int, int] = field(default_factory=dict)
    """By partition, where the log began when the link was attached from the earliest event on."""
    again: set[tuple[int, int]] = field(default_factory=set)
    """The events that the client released, and that the node may send again on this link."""

    def got(self, event: Event) -> Sent:
        """The next delivery."""
        position = event.partition, event.offset
        sent = self.ledger.delivered(self.log, event, again=position in self.again)
        where = f"{self.log}/{event.partition}@{event.offset}"
        expected = self.next.get(event.partition)
        if expected is None:  # between its attach and its answer retention may have removed events
            begin = self.begin.get(event.partition, event.offset - event.skipped)
            expected = max(begin, min(event.offset - event.skipped, self._start(event.partition)))
        if event.offset < expected:
            assert position in self.again, f"{where} comes twice on one link"
            self.again.discard(position)
            return sent
        if self.matches is None:
            missing = event.offset - expected
            assert missing == event.skipped, (
                f"{where}: {missing} events are missing, {event.skipped} are told"
            )
        else:
            assert self.matches(sent), f"{where} does not match the filter"
            self.passed(event.partition, event.offset)
        self.next[event.partition] = event.offset + 1
        return sent

    def _start(self, partition: int) -> int:
        return self.ledger.current[self.log, partition].first

    def passed(self, partition: int, until: int) -> None:
        """The node has examined all events before `until`, and none of them matches."""
        track = self.ledger.current[self.log, partition]
        for offset in range(
            max(self.next.get(partition, self.begin.get(partition, until)), track.first), until
        ):
            sent, _ = track.records[offset]
            assert self.matches is not None
            assert not self.matches(sent), f"{self.log}/{partition}@{offset} matches, and was passed over"

    def finished(self, ends: Mapping[int, int]) -> bool:
        """It has everything up to these ends."""
        for partition, end in ends.items():
            track = self.ledger.current[self.log, partition]
            # Retention may have removed what it has not read.
            at = max(track.first, self.next.get(partition, self.begin.get(partition, 0)))
            if self.matches is None:
                if at < end:
                    return False
            elif any(self.matches(track.records[number][0]) for number in range(at, end)):
                return False
        return True
