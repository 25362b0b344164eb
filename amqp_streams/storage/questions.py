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
    without a call. What must be decided in one place is not available on logs of several nodes: consumer
    groups, cursors, numbered producers.
    """

    on_grown: Callable[[Sequence[P]], None] = lambda _partitions: None
    """The ends of these partitions moved without a commit of this node."""
    on_lost: Callable[[L, str], None] = lambda _log, _reason: None
    """This log does not exist any more. Its links get the reason."""
    on_truncated: Callable[[P, int, int], None] = lambda _partition, _first, _end: None
    """Durable records of this partition were lost: the numbers from `first` to before `end`, which new
    records get."""
    gone: Callable[[P, int], str | None] = lambda _partition, _position: None
    """Set by the store: why nothing can be read at a position behind the end, because of lost records."""


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


Question: TypeAlias = Create | Update | Delete | Find | Refresh


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
