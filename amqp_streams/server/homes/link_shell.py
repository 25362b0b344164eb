"""[io] The links of this node of which homes decide: what they ask, and when they may send.

`Reporting` decides, and this shell performs its effects in their order; the node and its links call it
through `Decider` and `Leases`. Everything here runs on the event loop's thread.

Laws: a link is asked before each write. Bytes of a link that wait in this process when its grant ends are
thrown away with their connection: otherwise the client would get them after the next owner has begun. A home
hears of the end of a link after the link was closed.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, assert_never

from amqp_streams.homes.buckets import bucket_of
from amqp_streams.homes.messages import Answer, Report
from amqp_streams.homes.records import HomeRecord
from amqp_streams.homes.reporting import (
    Closed,
    Denied,
    Durable,
    Effect,
    Granted,
    Leave,
    Reporting,
    Send,
)
from amqp_streams.proton import links
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.turns import OrderedCalls
from amqp_streams.server.service import EventService
from amqp_streams.streams.attach import Consuming
from amqp_streams.streams.groups.claims import Wanted

CUT_MS: Final = 150
"""How long before the end of a grant a connection is cut that still has bytes to write: three ticks. The next
owner begins later than that end by 2 % of the lease.
"""
WAITING_MAX: Final = 8
"""How many writes of positions of one link a receiver may wait for. More are one."""


@dataclass(slots=True)
class _Positions:
    """What is durable of one link, and what its receiver waits for: positions, and the call when they are."""

    durable: dict[int, int] = field(default_factory=dict)
    waiting: deque[tuple[Mapping[int, int], Callable[[], None]]] = field(default_factory=deque)

    def covers(self, positions: Mapping[int, int]) -> bool:
        return all(self.durable.get(index, -1) >= at for index, at in positions.items())


class LinkShell:
    """See `Decider` and `Leases`.

    `process`: the id of this process. `send`: brings a report to the home at this address. `boot_ms`: reads
    CLOCK_BOOTTIME. `soon`: makes a call in the next iteration of the loop.
    """

    def __init__(
        self,
        reporting: Reporting,
        service: EventService,
        *,
        process: str,
        boot_ms: Callable[[], int],
        soon: Callable[[Callable[[], None]], object],
        send: Callable[[str, Report, str], None],
    ) -> None:
        self._reporting: Final = reporting
        self._service: Final = service
        self._homed: Final = service.node.homed
        self._process: Final = process
        self._boot_ms: Final = boot_ms
        self._soon: Final = soon
        self._send: Final = send
        self._calls: Final = OrderedCalls(soon, service.iteration, service.effects.carry_out)
        """Many links may be granted by one answer."""
        self._scheduled = False
        self._unnamed = 0
        self._paused: Final[dict[int, None]] = {}
        """The links that had something to send when they were not allowed to."""
        self._unsent: Final[dict[int, ConsumerLink]] = {}
        """The links of which bytes wait in this process."""
        self._positions: Final[dict[int, _Positions]] = {}

    # -- from the node: see `Decider`

    def attach(self, wanted: Wanted) -> int:
        """See `Decider.attach`."""
        container, claim = wanted.container, wanted.claim
        if claim is not None and not container:
            claim = replace(claim, member=f"{self._process}/{claim.member}")
        if not (container and wanted.link):
            # Links without a name are different links, and differ from those of other nodes.
            self._unnamed += 1
            container = f"{self._process}/{self._unnamed}"
        wanted = replace(wanted, container=container, claim=claim)
        bucket = bucket_of(wanted.incarnation, claim, container, wanted.link)
        number = self._reporting.attach(wanted, bucket, self._boot_ms())
        self._perform_soon()
        return number

    def detach(self, number: int) -> None:
        """See `Decider.detach`."""
        self._paused.pop(number, None)
        self._positions.pop(number, None)
        self._reporting.detach(number, self._boot_ms())
        self._perform_soon()

    def moved(self, consumer: Consuming, number: int, positions: Mapping[int, int]) -> None:
        """See `Decider.moved`."""
        link = self._service.effects.consumer(consumer)
        then = None if link is None else self._service.confirming.next_write_of(link)
        if then is not None:
            kept = self._positions.setdefault(number, _Positions())
            if kept.covers(positions):
                self._soon(then)
                then = None
            else:
                if len(kept.waiting) >= WAITING_MAX:
                    kept.waiting.pop()  # the later call settles its deliveries as well
                kept.waiting.append((positions, then))
        at = tuple(positions.items())
        self._reporting.moved(number, at, self._boot_ms(), urgent=then is not None)
        self._perform_soon()

    def may_send(self, number: int) -> bool:
        """See `Decider.may_send`."""
        if self._reporting.may_send(number, self._boot_ms()):
            return True
        self._paused[number] = None
        return False

    def wrote(self, link: ConsumerLink) -> None:
        """See `Leases.wrote`."""
        number = link.grant.number
        assert number is not None
        link.owner.flush()
        self._reporting.wrote(number, self._boot_ms())
        if _unsent(link):
            self._unsent[number] = link
        self._perform_soon()

    # -- from homes

    def home(self, bucket: int, record: HomeRecord) -> None:
        """The state topic names the home of a bucket."""
        self._reporting.home(bucket, record, self._boot_ms())
        self._perform()

    def answer(self, answer: Answer) -> None:
        """A home has answered."""
        self._reporting.answer(answer, self._boot_ms())
        self._perform()
        self._resume()

    # -- time

    def tick(self) -> None:
        """Called each `home_shell.TICK_S`."""
        self._reporting.tick(self._boot_ms())
        self._watch_unsent()
        self._perform()
        self._resume()

    def stop(self) -> None:
        """The links of this node have ended. Wait until `busy` is false."""
        self._reporting.stop(self._boot_ms())
        self._perform()

    @property
    def busy(self) -> bool:
        """Whether a home has not confirmed the end of a link."""
        return self._reporting.busy

    # -- private

    def _watch_unsent(self) -> None:
        """Cut connections whose bytes may not reach their client any more."""
        now_ms = self._boot_ms()
        for number, link in list(self._unsent.items()):
            if not _unsent(link):
                del self._unsent[number]
                # They may have been written after a stop of the process, in which the grant ended.
                self._reporting.wrote(number, now_ms)
            elif not self._reporting.holds(number, now_ms + CUT_MS):
                del self._unsent[number]
                link.owner.cut(
                    f"the grant of link {link.name[:64]!r} ends, and the client does not read what was sent"
                )

    def _resume(self) -> None:
        """Pump the links that may send again."""
        now_ms = self._boot_ms()
        for number in [each for each in self._paused if self._reporting.may_send(each, now_ms)]:
            del self._paused[number]
            consumer = self._homed.consumer(number)
            link = None if consumer is None else self._service.effects.consumer(consumer)
            if link is not None:
                self._service.pump_later(link)

    def _perform_soon(self) -> None:
        """Perform the effects after the node's own: a home must not hear of an end that is yet to come."""
        if not self._scheduled:
            self._scheduled = True
            self._soon(self._perform)

    def _perform(self) -> None:
        self._scheduled = False
        for effect in self._reporting.take_effects():
            self._calls.add(partial(self._carry_out, effect))

    def _carry_out(self, effect: Effect) -> None:
        now_ms = self._service.monotonic_ms()
        match effect:
            case Send(address, report, home):
                self._service.effects.carry_out()
                self._send(address, report, home)
            case Granted(number, partition, epoch, positions):
                # The effects are carried out in turns, so the process may have been stopped since.
                if self._reporting.may_grant(number, self._boot_ms()):
                    self._homed.granted(number, epoch, partition, dict(positions), now_ms)
                else:
                    self._perform()
            case Denied(number, error) | Closed(number, error):
                self._homed.closed(number, error, now_ms)
            case Leave(number, error, within_ms):
                self._homed.leave(number, error, within_ms, now_ms)
            case Durable(number, positions):
                self._durable(number, positions)
            case _:
                assert_never(effect)

    def _durable(self, number: int, positions: tuple[tuple[int, int], ...]) -> None:
        if self._homed.consumer(number) is None and number not in self._positions:
            return
        kept = self._positions.setdefault(number, _Positions())
        kept.durable.update(positions)
        while kept.waiting and kept.covers(kept.waiting[0][0]):
            kept.waiting.popleft()[1]()


def _unsent(link: ConsumerLink) -> bool:
    """Whether bytes that were sent on this link may wait in this process."""
    return link.alive and not link.closing and (link.owner.unsent() > 0 or links.queued(link.pointer) > 0)
