"""[io] The homes of a node on Kafka: those that are here, the links that ask them, and the way between nodes.

Owns the timer of all three.

Law: what fails here is logged and shown, and does not stop the node: links without a group, an epoch or a
cursor do not depend on it.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import structlog

from amqp_streams import names
from amqp_streams.errors import ConfigError, StorageError
from amqp_streams.homes.bucket import Reply
from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.changing.asking import Asking
from amqp_streams.homes.changing.subscriptions import HomedSubscriptions
from amqp_streams.homes.changing.sweeping import Sweeping
from amqp_streams.homes.describing.describing import description
from amqp_streams.homes.describing.inquiring import Inquiring
from amqp_streams.homes.home import Home
from amqp_streams.homes.kept import KeptRequests
from amqp_streams.homes.leases import Times
from amqp_streams.homes.messages import Answer, Asked, Description, Identity, Inquiry, Outcome, Report
from amqp_streams.homes.records import HomeRecord
from amqp_streams.homes.reporting import Reporting
from amqp_streams.kafka.brokers.administration import FoundTopic
from amqp_streams.kafka.sharing.state_topic import find_or_create
from amqp_streams.kafka.store import KafkaStore
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.server.homes.answering import Answering
from amqp_streams.server.homes.describing import Describing
from amqp_streams.server.homes.figures import change_figures, description_figures, home_figures
from amqp_streams.server.homes.home_shell import TICK_S, HomeShell
from amqp_streams.server.homes.link_shell import LinkShell
from amqp_streams.server.homes.peering import Peers
from amqp_streams.server.service import EventService
from amqp_streams.storage.ports import Store, StoredLog
from amqp_streams.storage.questions import Figure

QUIET_S: Final = 1.0
"""How long a node that stops waits for homes to confirm the ends of its links."""
LEFT_S: Final = 4.0
"""How long it waits until its homes have left their buckets. They need less than 1 s if Kafka answers."""
CLOSE_S: Final = 2.0
"""How long the threads may take to end after that."""

log = structlog.get_logger("amqp_streams")


def boot_ms() -> int:
    """CLOCK_BOOTTIME in ms: it also counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


async def join_homes(service: EventService, store: Store, settings: PeeringSettings) -> "Homes":
    """Find or create the state topic, listen for other nodes, and begin.

    Raises:
        ConfigError: the state topic cannot be used, or the address cannot be bound.
    """
    assert isinstance(store, KafkaStore), "homes keep their states in Kafka"
    options = store.options
    find = partial(
        find_or_create, store.administration, options.names.state, BUCKETS, replicas=options.replicas,
        weak=options.weak,
    )  # fmt: skip
    try:
        found = await asyncio.to_thread(find)
    except StorageError as error:
        message = f"groups and cursors on Kafka: {error}"
        raise ConfigError(message) from error
    homes = Homes(service, store, found, settings)
    await homes.open()
    return homes


