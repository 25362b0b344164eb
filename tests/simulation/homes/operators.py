"""What a node does besides links: changes and lists that users ask for, and the removal of states of deleted
logs.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from amqp_streams.homes.changing.asking import Asking
from amqp_streams.homes.changing.changes import Changes
from amqp_streams.homes.changing.sweeping import Sweeping
from amqp_streams.homes.describing.describing import description
from amqp_streams.homes.describing.inquiring import Inquiring
from amqp_streams.homes.describing.reading import Reading
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Asked, Described, Description, Inquiry, Outcome
from amqp_streams.homes.protocol.changes import asked_body, asked_of, outcome_body, outcome_of
from amqp_streams.homes.protocol.descriptions import (
    Descriptions,
    Inquiries,
    description_parts,
    inquiry_parts,
)
from amqp_streams.homes.records import HomeRecord
from amqp_streams.homes.serving import Serving
from amqp_streams.node.writes import Wait
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.groups.claims import Claim
from amqp_streams.streams.steps import finish

if TYPE_CHECKING:
    from tests.simulation.homes.changing import ChangingWorld
    from tests.simulation.homes.nodes import Process

T = TypeVar("T")
TIMES = Times(sweep_ms=500, gone_ms=2000)
"""Shorter than in the product, so that a run has many rounds."""


class Operating:
    """What a process does for users. See `Here` and `Ways`."""

    def __init__(self, process: "Process") -> None:
        self.process = process
        self.world = cast("ChangingWorld", process.world)
        self.asking = Asking(process.id, self)
        self.inquiring = Inquiring(process.id, self)
        self.reading = Reading(self.world.logs, self, self._links, self.inquiring, process.boot_ms)
        self.changes = Changes(
            self.world.logs, self, self.asking, process.boot_ms, self._refreshed,
            read_group=self.reading.read_group, read_cursor=self.reading.read_cursor,
        )  # fmt: skip
        self.sweeping = Sweeping(self, self._log_of, TIMES)

    def tick(self) -> None:
        now_ms = self.process.boot_ms()
        self.changes.tick()
        self.asking.tick(now_ms)
        self.inquiring.tick(now_ms)
        if self.sweeping.tick(now_ms):
            self._describe()

    def _describe(self) -> None:
        """Ask one broker, which may be behind, for all topics. It may not answer."""

        def ask() -> frozenset[str]:
            behind = self.world.random.random() < self.world.behind
            return frozenset({"another"}) if behind else frozenset({"another", *self.world.topics})

        def answered(ids: frozenset[str] | None) -> None:
            self.sweeping.described(ids, self.process.boot_ms())

        self.process.ask(ask, answered)

    def _log_of(self, incarnation: str) -> StoredLog | None:
        """A node may have other `kafka.topics`."""
        return None if self.process.name in self.world.unknowing else self.world.log_of(incarnation)

    def _refreshed(self) -> Generator[Wait, None, None]:
        yield Wait(over=True)

    # -- `Here` and `Ways`

    def _links(self) -> Iterator[tuple[str, Claim, int | None]]:
        for link in self.process.links.values():
            if link.wanted.claim is not None:
                yield link.wanted.incarnation, link.wanted.claim, link.partition if link.granted else None

    def states(self, bucket: int) -> Mapping[str, bytes]:
        if bucket >= len(self.world.kafka.partitions):
            return {}
        serving = self.serving(bucket)
        return self.world.kafka.partitions[bucket].values if serving is None else serving.states.values

    def serving(self, bucket: int) -> Serving | None:
        return self.process.home.serving(bucket)

    def deciding(self, bucket: int) -> Serving | None:
        return self.process.home.deciding(bucket)

    def current(self, bucket: int) -> Serving | None:
        return self.process.home.current(bucket, self.process.boot_ms())

    def is_current(self, bucket: int) -> bool:
        return self.current(bucket) is not None

    def record(self, bucket: int) -> HomeRecord | None:
        return self.process.reporting.record(bucket)

    def is_here(self, bucket: int) -> bool:
        return self.deciding(bucket) is not None

    def ask(self, address: str, asked: Asked) -> bool:
        if address == self.process.name:
            return False
        machine, network, name = self.world.machines[address], self.world.network, self.process.name
        self.asking.sent(asked.number)

        def arrive() -> None:
            other = machine.process
            if other is None or not other.alive:
                return
            if other.older:
                # Its HELLO has shown that, before anything was sent.
                network.send(address, name, lambda: self.process.do(lambda: self._not_taken(address, asked)))
            else:
                operating = other.operating
                assert operating is not None
                other.do(lambda: operating.made(asked, name, self))

        network.send(name, address, arrive)
        return True

    def _not_taken(self, address: str, asked: Asked) -> None:
        self.asking.not_taken(address, asked.number)

    def forget(self, address: str, number: int) -> None:
        """The network may carry it nevertheless."""

    def problem(self, address: str) -> str | None:
        return None

    def inquire(self, address: str, inquiry: Inquiry) -> bool:
        if address == self.process.name:
            return False
        machine, network, name = self.world.machines[address], self.world.network, self.process.name
        bodies = list(inquiry_parts(inquiry))

        def arrive() -> None:
            other = machine.process
            if other is None or not other.alive:
                return
            if other.older:
                refused = lambda: self.inquiring.not_taken(address, inquiry.number)  # noqa: E731
                network.send(address, name, lambda: self.process.do(refused))
            else:
                operating = other.operating
                assert operating is not None
                other.do(lambda: operating.described(bodies, name, self))

        network.send(name, address, arrive)
        return True

    def forget_inquiry(self, address: str, number: int) -> None:
        """The network may carry it nevertheless."""

    def unreached(self, address: str) -> str | None:
        return None

    # -- at the home

    def described(self, bodies: list[bytes], name: str, other: "Operating") -> None:
        """Another node inquires. All that travels is bytes."""
        inquiries, descriptions = Inquiries(), Descriptions()
        inquiry = [inquiries.take(body) for body in bodies][-1]
        assert inquiry is not None

        def then(answer: Description) -> None:
            for item in answer.items:
                if isinstance(item, Described):
                    group = inquiry.subjects[item.at].group
                    for index, member in item.owners:
                        self.world.ledger.shown(group or "", index, member, self.world.schedule.now)
            answered = [descriptions.take(body) for body in description_parts(answer)][-1]
            assert answered is not None
            arrive = lambda: other.process.do(  # noqa: E731
                lambda: other.inquiring.answered(self.process.name, answered)
            )
            self.world.network.send(self.process.name, name, arrive)

        then(finish(description(self, self._log_of, inquiry)))

    def made(self, asked: Asked, name: str, other: "Operating") -> None:
        """Another node asks for a change. All that travels is bytes."""
        question = asked_of(asked_body(asked))
        assert isinstance(question, Asked)

        def then(outcome: Outcome) -> None:
            body = outcome_body(outcome)
            arrive = lambda: other.process.do(  # noqa: E731
                lambda: other.asking.answered(self.process.name, outcome_of(body))
            )
            self.world.network.send(self.process.name, name, arrive)

        self.drive(self.changes.carry_out(question), then)

    def drive(self, steps: Generator[Wait | None, None, T], then: Callable[[T], object]) -> None:
        """Do the steps of a change or request, as `Turns` does."""
        try:
            wait = next(steps)
        except StopIteration as ended:
            then(ended.value)
            return
        if wait is None:
            self.process.after(0, lambda: self.drive(steps, then))
        else:
            wait.then(lambda: self.process.after(0, lambda: self.drive(steps, then)))
