"""An in-memory node whose groups and cursors have homes, as on Kafka: `LinkShell`, and a home with the states
of a topic in memory.
"""

from collections.abc import Generator, Mapping
from typing import Any

from amqp_streams import names
from amqp_streams.homes.bucket import Commit, Fence, Load, Outcome, Reply
from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.changing.asking import Asking
from amqp_streams.homes.changing.subscriptions import HomedSubscriptions
from amqp_streams.homes.describing.inquiring import Inquiring
from amqp_streams.homes.home import Home
from amqp_streams.homes.kept import KeptRequests
from amqp_streams.homes.leases import Times
from amqp_streams.homes.membership import GivenBack, Leave
from amqp_streams.homes.messages import Asked, Inquiry, Report
from amqp_streams.homes.records import KEY, HomeRecord, decoded
from amqp_streams.homes.reporting import Reporting
from amqp_streams.homes.serving import Serving
from amqp_streams.node.writes import Wait
from amqp_streams.server.homes.link_shell import LinkShell
from amqp_streams.storage.ports import StoredLog
from amqp_streams.testing_amqp import InMemoryNode

TICK_S = 0.05
GATHER_MS = 400
"""Until the first home decides."""


class MemoryTopic:
    """The state topic. `away`: transactions do not end."""

    def __init__(self) -> None:
        self.values: list[dict[str, bytes]] = [{} for _ in range(BUCKETS)]
        self.away = False


class MemoryHomes:
    """The homes of all buckets at this node. `alive`: false after the process was killed."""

    def __init__(self, node: InMemoryNode, topic: MemoryTopic, process: str) -> None:
        self.alive = True
        self.topic = topic
        self.reachable = True
        """Whether reports and answers arrive."""
        self.waiting: list[Commit] = []
        self.left = False
        self._node = node
        self._process = process
        times = Times()
        self.home = Home(
            process,
            process,
            self._log_of,
            settings=node.settings.groups,
            limits=node.settings.limits,
            times=times,
        )
        self.reporting = Reporting(process, times)
        self.links = LinkShell(
            self.reporting,
            node.service,
            process=process,
            boot_ms=node.clock,
            soon=node.loop.call_soon,
            send=self._send,
        )
        node.service.node.homed.decider = node.service.leases = self.links
        self._take_requests()
        self.home.assigned(1, range(BUCKETS), node.clock())
        self._perform()
        self._tick()

    def _take_requests(self) -> None:
        node = self._node.service.node
        self.asking = Asking(self._process, self)
        self.inquiring = Inquiring(self._process, self)
        self.requests = requests = KeptRequests(
            self._node.store.logs,
            self,
            node.homed.links,
            asking=self.asking,
            inquiring=self.inquiring,
            now_ms=self._node.clock,
            refreshed=self.refreshed,
        )
        node.types |= {names.GROUP_TYPE: requests.groups(), names.CURSOR_TYPE: requests.cursors()}
        node.subscriptions.elsewhere = HomedSubscriptions(
            self._node.store.logs, self, requests.changes, self.refreshed, self._node.service.effects.soon
        )

    # -- for requests: see `Here` and `Ways`

    def states(self, bucket: int) -> Mapping[str, bytes]:
        serving = self.home.serving(bucket)
        return self.topic.values[bucket] if serving is None else serving.states.values

    def serving(self, bucket: int) -> Serving | None:
        return self.home.serving(bucket)

    def deciding(self, bucket: int) -> Serving | None:
        return self.home.deciding(bucket)

    def current(self, bucket: int) -> Serving | None:
        return self.home.current(bucket, self._node.clock())

    def refreshed(self) -> Generator[Wait, None, None]:
        """The states are always those of the topic; an answer takes a moment nevertheless."""
        wait = Wait()
        self._node.loop.call_later(TICK_S / 2, lambda: wait.ended(None, 0))
        yield wait

    def record(self, bucket: int) -> HomeRecord | None:
        return self.reporting.record(bucket)

    def is_here(self, bucket: int) -> bool:
        return self.deciding(bucket) is not None

    def ask(self, address: str, asked: Asked) -> bool:
        return False

    def forget(self, address: str, number: int) -> None:
        """Nothing is sent."""

    def problem(self, address: str) -> str | None:
        return None

    def is_current(self, bucket: int) -> bool:
        return self.current(bucket) is not None

    def inquire(self, address: str, inquiry: Inquiry) -> bool:
        return False

    def forget_inquiry(self, address: str, number: int) -> None:
        """Nothing is sent."""

    def unreached(self, address: str) -> str | None:
        return None

    def _log_of(self, incarnation: str) -> StoredLog | None:
        return next((log for log in self._node.store.logs.values() if log.incarnation == incarnation), None)

    def _tick(self) -> None:
        if not self.alive:
            return
        self._node.loop.call_later(TICK_S, self._tick)
        if not self.topic.away:
            waiting, self.waiting = self.waiting, []
            for commit in waiting:
                self._commit(commit)
        self.home.tick(self._node.clock(), self._node.clock())
        self._perform()
        self.links.tick()
        self.requests.changes.tick()
        self.asking.tick(self._node.clock())
        self.inquiring.tick(self._node.clock())

    def _send(self, address: str, report: Report, _home: str) -> None:
        def arrive() -> None:
            if self.reachable:
                self.home.report(report, self._node.clock())
                self._perform()

        if address == self._process:
            self._node.loop.call_soon(arrive)

    def _commit(self, commit: Commit) -> None:
        values = self.topic.values[commit.bucket]
        for key, value in commit.changes.items():
            values.pop(key, None)
            if value is not None:
                values[key] = value
        self.home.ended(commit.bucket, commit.attempt, Outcome.COMMITTED, self._node.clock())
        if KEY in commit.changes:
            record = decoded(values[KEY])
            self.home.follow(commit.bucket, record)
            self.links.home(commit.bucket, record)

    def _perform(self) -> None:
        now_ms = self._node.clock()
        while effects := self.home.take_effects():
            for effect in effects:
                match effect:
                    case Fence(bucket, attempt):
                        self.home.fenced(bucket, attempt, now_ms)
                    case Load(bucket, attempt):
                        self.home.loaded(bucket, attempt, dict(self.topic.values[bucket]), now_ms)
                    case Commit() if self.topic.away:
                        self.waiting.append(effect)
                    case Commit():
                        self._commit(effect)
                    case Reply(_, answer):
                        if self.reachable:
                            self._node.loop.call_soon(lambda answer=answer: self.links.answer(answer))
                    case Leave():
                        self.left = True
                    case GivenBack():
                        pass


class WithHomes(InMemoryNode):
    """Gives a node homes. Each attach gets the time that reports need."""

    topic: MemoryTopic
    homes: MemoryHomes
    _advancing = True

    def join(self, topic: MemoryTopic | None = None) -> None:
        """Begin. `topic`: of a node before this one."""
        self.topic = topic or MemoryTopic()
        self.homes = MemoryHomes(self, self.topic, f"process-{id(self.topic)}-{self.clock()}")
        self.advance(GATHER_MS)
        self._advancing = False

    def run(self) -> None:
        """Also lets those reports travel that a change of the links causes."""
        super().run()
        if self._advancing:
            return
        self._advancing = True
        try:
            self.advance(3 * round(TICK_S * 1000))
        finally:
            self._advancing = False


class HomedNode(WithHomes):
    """With logs in memory."""

    def __init__(
        self, logs: dict[str, int] | None = None, *, topic: MemoryTopic | None = None, **given: Any
    ) -> None:
        super().__init__(logs, **given)
        self.join(topic)
