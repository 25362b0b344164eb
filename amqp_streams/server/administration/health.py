"""The request about the node as a whole: its figures, warnings, settings and recent changes.

Laws: it needs the right `manage` on all logs; every user may ask whether it has this right. It says whether
the node is ready by the same rule as `/readyz`. It is computed in steps, whatever the number of connections,
partitions and open files.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from amqp_streams import __version__, names
from amqp_streams.config import NodeSettings
from amqp_streams.node.requests import Operations
from amqp_streams.policy import Right
from amqp_streams.server.administration.warnings import Facts, Few, skew_of, warnings
from amqp_streams.server.limits.quotas import Quotas
from amqp_streams.server.links.consumer import ConsumerLink
from amqp_streams.server.links.link import AnyLink
from amqp_streams.server.links.producer import ProducerLink
from amqp_streams.server.links.turns import Turns
from amqp_streams.server.observing.latency import Latencies
from amqp_streams.server.regular import Regular
from amqp_streams.storage.ports import Store, StoredLog, StoreFacts, Use
from amqp_streams.streams import info, management
from amqp_streams.streams.access import ANY_LOG
from amqp_streams.streams.management import Answer, Request, RequestError
from amqp_streams.streams.steps import Steps
from amqp_streams.wire.types import Value
from service_parts.health import machine
from service_parts.health.changes import Change, Changes
from service_parts.health.warned import Warned
from service_parts.networks import is_this_machine
from service_parts.settings.in_force import SettingsInForce
from service_parts.settings.showing import InForce

ROWS_A_STEP: Final = 50
"""How many settings or changes a step encodes."""
PARTITIONS_A_STEP: Final = 256
"""Of how many partitions a step reads the figures."""
LINKS_A_STEP: Final = 1000
ACCOUNTS_A_STEP: Final = 500
PARTS: Final = (
    *(names.NODE_RIGHTS, names.NODE_FIGURES, names.NODE_WARNINGS),
    *(names.NODE_SETTINGS, names.NODE_CHANGES),
)


@dataclass(slots=True)
class About:
    """What the parts around the service tell about the node.

    `reload_failed`, `restart_needed`: of the last reload. `certificate_expires_ms`: since 1970, and of the
    certificate for other nodes `node_certificate_expires_ms`. `homes`: what keeps links in groups waiting.
    `home_buckets`: for how many buckets of groups and cursors this node decides, and how many exist.
    """

    started_ms: int
    settings: SettingsInForce
    data_dir: Path | None = None
    certificate_expires_ms: int | None = None
    node_certificate_expires_ms: int | None = None
    homes: Sequence[str] = ()
    home_buckets: tuple[int, int] | None = None
    reload_failed: Sequence[str] = ()
    restart_needed: Sequence[str] = ()


class Linked(Protocol):
    """A connection whose links are counted."""

    def find_links(self, wanted: Callable[[AnyLink], bool]) -> list[AnyLink]:
        """Return the links for which `wanted` is true."""


class Audited(Protocol):
    """Keeps what was changed."""

    @property
    def changes(self) -> Changes:
        """What was changed."""


class Service(Protocol):
    """What the request needs of the server."""

    store: Store
    settings: NodeSettings
    turns: Turns
    regular: Regular
    quotas: Quotas
    latencies: Latencies
    about: About

    @property
    def audit(self) -> Audited:
        """Keeps what was changed."""

    @property
    def connections(self) -> Collection[Linked]:
        """The open connections."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""

    def monotonic_ms(self) -> int:
        """Milliseconds of a monotonic clock."""

    def not_ready(self) -> str | None:
        """Why the node does not serve normally; None if it does."""

    def uses(self) -> dict[str, Use]:
        """How much of each limit is in use."""


@dataclass(slots=True)
class _Counted:
    """What was counted in steps."""

    producers: int = 0
    consumers: int = 0
    partitions: int = 0
    descriptors: int | None = None
    stopped: Few[tuple[str, int, str]] = field(default_factory=Few)
    skewed: Few[tuple[str, float]] = field(default_factory=Few)
    throttled: Few[tuple[str, str]] = field(default_factory=Few)
    throttled_links: int = 0


