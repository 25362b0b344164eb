"""The seams between the rooms of the gateway: what the controller tells the data plane, and what the shells offer.

The controller turns resources into routes; ingress and dispatcher know routes only. All values are immutable snapshots.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol


class BackoffPolicy(StrEnum):
    """How waits grow."""

    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Delivery:
    """How an event is pushed, resolved: durations in milliseconds, `dead_letter_url` an absolute URL or None.

    `structured`: in structured content mode instead of binary.
    """

    retry: int = 0
    backoff_policy: BackoffPolicy = BackoffPolicy.EXPONENTIAL
    backoff_delay_ms: int = 0
    backoff_max_ms: int | None = None
    timeout_ms: int | None = None
    retry_after_max_ms: int | None = None
    dead_letter_url: str | None = None
    structured: bool = False


class Order(StrEnum):
    """Which deliveries wait for each other."""

    UNORDERED = "unordered"
    BY_KEY = "key"
    ORDERED = "ordered"


class Start(StrEnum):
    """Where a new subscriber begins."""

    NEW = "new"
    EARLIEST = "earliest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One Trigger or Subscription, resolved: everything that delivery needs. `uid` is its identity: a recreated one is another.

    `filters`: the Trigger's dialect objects as they were validated, ANDed; empty: every event. `subscriber_url` None: reply-only.
    `reply_log`: replies are appended there (Triggers); `reply_url`: are POSTed there (Subscriptions). `brokers`: what the addresses of this
    gateway's Brokers begin with.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    generation: int
    filters: Sequence[Mapping[str, object]]
    subscriber_url: str | None
    reply_log: str | None
    reply_url: str | None
    delivery: Delivery
    order: Order = Order.UNORDERED
    paused: bool = False
    start: Start = Start.NEW
    start_at: str | None = None
    in_flight_max: int | None = None
    per_second_max: float | None = None
    brokers: str = ""

    def departs(self, url: str) -> bool:
        """Whether an event that goes to this URL leaves the Brokers, and what they count stays inside.

        From one Broker of this gateway to another, or back to the same, it goes with its count: so no ring of them turns forever.
        """
        return self.reply_log is not None and not (self.brokers and url.startswith(self.brokers))


@dataclass(frozen=True, slots=True)
class Route:
    """One Broker or Channel: its log, and who gets its events. `path` is where its events are POSTed.

    `duplicates_ms`: an event whose source and id were accepted within so many milliseconds is accepted and not stored again; None: stored.
    """

    uid: str
    kind: str
    namespace: str
    name: str
    path: str
    log: str
    subscribers: Sequence[Subscriber] = field(default=())
    duplicates_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Routes:
    """All that the data plane serves. `version` rises with every change."""

    version: int
    by_path: Mapping[str, Route]


class Authorizer(Protocol):
    """Who may send events where."""

    async def may_send(self, authorization: str | None, route: Route) -> None:
        """Let pass; `authorization` is the header's value.

        Raises:
            UnauthenticatedError: nobody, or somebody whose word does not count.
            ForbiddenError: somebody who may not.
        """


class DataPlane(Protocol):
    """Who serves routes: ingress and dispatcher."""

    on_change: Callable[[str], None]
    """Called with a path when `served` or `failing` of it are others than before."""

    def use(self, routes: Routes) -> None:
        """Serve these from now on, and nothing else; returns at once."""

    def served(self, path: str) -> Route | None:
        """The route as it is served: every subscriber of it has its place and gets all events accepted later, but those in `failing`."""

    def failing(self, path: str) -> Mapping[str, str]:
        """Subscribers of that path that could not be set up yet, by uid, and why; they are tried again."""


# -- what the store offers (SQLite or PostgreSQL behind it)


@dataclass(frozen=True, slots=True)
class Key:
    """Names one object. `group` is empty for the core; `namespace` for what has none."""

    group: str
    kind: str
    namespace: str
    name: str


Document = Mapping[str, object]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the watch feed: `type` is ADDED, MODIFIED or DELETED; `object` as it is, or last was, at `version`.

    `previous`: the object before; None for ADDED.
    """

    type: str
    version: int
    key: Key
    object: Mapping[str, object]
    previous: Document | None = None


class ResourceStore(Protocol):
    """Kubernetes objects, each a JSON document with a version that rises with every write to the store."""

    async def get(self, key: Key) -> Mapping[str, object] | None:
        """The object; None if there is none."""

    async def list(self, group: str, kind: str, namespace: str | None = None) -> tuple[int, Sequence[Mapping[str, object]]]:
        """The objects of a kind by namespace and name, and the version that the list is of."""

    async def write(self, key: Key, object_: Mapping[str, object] | None, *, expected_version: int | None) -> Mapping[str, object] | None:
        """Put or (None) delete; returns it with its new `metadata.resourceVersion`. `expected_version` 0: must not exist; None: whatever.

        Raises:
            ConflictError: it is not what was expected.
        """

    async def update(self, objects: Mapping[Key, tuple[Mapping[str, object], int]]) -> Mapping[Key, Mapping[str, object]]:
        """Put several at once, those that are of the version given (0: must not exist); what was stored of them."""

    async def remove(self, keys: Mapping[Key, int | None]) -> Sequence[Mapping[str, object]]:
        """Delete several at once, those that are of the version given (None: whatever); what was deleted."""

    def watch(self, group: str, kind: str, after: int) -> AsyncIterator[Change]:
        """Changes of a kind after a version, as they happen, in order; of every kind when `kind` is empty. Raises GoneError."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One entry of a subscriber's delivery history. `at_ms`: since 1970 UTC; `body` is cut.

    `end`: empty for an attempt that others may follow; else what became of the event: "dead-lettered", "dropped", or "skipped" for what is
    in the log and no CloudEvent. Two are about no single event: "removed" (retention removed events before they were delivered) and
    "log made again".
    """

    at_ms: int
    event_id: str
    event_source: str
    partition: int
    offset: str
    attempt: int
    code: int | None
    reason: str
    body: str
    end: str = ""


