"""How much one connection has sent and received, and how fast.

Law: counting costs an event nothing. Links count once for each batch or run (`Link.events`); this module adds
their counters up every SAMPLE_MS, and when an operator asks.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from amqp_streams.server.links.link import AnyLink, IncomingLink

SAMPLE_MS: Final = 5000
"""The time between two samples. A rate is the average since the last sample but one: of 5 to 10 seconds."""


class Totals(NamedTuple):
    """Events and bytes of events. `in`: the node appended them; `out`: the node sent them."""

    events_in: int = 0
    bytes_in: int = 0
    events_out: int = 0
    bytes_out: int = 0


class Rates(NamedTuple):
    """The same, for each second."""

    events_in: float = 0.0
    bytes_in: float = 0.0
    events_out: float = 0.0
    bytes_out: float = 0.0


class Traffic:
    """The counters of a connection. `now_ms`: a monotonic clock."""

    __slots__ = ("_ended", "_newer", "_older", "due_ms")

    def __init__(self, now_ms: int) -> None:
        self._ended = Totals()
        """Of the links that have ended."""
        self._older = self._newer = (now_ms, Totals())
        self.due_ms = now_ms + SAMPLE_MS
        """When the next sample is due."""

    def add(self, link: AnyLink) -> None:
        """Keep the counters of a link that ends."""
        if link.events:
            self._ended = _sum(self._ended, (link,))

    def totals(self, links: Iterable[AnyLink]) -> Totals:
        """Return the sums since the connection began. `links`: those that have not ended."""
        return _sum(self._ended, links)

    def sample(self, links: Iterable[AnyLink], now_ms: int) -> None:
        """Note the present sums, from which the next rates are computed."""
        self._older, self._newer = self._newer, (now_ms, self.totals(links))
        self.due_ms = now_ms + SAMPLE_MS

    def rates(self, totals: Totals, now_ms: int) -> Rates:
        """Return the rates, from the present sums."""
        since_ms, before = self._older
        passed_s = max(1, now_ms - since_ms) / 1000
        return Rates(*((now - then) / passed_s for now, then in zip(totals, before, strict=True)))


def _sum(totals: Totals, links: Iterable[AnyLink]) -> Totals:
    events_in, bytes_in, events_out, bytes_out = totals
    for link in links:
        if isinstance(link, IncomingLink):
            events_in += link.events
            bytes_in += link.bytes
        else:
            events_out += link.events
            bytes_out += link.bytes
    return Totals(events_in, bytes_in, events_out, bytes_out)