class HealthRequests:
    """Operations on the node."""

    def __init__(self, service: Service) -> None:
        self._service: Final = service

    def operations(self) -> Operations:
        """The operations by name."""
        return {"READ": self.read}

    def read(self, request: Request) -> Answer | Steps[Answer]:
        """The node, or the parts of its description that the request names."""
        administers, parts = request.permissions.administers, _parts(request)
        # Every user may learn its own rights. To find them out by a refusal would look like an attack.
        if parts == {names.NODE_RIGHTS}:
            return Answer(management.OK, "OK", {names.NODE_ADMINISTERS: administers, **_on_log(request)})
        if not administers:
            raise request.permissions.refusal(Right.MANAGE, ANY_LOG)
        return self._described(parts)

    def _described(self, parts: Collection[str]) -> Steps[Answer]:
        body: dict[Value, Value] = {names.NODE_ADMINISTERS: True} if names.NODE_RIGHTS in parts else {}
        if names.NODE_FIGURES in parts or names.NODE_WARNINGS in parts:
            counted = yield from self._counted()
            facts, disk = self._service.store.facts(), machine.disk(self._service.about.data_dir)
            if names.NODE_FIGURES in parts:
                body |= self._figures(counted, facts, disk)
                yield
            if names.NODE_WARNINGS in parts:
                found = warnings(self._facts(counted, facts, disk))
                body[names.NODE_WARNINGS] = [_warning(each) for each in found]
        if names.NODE_SETTINGS in parts:
            rows = self._service.about.settings.rows
            body[names.NODE_SETTINGS] = yield from _encoded(map(_setting, rows))
        if names.NODE_CHANGES in parts:
            latest = self._service.audit.changes.latest()
            body[names.NODE_CHANGES] = yield from _encoded(map(_change, latest))
        return Answer(management.OK, "OK", body)

    def _counted(self) -> Steps[_Counted]:
        counted = _Counted()
        since = 0
        for connection in tuple(self._service.connections):
            links = connection.find_links(lambda _link: True)
            counted.producers += sum(isinstance(link, ProducerLink) for link in links)
            counted.consumers += sum(isinstance(link, ConsumerLink) for link in links)
            since += len(links) + 1
            if since >= LINKS_A_STEP:
                since = 0
                yield
        yield
        yield from _look_at_logs(tuple(self._service.store.logs.values()), counted)
        yield
        for number, account in enumerate(self._service.quotas.accounts(), 1):
            for quota, waiting in account.waiting():
                counted.throttled.add((account.name, quota))
                counted.throttled_links += waiting
            if number % ACCOUNTS_A_STEP == 0:
                yield
        counted.descriptors = yield from machine.open_files()
        return counted

    def _figures(self, counted: _Counted, facts: StoreFacts, disk: machine.Disk | None) -> dict[Value, Value]:
        service, about = self._service, self._service.about
        latency = service.latencies.recent(service.monotonic_ms())
        not_ready = service.not_ready()
        return {
            names.NODE_VERSION: __version__,
            names.NODE_CONTAINER: service.settings.container_id,
            names.NODE_STORE: str(service.settings.store),
            names.NODE_DATA_DIR: None if about.data_dir is None else str(about.data_dir),
            names.INFO_SYNC: str(service.settings.sync),
            names.NODE_STARTED: about.started_ms,
            names.NODE_NOW: service.now_ms(),
            names.NODE_READY: not_ready is None,
            names.NODE_NOT_READY: not_ready,
            names.NODE_DISK_FREE: None if disk is None else disk.free_bytes,
            names.NODE_DISK_SIZE: None if disk is None else disk.size_bytes,
            names.NODE_DISK_RESERVE: facts.reserve_bytes or None,
            names.NODE_MEMORY: machine.memory_bytes(),
            names.NODE_DESCRIPTORS: _use(counted.descriptors, machine.open_files_max()),
            names.NODE_COMMITS: 0 if latency is None else latency.commits,
            names.NODE_COMMIT_P50: None if latency is None else latency.p50_s,
            names.NODE_COMMIT_P99: None if latency is None else latency.p99_s,
            names.NODE_COMMIT_MOST: None if latency is None else latency.max_s,
            names.NODE_REQUEST_SECONDS: service.turns.seconds,
            names.NODE_LOGS: len(service.store.logs),
            names.NODE_HOME_BUCKETS: None if about.home_buckets is None else _use(*about.home_buckets),
            names.CONNECTION_PRODUCERS: counted.producers,
            names.CONNECTION_CONSUMERS: counted.consumers,
            names.NODE_LIMITS: {name: _use(*use) for name, use in service.uses().items()},
        }

    def _facts(self, counted: _Counted, facts: StoreFacts, disk: machine.Disk | None) -> Facts:
        service, about = self._service, self._service.about
        settings = service.settings
        listeners = (*settings.listen, *filter(None, [settings.admin_listen]))
        return Facts(
            service.now_ms(),
            not_ready=service.not_ready(),
            disk_free=None if disk is None else disk.free_bytes,
            disk_size=None if disk is None else disk.size_bytes,
            disk_reserve=facts.reserve_bytes,
            descriptors=counted.descriptors,
            descriptors_max=machine.open_files_max(),
            connections_wanted=settings.limits.connections,
            uses=service.uses(),
            stopped=counted.stopped,
            skewed=counted.skewed,
            ahead_ms=facts.ahead_ms,
            clock_ahead_ms=service.regular.clock_ahead_ms,
            throttled=counted.throttled,
            throttled_links=counted.throttled_links,
            homes=about.homes,
            producers=facts.problems,
            certificate_expires_ms=about.certificate_expires_ms,
            node_certificate_expires_ms=about.node_certificate_expires_ms,
            reload_failed=about.reload_failed,
            restart_needed=about.restart_needed,
            is_open=not settings.access and not all(is_this_machine(each.host) for each in listeners),
        )