Range = tuple[str, str]
"""Events after the first offset, up to and with the second one."""


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """What is stored of where one subscriber is.

    `positions`: of each partition the offset of the last event up to which all are completed. `incarnation`: of the log
    that the positions are of; empty: the node did not report it; None: nothing is stored. `replays`: positions of
    partitions that are to be replayed; the owner of each partition does so.
    """

    positions: Mapping[int, str] = field(default_factory=dict)
    incarnation: str | None = None
    replays: Mapping[int, str] = field(default_factory=dict)


class CursorStore(Protocol):
    """Stores the cursors of subscribers, replays that were asked for, and the history of failed deliveries.

    Everything is durable when a method returns. Positions go forward only, except by `reset`, `restart` and `replay`.
    """

    async def load(self, uids: Collection[str]) -> Mapping[str, StoredCursor]:
        """The cursors of these subscribers; none for a subscriber that never had one."""

    async def done(self, uids: Collection[str]) -> Mapping[tuple[str, int], Sequence[Range]]:
        """What these subscribers have completed above their positions, by subscriber and partition."""

    async def begin(self, cursors: Mapping[str, StoredCursor]) -> Mapping[str, StoredCursor]:
        """Store positions and incarnations where a subscriber has none yet; returns what is stored then.

        Replicas that begin at the same time get the same positions. `replays` of the arguments are ignored.
        """

    async def save(
        self,
        positions: Mapping[tuple[str, int], str],
        done: Mapping[tuple[str, int], Sequence[Range]] | None = None,
    ) -> None:
        """Move these positions forward; key: (uid, partition).

        `done`: what is completed above a position; replaces what was stored of it.
        """

    async def reset(self, uid: str, positions: Mapping[int, str]) -> None:
        """Set positions, forward or back; other partitions stay as they are.

        What was completed above them is forgotten.
        """

    async def restart(self, uid: str, positions: Mapping[int, str], incarnation: str) -> None:
        """As `reset`, in a recreated log: replays of the former log are forgotten, too."""

    async def ask_replay(self, uid: str, to: Mapping[int, str]) -> None:
        """Ask the owners of these partitions to replay them from these positions; replaces earlier requests."""

    async def replay(self, uid: str, positions: Mapping[int, str]) -> None:
        """As `reset`, and the replays of these partitions are done."""

    async def replays(self) -> Mapping[str, Mapping[int, str]]:
        """All replays that were asked for and are not done, by subscriber and partition."""

    async def forget(self, uid: str) -> None:
        """Remove everything about a subscriber."""

    async def record(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        """Add to the histories of these subscribers, all or nothing; the latest 100 of each subscriber are stored."""

    async def history(self, uid: str) -> Sequence[Failure]:
        """The failures of a subscriber, the latest first."""


# -- what the engine offers (through its client)


class Stored(NamedTuple):
    """One event read from a log: `message` is the AMQP message less the delivery's annotations. `message_format`: AMQP 2.7.5."""

    partition: int
    offset: str
    timestamp_ms: int
    message: bytes
    message_format: int = 0


class Extents(NamedTuple):
    """A log at one moment. `first` and `last`: offsets of each partition's events, None where it has none.

    `incarnation`: another one for each log that was ever made, also under the same name; empty: it is not known.
    """

    incarnation: str
    first: Mapping[int, str | None]
    last: Mapping[int, str | None]


class EventLog(Protocol):
    """The logs of the engine."""

    async def ensure(self, log: str, *, partitions: int, retention_ms: int | None) -> int:
        """Make the log if it is not there; the number of its partitions."""

    async def delete(self, log: str) -> None:
        """Delete a log and its events; nothing if there is none."""

    async def append(self, log: str, message: bytes) -> None:
        """Store one message; durable when it returns. The message carries its own group key.

        Raises:
            OverloadedError: the log pushes back; try later.
            UnavailableError: it is away; nothing is known of this message.
        """

    async def ends(self, log: str) -> Mapping[int, str | None]:
        """The offset of the last event of each partition now; None where there is none."""

    async def extents(self, log: str) -> Extents:
        """What the log holds now."""

    async def before(self, log: str, at_ms: int) -> Mapping[int, str | None]:
        """Of each partition the position to read from for all events stored after that time (since 1970 UTC), as `read` takes it."""

    def read(self, log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
        """Events of these partitions after these offsets (None: from the earliest), in batches, forever; order kept within a partition."""