class Homes:
    """The homes of one node, from `open` to `stop` and `close`."""

    def __init__(
        self, service: EventService, store: KafkaStore, found: FoundTopic, settings: PeeringSettings
    ) -> None:
        self.process: Final = uuid.uuid4().hex
        """The id of this process."""
        self._service: Final = service
        self._store: Final = store
        self._found: Final = found
        self._loop: Final = asyncio.get_running_loop()
        self._left: Final = asyncio.Event()
        self._stopping = False
        self._quiet: Final = asyncio.Event()
        """This node stops, and homes have confirmed the ends of its links."""
        self._failure: tuple[str, ...] = ()
        self._told: tuple[str, ...] = ()
        cluster = store.administration.cluster or ""
        ways = _Ways(self)
        self._asking: Final = Asking(self.process, ways)
        self._inquiring: Final = Inquiring(self.process, ways)
        self.peers: Final = Peers(
            Identity(self.process, cluster, store.options.names.prefix),
            settings,
            on_report=self._report,
            on_answer=self._answer,
            on_asked=self._asked,
            questions=self._asking,
            on_inquiry=self._inquired,
            inquiries=self._inquiring,
        )
        self._times: Final = Times()
        self.reporting: Final = Reporting(self.process, self._times)
        self._links: Final = LinkShell(
            self.reporting,
            service,
            process=self.process,
            boot_ms=boot_ms,
            soon=self._loop.call_soon,
            send=self.peers.send_report,
        )
        self._shell: HomeShell
        self._requests: KeptRequests
        self._answering: Answering
        self._describer: Describing
        self._sweeping: Sweeping
        self._describing: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Listen, and join the group of the nodes.

        Raises:
            ConfigError: a file cannot be used, or the address cannot be bound.
        """
        await self.peers.open()
        service, store, settings = self._service, self._store, self._service.settings
        home = Home(
            self.process,
            self.peers.address,
            self._log_of,
            settings=settings.groups,
            limits=settings.limits,
            times=self._times,
        )
        self._shell = HomeShell(
            home,
            store.options,
            store.administration,
            self._found,
            loop_call=self._call,
            boot_ms=boot_ms,
            wall_ms=service.now_ms,
            on_reply=self._reply,
            on_home=self._links.home,
            on_left=self._left.set,
        )
        service.node.homed.decider = service.leases = self._links
        self._requests = requests = KeptRequests(
            store.logs,
            self._shell,
            service.node.homed.links,
            asking=self._asking,
            inquiring=self._inquiring,
            now_ms=boot_ms,
            refreshed=self._shell.refreshed,
        )
        service.node.subscriptions.elsewhere = HomedSubscriptions(
            store.logs, self._shell, requests.changes, self._shell.refreshed, service.effects.soon
        )
        self._sweeping = Sweeping(self._shell, self._log_of, self._times)
        self._answering = Answering(requests.changes.carry_out, service.turns)
        self._describer = Describing(
            lambda inquiry: description(self._shell, self._log_of, inquiry), service.turns
        )
        service.node.homed.figures = requests.figures
        service.node.types |= {
            names.GROUP_TYPE: requests.groups(),
            names.CURSOR_TYPE: requests.cursors(),
        }
        service.home_figures = self._figures
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    def _figures(self) -> Iterator[Figure]:
        yield from home_figures(self._shell.home, self._times, boot_ms())
        yield from self.peers.figures()
        yield from change_figures(self._asking, self._answering, self._sweeping)
        yield from description_figures(self._inquiring, self._describer)

    def decides(self, bucket: int) -> bool:
        """Whether the home of a bucket is here, and decides now."""
        return self._shell.deciding(bucket) is not None

    def current(self, bucket: int) -> bool:
        """Whether the home of a bucket is here, and knows who owns what."""
        return self._shell.current(bucket) is not None

    @property
    def address(self) -> str:
        """Where other nodes reach this node."""
        return self.peers.address

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps links in groups, with epochs or with cursors from being served, in words."""
        return (*self._failure, *self._shell.problems, *self.peers.problems)

    def reload(self) -> bool:
        """See `Peers.reload`."""
        return self.peers.reload()

    async def stop(self) -> None:
        """The links of this node have ended: write their last positions, leave all buckets and the group."""
        self._stopping = True
        self.peers.stop()
        self._links.stop()
        # First the homes take the last positions. Without an answer, they take the links for lost later.
        await _wait(self._quiet, QUIET_S)
        self._shell.stop()
        await _wait(self._left, LEFT_S)
        await self.peers.close()

    def close(self) -> None:
        """End the threads, when nothing else is served."""
        if self._ticker is not None:
            self._ticker.cancel()
        if not self._shell.close(CLOSE_S):
            reason = "Kafka did not answer in time: the next homes wait for the lease"
            log.warning("homes_not_left", reason=reason)

    def _report(self, report: Report) -> None:
        self._shell.report(report)

    def _answer(self, answer: Answer) -> None:
        self._links.answer(answer)

    def _asked(self, process: str, asked: Asked, answer: Callable[[Outcome], None]) -> None:
        self._answering.begin(process, asked, answer)

    def _inquired(self, process: str, inquiry: Inquiry, answer: Callable[[Description], None]) -> None:
        self._describer.begin(process, inquiry, answer)

    def _reply(self, reply: Reply) -> None:
        self.peers.send_answer(reply.node, reply.answer)

    def _tick(self) -> None:
        # First, so that a failure cannot end the regular work.
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        try:
            for step in (self._shell.tick, self._links.tick, self.peers.tick, self._requests.changes.tick):
                step()
            self._asking.tick(boot_ms())
            self._inquiring.tick(boot_ms())
            if self._sweeping.tick(boot_ms()) and not self._stopping:
                self._describing = self._loop.create_task(self._describe())
        except Exception as error:
            if not self._failure:
                log.exception("homes_failed")
            self._failure = (f"{type(error).__name__}: {error}"[:200],)
        else:
            self._failure = ()
        if self._stopping and not self._links.busy:
            self._quiet.set()
        self._tell()

    async def _describe(self) -> None:
        """Let the sweeping know which topics exist. It is away for as long as Kafka is."""
        ids: set[str] | None = None
        try:
            ids = await asyncio.to_thread(self._store.administration.ids)
        except StorageError as error:
            log.info("topics_not_described", reason=str(error))
        finally:
            # Whatever failed, the next round asks again.
            self._sweeping.described(ids, boot_ms())

    def _tell(self) -> None:
        """Log problems when they begin, and when none is left."""
        about = self._service.about
        about.home_buckets = sum(map(self.decides, range(BUCKETS))), BUCKETS
        about.homes = problems = self.problems
        if problems and problems != self._told:
            log.warning("homes_hindered", reason="; ".join(problems))
        elif self._told and not problems:
            log.info("homes_continue")
        self._told = problems

    def _log_of(self, incarnation: str) -> StoredLog | None:
        logs = self._store.logs.values()
        return next((each for each in logs if each.incarnation == incarnation), None)

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        # A loop that is closed needs no results any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)


class _Ways:
    """How questions and inquiries reach other homes: see `Ways` of `asking` and of `inquiring`."""

    def __init__(self, homes: Homes) -> None:
        self._homes: Final = homes

    def record(self, bucket: int) -> HomeRecord | None:
        return self._homes.reporting.record(bucket)

    def is_here(self, bucket: int) -> bool:
        return self._homes.decides(bucket)

    def ask(self, address: str, asked: Asked) -> bool:
        return self._homes.peers.ask(address, asked)

    def forget(self, address: str, number: int) -> None:
        self._homes.peers.forget(address, number)

    def problem(self, address: str) -> str | None:
        return self._homes.peers.problem(address)

    def is_current(self, bucket: int) -> bool:
        return self._homes.current(bucket)

    def inquire(self, address: str, inquiry: Inquiry) -> bool:
        return self._homes.peers.inquire(address, inquiry)

    def forget_inquiry(self, address: str, number: int) -> None:
        self._homes.peers.forget_inquiry(address, number)

    def unreached(self, address: str) -> str | None:
        return self._homes.peers.unreached(address)


async def _wait(event: asyncio.Event, within_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), within_s)
