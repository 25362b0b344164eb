"""Machines with their clocks, and the links of the consumers at their nodes."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from amqp_streams.errors import PeerError
from amqp_streams.streams.consuming.tracker import Tracker
from amqp_streams.streams.groups.claims import Wanted

if TYPE_CHECKING:
    from tests.simulation.homes.nodes import Process


class Consumer(Protocol):
    """The client of a link."""

    second: bool
    """It has the receiver settle mode second: it waits until its settlements are durable."""

    def attached(self, link: "Link") -> None: ...
    def lost(self, link: "Link", error: PeerError | None, *, refused: bool) -> None: ...
    def received(self, link: "Link", partition: int, first: int, count: int) -> None: ...


@dataclass(eq=False)
class Machine:
    """A machine with its clock, which runs at its own rate and goes on when processes are stopped."""

    name: str
    offset: float
    rate: float
    process: "Process | None" = None
    starts: int = 0

    def boot_ms(self, now: float) -> int:
        return int(self.offset + self.rate * now)


@dataclass(eq=False)
class Link:
    """A consumer's link at its node."""

    process: "Process"
    peer: Consumer
    wanted: Wanted
    number: int = 0
    partition: int | None = None
    trackers: dict[int, Tracker] = field(default_factory=dict)
    granted: bool = False
    leaving: bool = False
    over: bool = False

    def may_send(self) -> bool:
        """Whether the node would send now, if it were asked."""
        process = self.process
        return process.alive and not self.over and process.reporting.may_send(self.number, process.boot_ms())

    @property
    def unsettled(self) -> int:
        return sum(tracker.unsettled for tracker in self.trackers.values())
