"""The interfaces between the packages of the gateway: routes from the controller, and what store and engine
offer.

The controller turns resources into routes; ingress and dispatcher know routes only. All values are immutable
snapshots.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol


class BackoffPolicy(StrEnum):
    """How waits increase from retry to retry."""

    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery options of a subscriber, resolved.

    Durations are milliseconds. `dead_letter_url`: an absolute URL; None: no dead letter sink. `structured`:
    use structured content mode instead of binary.
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
    """Which deliveries of a partition wait for each other."""

    UNORDERED = "unordered"
    BY_KEY = "key"
    ORDERED = "ordered"


class Start(StrEnum):
    """Where a new subscriber starts."""

    NEW = "new"
    EARLIEST = "earliest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Subscriber:
    """One Trigger or Subscription, resolved: everything that its deliveries need.

    `uid` is its identity: a recreated one is another subscriber. `filters`: the Trigger's validated dialect
    objects, all of which must match; empty: every event. `subscriber_url` None: events go to the reply URL
    only. `reply_log`: replies are appended there (Triggers). `reply_url`: replies are POSTed there
    (Subscriptions). `brokers`: the prefix of the addresses of this gateway's Brokers.
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
        """Whether an event that is sent to this URL leaves the Brokers, so that it is sent without
        `knativebrokerttl`.

        Between Brokers of this gateway it keeps the attribute, so that a ring of Brokers ends.
        """
        return self.reply_log is not None and not (self.brokers and url.startswith(self.brokers))


@dataclass(frozen=True, slots=True)
class Route:
    """One Broker or Channel: its log and its subscribers. `path`: of the URL to which senders POST events.

    `duplicates_ms`: an event with the source and id of one that was accepted within so many milliseconds is
    accepted, but not stored again; None: every event is stored.
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
    """Everything that the data plane serves. `version` increases with every change."""

    version: int
    by_path: Mapping[str, Route]


class Authorizer(Protocol):
    """Decides which clients may send events to which routes."""

    async def may_send(self, authorization: str | None, route: Route) -> None:
        """Return if the client may send. `authorization`: the value of the header.

        Raises:
            UnauthenticatedError: the client sent no credentials, or they are not valid.
            ForbiddenError: the client may not send to this route.
        """


class DataPlane(Protocol):
    """Ingress and dispatcher, which serve routes."""

    on_change: Callable[[str], None]
    """Called with a path whenever its `served` or `failing` changed."""

    def use(self, routes: Routes) -> None:
        """Serve these from now on, and nothing else; returns at once."""

    def served(self, path: str) -> Route | None:
        """The route as it is served: each of its subscribers has a stored cursor and gets all events that are
        accepted later, except those in `failing`.
        """

    def failing(self, path: str) -> Mapping[str, str]:
        """Why subscribers of that path are not served yet, by uid; they are retried."""


# -- what the store offers (SQLite or PostgreSQL behind it)


@dataclass(frozen=True, slots=True)
class Key:
    """Names one object. `group` is empty for the core group, `namespace` for objects without one."""

    group: str
    kind: str
    namespace: str
    name: str


Document = Mapping[str, object]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change in the watch feed: `type` is ADDED, MODIFIED or DELETED.

    `object`: the object at `version`, or as it was before it was deleted. `previous`: the object before; None
    for ADDED.
    """

    type: str
    version: int
    key: Key
    object: Mapping[str, object]
    previous: Document | None = None


