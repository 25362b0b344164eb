"""The interfaces between the packages of the gateway: the routes of the controller, and the ports of store
and engine.

The controller turns resources into routes. Ingress and dispatcher know only routes. All values are immutable
snapshots.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol


class BackoffPolicy(StrEnum):
    """How waits increase from one retry to the next."""

    LINEAR = "linear"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery options of a subscriber, resolved.

    Durations are milliseconds. `dead_letter_url`: an absolute URL; None: no dead letter sink. `structured`:
    use the structured content mode instead of the binary one.
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

    - `uid`: its identity. A recreated object is another subscriber.
    - `filters`: the Trigger's validated dialect objects, all of which must match; empty: every event matches.
    - `subscriber_url`: None if events go only to the reply URL.
    - `reply_log`: the log to which replies are appended (Triggers).
    - `reply_url`: the URL to which replies are POSTed (Subscriptions).
    - `brokers`: the beginning of the addresses of this gateway's Brokers.
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
        """Return whether an event that is sent to this URL leaves the Brokers, so that it loses
        `knativebrokerttl`.

        Between Brokers of this gateway, it keeps the attribute, so that an event in a ring of Brokers is
        dropped in the end.
        """
        return self.reply_log is not None and not (self.brokers and url.startswith(self.brokers))


@dataclass(frozen=True, slots=True)
class Route:
    """One Broker or Channel: its log and its subscribers.

    `path`: the path of the URL to which senders POST events. `duplicates_ms`: an event with the source and id
    of an event that was accepted within this time is accepted, but not stored again; None: all events are
    stored.
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
    """All routes of the data plane. `version` increases with every change."""

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
        """Serve these routes, and no others, from now on. Returns at once."""

    def removed(self, objects: "Sequence[Document]") -> None:
        """Accept no more events for the Brokers and Channels among these deleted objects. Returns at once.

        The routes are served until the next `use`.
        """

    def served(self, path: str) -> Route | None:
        """Return the route as it is served; None if the path is not served.

        Each of its subscribers, except those in `failing`, has a stored cursor and receives all events that
        are accepted later.
        """

    def failing(self, path: str) -> Mapping[str, str]:
        """Return why subscribers of a path are not served yet, by uid. They are retried."""


# -- the port of the store (SQLite or PostgreSQL)


@dataclass(frozen=True, slots=True)
class Key:
    """The name of one object. `group` is empty for the core group, `namespace` for objects without a
    namespace.
    """

    group: str
    kind: str
    namespace: str
    name: str


Document = Mapping[str, object]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change in the watch feed. `type`: ADDED, MODIFIED or DELETED.

    `object`: the object at `version`; for DELETED, the object before its deletion. `previous`: the object
    before the change; None for ADDED. `characters`: of the JSON text of both.
    """

    type: str
    version: int
    key: Key
    object: Mapping[str, object]
    previous: Document | None = None
    characters: int = 0


class ResourceStore(Protocol):
    """Kubernetes objects: JSON documents, each with the version of the store at its last write."""

    async def get(self, key: Key) -> Mapping[str, object] | None:
        """Return the object; None if it does not exist."""

    async def list(
        self,
        group: str,
        kind: str,
        namespace: str | None = None,
    ) -> tuple[int, Sequence[Mapping[str, object]]]:
        """Return the version of the list, and the objects of a kind, sorted by namespace and name."""

    async def part(
        self,
        group: str,
        kind: str,
        namespace: str | None = None,
        *,
        after: tuple[str, str] | None,
        limit: int,
    ) -> tuple[int, Sequence[Mapping[str, object]], int]:
        """Return the version of the list, its first `limit` objects after a namespace and name, and how many
        follow them. Only these objects are read.
        """

    async def write(
        self,
        key: Key,
        object_: Mapping[str, object] | None,
        *,
        expected_version: int | None,
    ) -> Mapping[str, object] | None:
        """Store an object, or delete it (None). Returns it with its new `metadata.resourceVersion`.

        `expected_version`: 0 if the object must not exist; None for any version.

        Raises:
            ConflictError: the object has another version.
        """

    async def update(
        self,
        objects: Mapping[Key, tuple[Mapping[str, object], int]],
    ) -> Mapping[Key, Mapping[str, object]]:
        """Store several objects if they have the given versions (0: must not exist). Returns the stored
        objects.
        """

    async def remove(self, keys: Mapping[Key, int | None]) -> Sequence[Mapping[str, object]]:
        """Delete several objects if they have the given versions (None: any version). Returns the deleted
        objects.
        """

    def watch(self, group: str, kind: str, after: int, *, in_turns: bool = False) -> AsyncIterator[Change]:
        """Yield the changes of a kind after a version, in order. An empty `kind`: all kinds.

        `in_turns`: for watches of clients, of which a thousand may exist. The others get a change first.

        Raises:
            GoneError: changes after this version were removed.
        """


@dataclass(frozen=True, slots=True)
class Failure:
    """One record in the delivery history of a subscriber. `at_ms`: since 1970 UTC. `body`: the beginning of
    the answer's body.

    `end` is empty if other attempts may follow. Otherwise it states how the delivery ended: "dead-lettered",
    "dropped", or "skipped" (the stored message is not a CloudEvent, or its filter failed). Two values do not
    concern a single event: "removed" (retention removed events before they were delivered) and "log made
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
"""The events after the first offset, up to and including the second one."""


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """The stored cursor of one subscriber.

    `positions`: for each partition, the offset of the last event up to which all events are completed.
    `incarnation`: of the log to which the positions belong; empty if the node did not report it; None if
    nothing is stored. `replays`: requested replays, which the owner of each partition carries out.
    """

    positions: Mapping[int, str] = field(default_factory=dict)
    # None and the empty text differ: only None is replaced by the incarnation of the current log.
    incarnation: str | None = None
    replays: Mapping[int, str] = field(default_factory=dict)


