"""Questions to a store whose answers may need another machine, as values: see `Store.ask`.

And what a store says by itself: about other nodes (`Store.others`), about other programs
(`StoredLog.foreign`), and its figures for operators (`StoreFacts.figures`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from amqp_streams.config import LogSettings
from amqp_streams.errors import PeerError

P = TypeVar("P")
L = TypeVar("L")


class Foreign(Protocol):
    """What a log whose records other programs read and write asks of its events."""

    def refusal(self, message: bytes) -> PeerError | None:
        """Why a message cannot be a record of this log; None: it can be one."""

    def partition_of_key(self, key: str, partition_count: int) -> int:
        """The partition in which the other programs put this key."""


@dataclass(slots=True, eq=False)
class Others(Generic[P, L]):
    """What other nodes do with the logs of a store. The owner of the store sets the functions `on_…`.

    They are called on the event loop's thread. A log that another node created appears in `Store.logs`
    without a call. The store sets the other functions.

    An idempotent producer is at one node at a time. A question `OpenProducer` opens it at this node.
    """

    on_grown: Callable[[Sequence[P]], None] = lambda _partitions: None
    """The ends of these partitions moved without a commit of this node."""
    on_lost: Callable[[L, str], None] = lambda _log, _reason: None
    """This log does not exist any more. Its links get the reason."""
    on_truncated: Callable[[P, int, int], None] = lambda _partition, _first, _end: None
    """Durable records of this partition were lost: the numbers from `first` to before `end`, which new
    records get."""
    gone: Callable[[P, int], str | None] = lambda _partition, _position: None
    """Why nothing can be read at a position behind the end, because of lost records."""
    on_taken: Callable[[L, str, bool], None] = lambda _log, _reason, _stolen: None
    """A producer is not at this node any more. Its links get the reason. `log`: see `attached`. `stolen`:
    another node has it."""
    attached: Callable[[L, str], tuple[L, int]] = lambda log, _producer: (log, 0)
    """A link of an idempotent producer, which is open, is attached: the log as this producer appends to it,
    and the partition of its events without a hint. Raises StorageError: it is not open any more."""
    detached: Callable[[L], None] = lambda _log: None
    """Such a link has ended. `log`: see `attached`."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a log; the answer is the log. `incarnation`: a proposal, the one of the log counts."""

    name: str
    settings: LogSettings
    incarnation: str


@dataclass(frozen=True, slots=True)
class Update:
    """Change the settings of a log; the answer is the log."""

    name: str
    settings: LogSettings


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a log; the answer is None."""

    name: str


@dataclass(frozen=True, slots=True)
class Find:
    """Find a log that another node may have created; the answer is the log, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class Refresh:
    """Make `start`, `end` and `facts` of partitions at least as new as the question; the answer is None."""

    log: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """Open an idempotent producer at this node, and no other one; the answer is None. See `Others.attached`.

    `producer`: its key in the store. `home`: the partition of its events without a hint, if the store does
    not know the producer. The question may also raise PeerError: too many producers are in use.
    """

    log: str
    producer: str
    home: int


Question: TypeAlias = Create | Update | Delete | Find | Refresh | OpenProducer


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a store for its operators, with a value for each combination of its labels.

    `name`: without the prefix and the suffix of a metric. `counter`: it never decreases.
    """

    name: str
    meaning: str
    samples: Mapping[tuple[str, ...], float]
    labels: tuple[str, ...] = ()
    counter: bool = False
