"""Questions to a store whose answers may need another machine, as values: see `Store.ask`."""

from dataclasses import dataclass
from typing import TypeAlias

from amqp_streams.config import LogSettings


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