class CursorStore(Protocol):
    """Stores the cursors of subscribers, requested replays, and the histories of failed deliveries.

    Changes are durable when a method returns. Positions only increase, except by `reset`, `restart` and
    `replay`.
    """

    async def load(self, uids: Collection[str]) -> Mapping[str, StoredCursor]:
        """Return the cursors of these subscribers. Subscribers without a cursor are missing."""

    async def done(self, uids: Collection[str]) -> Mapping[tuple[str, int], Sequence[Range]]:
        """Return the completed ranges above the positions, by subscriber and partition."""

    async def begin(self, cursors: Mapping[str, StoredCursor]) -> Mapping[str, StoredCursor]:
        """Store positions and incarnations of subscribers that do not have them yet. Returns what is stored
        then.

        Replicas that begin at the same time get the same positions. `replays` of the arguments are ignored.
        """

    async def save(
        self,
        positions: Mapping[tuple[str, int], str],
        done: Mapping[tuple[str, int], Sequence[Range]] | None = None,
        incarnations: Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """Increase these positions; key: (uid, partition).

        `done`: completed ranges above a position; they replace the stored ones. `incarnations`: the logs that
        positions and ranges belong to. If the stored incarnation of a subscriber is another one, its log was
        recreated, and its positions and ranges are not stored.
        """

    async def reset(self, uid: str, positions: Mapping[int, str]) -> None:
        """Set positions to any value, and remove the completed ranges above them. Other partitions do not
        change.
        """

    async def restart(self, uid: str, positions: Mapping[int, str], incarnation: str) -> None:
        """Set positions as `reset` does, in a recreated log: also removes replays of the former log."""

    async def ask_replay(self, uid: str, to: Mapping[int, str]) -> None:
        """Request a replay of these partitions from these positions. Replaces earlier requests."""

    async def replay(self, uid: str, positions: Mapping[int, str]) -> None:
        """Set positions as `reset` does, and remove the requests to replay these partitions."""

    async def replays(self) -> Mapping[str, Mapping[int, str]]:
        """Return all requested replays, by subscriber and partition."""

    async def forget(self, uid: str) -> None:
        """Remove everything that is stored for a subscriber."""

    async def record(self, failures: Mapping[str, Sequence[Failure]]) -> None:
        """Add to the histories of these subscribers, in one transaction.

        Each history keeps its latest 100 failures.
        """

    async def history(self, uid: str) -> Sequence[Failure]:
        """Return the failures of a subscriber, the latest first."""


# -- the port of the engine (its client)


class Stored(NamedTuple):
    """One event that was read from a log.

    `message`: the AMQP message without delivery annotations. `message_format`: AMQP 2.7.5.
    """

    partition: int
    offset: str
    timestamp_ms: int
    message: bytes
    message_format: int = 0


class Extents(NamedTuple):
    """The state of a log at one moment.

    `first` and `last`: the offsets of the first and the last event of each partition; None for an empty
    partition. `incarnation`: differs for each log that was ever created, also under the same name; empty if
    it is not known.
    """

    incarnation: str
    first: Mapping[int, str | None]
    last: Mapping[int, str | None]


class EventLog(Protocol):
    """The logs of the engine."""

    async def ensure(self, log: str, *, partitions: int, retention_ms: int | None) -> int:
        """Create the log if it does not exist. Returns the number of its partitions."""

    async def delete(self, log: str) -> None:
        """Delete a log and its events. Does nothing if the log does not exist."""

    async def append(self, log: str, message: bytes) -> None:
        """Store one message, which contains its own group key. Durable when it returns.

        Raises:
            OverloadedError: the log accepts no more events now; retry later.
            UnavailableError: the log is not available; it is not known whether the message is stored.
        """

    async def ends(self, log: str) -> Mapping[int, str | None]:
        """Return the offset of the last event of each partition; None for an empty partition."""

    async def extents(self, log: str) -> Extents:
        """Return the current extents of the log."""

    async def before(self, log: str, at_ms: int) -> Mapping[int, str | None]:
        """Return, for each partition, the position from which to `read` all events that were stored after
        `at_ms` (since 1970 UTC).
        """

    async def read_range(
        self, log: str, partition: int, start: int, end: int, *, bytes_max: int
    ) -> Sequence[Stored]:
        """Return the events of a partition from offset `start` to before `end`, except those that retention
        has removed. No event is added after `bytes_max` bytes.
        """

    def read(self, log: str, after: Mapping[int, str | None]) -> AsyncIterator[Sequence[Stored]]:
        """Yield events of these partitions in batches, without end; in order within a partition.

        `after`: the offset before the first event, by partition; None: from the earliest event.
        """