def _look_at_logs(logs: Iterable[StoredLog], counted: _Counted) -> Steps[None]:
    since = 0
    for log in logs:
        found = []
        for partition in log.partitions:
            facts = partition.facts()
            found.append(facts)
            if facts.failure is not None:
                counted.stopped.add((log.name, partition.index, facts.failure))
            since += 1
            if since >= PARTITIONS_A_STEP:
                since = 0
                yield
        counted.partitions += len(found)
        skew = skew_of(found)
        if skew is not None:
            counted.skewed.add((log.name, skew), weight=skew)  # the most uneven log comes first


def _on_log(request: Request) -> dict[Value, Value]:
    """The rights on the log that the request names, which need not exist."""
    if not request.log:
        return {}
    held: list[Value] = [str(each) for each in Right if request.permissions.allows(each, request.log)]
    return {names.NODE_LOG_RIGHTS: held}


def _parts(request: Request) -> Collection[str]:
    """The parts that a request names; all of them if it names none."""
    named = request.body.get(names.NODE_PARTS)
    if named is None:
        return frozenset(PARTS)
    if not isinstance(named, list) or not named or not all(each in PARTS for each in named):
        description = f"{names.NODE_PARTS!r} must be a list of some of {', '.join(PARTS)}"
        raise RequestError(management.BAD_REQUEST, description)
    return frozenset(map(str, named))


def _encoded(rows: Iterable[dict[Value, Value]]) -> Steps[list[Value]]:
    """A list whose entries are encoded in steps."""
    found: list[Value] = []
    for row in rows:
        found.append(info.encoded(row))
        if len(found) % ROWS_A_STEP == 0:
            yield
    return found


def _use(used: int | None, limit: int | None) -> dict[Value, Value]:
    return {names.NODE_USED: used, names.NODE_LIMIT: limit}


def _warning(found: Warned) -> dict[Value, Value]:
    return {
        names.WARNING_CODE: found.code,
        names.WARNING_TEXT: found.text,
        names.WARNING_REMEDY: found.remedy,
        names.WARNING_ERROR: found.is_error,
    }


def _setting(row: InForce) -> dict[Value, Value]:
    value = row.value if isinstance(row.value, bool | int | float) or row.value is None else str(row.value)
    return {names.NAME: row.name, names.SETTING_VALUE: value, names.SETTING_SOURCE: row.source}


def _change(change: Change) -> dict[Value, Value]:
    details: Mapping[str, str] = change.details
    return {
        names.CHANGE_AT: change.at_ms,
        names.CURSOR_USER: change.user,
        names.CHANGE_WHAT: change.what,
        names.TYPE: change.type,
        names.NAME: change.name,
        names.CHANGE_DETAILS: dict(details.items()),
    }