class ResourceStore(Protocol):
    """Kubernetes objects: JSON documents, each with the version of the store at its last write."""

    async def get(self, key: Key) -> Mapping[str, object] | None:
        """The object; None: it does not exist."""

    async def list(
        self,
        group: str,
        kind: str,
        namespace: str | None = None,
    ) -> tuple[int, Sequence[Mapping[str, object]]]:
        """The version of the list, and the objects of a kind, sorted by namespace and name."""

    async def write(
        self,
        key: Key,
        object_: Mapping[str, object] | None,
        *,
        expected_version: int | None,
    ) -> Mapping[str, object] | None:
        """Store an object, or delete it (None); returns it with its new `metadata.resourceVersion`.

        `expected_version` 0: the object must not exist; None: any version.

        Raises:
            ConflictError: the object has another version.
        """

    async def update(
        self,
        objects: Mapping[Key, tuple[Mapping[str, object], int]],
    ) -> Mapping[Key, Mapping[str, object]]:
        """Store several objects that have the given versions (0: must not exist); returns those that were
        stored.
        """

    async def remove(self, keys: Mapping[Key, int | None]) -> Sequence[Mapping[str, object]]:
        """Delete several objects that have the given versions (None: any version); returns those that were
        deleted.
        """

    def watch(self, group: str, kind: str, after: int) -> AsyncIterator[Change]:
        """Changes of a kind after a version, in order. An empty `kind`: of all kinds. Raises GoneError."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One record of a subscriber's delivery history. `at_ms`: since 1970 UTC. `body`: the beginning of the
    answer's body.

    `end`: empty for an attempt that others may follow; else how the delivery ended: "dead-lettered",
    "dropped", or "skipped" (the stored message is not a CloudEvent, or it could not be filtered). Two are not
    about a single event: "removed" (retention removed events before they were delivered) and "log made
    again".
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
"""The events after the first offset, up to and with the second."""


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """What is stored of where one subscriber is.

    `positions`: of each partition the offset of the last event up to which all are completed. `incarnation`:
    of the log that the positions are of; empty: the node did not report it; None: nothing is stored.
    `replays`: positions of partitions that are to be replayed; the owner of each partition does so.
    """

    positions: Mapping[int, str] = field(default_factory=dict)
    incarnation: str | None = None
    replays: Mapping[int, str] = field(default_factory=dict)


class CursorStore(Protocol):
    """Stores the cursors of subscribers, replays that were asked for, and the history of failed deliveries.

    Everything is durable when a method returns. Positions go forward only, except by `reset`, `restart` and
    `replay`.
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
        """Ask the owners of these partitions to replay them from these positions; replaces
        earlier requests.
        """

    async def replay(self, uid: str, positions: Mapping[int, str]) -> None:
        """As `reset`, and the replays of these partitions are done."""

    async def replays(self) -> Mapping[str, Mapping[int, str]]:
        """All replays that were asked for and are not done, by subscriber and partition."""

    async def forget(self, uid: str) -> None:
        """Remove everything about a subscriber."""

    async def record(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        """Add to the histories of these subscribers, all or nothing; the latest 100 of each subscriber are
        stored.
        """

    async def history(self, uid: str) -> Sequence[Failure]:
        """The failures of a subscriber, the latest first."""


# -- what the engine offers (through its client)


class Stored(NamedTuple):
    """One event read from a log: `message` is the AMQP message less the delivery's annotations.
    `message_format`: AMQP 2.7.5.
    """

    partition: int
    offset: str
    timestamp_ms: int
    message: bytes
    message_format: int = 0


class Extents(NamedTuple):
    """A log at one moment. `first` and `last`: offsets of each partition's events, None where it has none.

    `incarnation`: another one for each log that was ever made, also under the same name; empty: it is not
    known.
    """

    incarnation: str
    first: Mapping[int, str | None]
    last: Mapping[int, str | None]


class EventLog(Protocol):
    """The logs of the engine."""

    async def ensure(self, log: str, *, partitions: int, retention_ms: int | None) -> int:
        """Create the log if it does not exist; returns the number of its partitions."""

    async def delete(self, log: str) -> None:
        """Delete a log and its events. Does nothing if the log does not exist."""

    async def append(self, log: str, message: bytes) -> None:
        """Store one message; durable when it returns. The message carries its own group key.

        Raises:
            OverloadedError: the log pushes back; try later.
            UnavailableError: it is away; nothing is known of this message.
        """

    async def ends(self, log: str) -> Mapping[int, str | None]:
        """The offset of the last event of each partition now; None: the partition is empty."""

    async def extents(self, log: str) -> Extents:
        """What the log holds now."""

    async def before(self, log: str, at_ms: int) -> Mapping[int, str | None]:
        """Of each partition the position to read from for all events stored after that time (since 1970 UTC),
        as `read` takes it.
        """

    def read(self, log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
        """Events of these partitions after these offsets (None: from the earliest), in batches, forever;
        order kept within a partition.
        """
