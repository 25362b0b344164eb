"""The messages between nodes and homes: reports and answers. Values only.

A node reports to the home of a bucket all links that it has in the bucket, again and again. The home answers
with what the report lacks, and with the time for which its grants hold. So a message that is lost, doubled or
late is corrected by the next one, and no message waits for the answer to another one.

A report carries the claim of each link, its positions, and what the node believes that it owns. With the
first report to a new home, the node shows what it held under the old one. A link that a report marks as gone,
or does not have, is released.

A change of a group or cursor that a user asks for is another message, with an answer of its own: it is not a
state, so it is never repeated. An inquiry asks a home to describe groups and cursors. It changes nothing, so
it may be repeated.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from amqp_streams.errors import PeerError
from amqp_streams.streams.groups.claims import Wanted

Serial: TypeAlias = tuple[int, int]
"""Of a grant: the home's term, and a number that grows with each grant of this home."""
Positions: TypeAlias = tuple[tuple[int, int], ...]
"""By partition, the number of the next record: all records below it are settled."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process of a node, as other nodes know it.

    `process`: its id, which no other process ever has. `cluster`: the id of the Kafka cluster. `prefix`: of
    the topics. Nodes with another cluster or prefix have other logs.
    """

    process: str
    cluster: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Reported:
    """One link in a report.

    `number`: of the link within its node; it is never used again. `serial`, `partition`, `epoch`: the last
    grant, or None. `positions`: how far its cursor may move. `stored`: the positions that the node knows to
    be durable. `urgent`: a receiver waits for them. `leaving`: it was asked to leave. `gone`: it has ended;
    these are its last positions.
    """

    number: int
    wanted: Wanted
    serial: Serial | None = None
    partition: int | None = None
    epoch: int | None = None
    positions: Positions = ()
    stored: Positions = ()
    urgent: bool = False
    leaving: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """All links of a node in a bucket.

    `node`: the id of the process, which no other process ever has. `number`: grows with each report to this
    home. `yielded`: the node uses no grant of this term any more, because the home asked for it.
    """

    node: str
    bucket: int
    term: int
    number: int
    links: tuple[Reported, ...]
    yielded: bool = False


@dataclass(frozen=True, slots=True)
class Owns:
    """The link owns its partitions, as long as the home's grants hold."""

    number: int
    serial: Serial
    partition: int | None
    epoch: int | None
    positions: Positions


@dataclass(frozen=True, slots=True)
class Leaves:
    """Send nothing more on the link; release it when all is settled, or after `within_ms`."""

    number: int
    error: PeerError
    within_ms: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The link was refused, evicted or stolen: close it at once."""

    number: int
    error: PeerError


@dataclass(frozen=True, slots=True)
class Stored:
    """These positions of the link are durable."""

    number: int
    positions: Positions


Verdict: TypeAlias = Owns | Leaves | Ends | Stored


@dataclass(frozen=True, slots=True)
class Answer:
    """A home's answer.

    `number`: the last report that the home has got from this node. `processed`: the home acted on it;
    otherwise the answer shows only that the home exists. `remaining_ms`: how long its grants hold, counted
    from the moment at which the node sent that report. `withdrawn`: the home leaves, and asks the node to use
    no grant any more.
    """

    bucket: int
    term: int
    number: int
    processed: bool
    remaining_ms: int
    verdicts: tuple[Verdict, ...] = ()
    withdrawn: bool = False


class Change(StrEnum):
    """What is changed. The values are the protocol's."""

    MOVE = "move"
    """The positions of a cursor."""
    REMOVE = "remove"
    """A group, or the cursor of a link."""
    END = "end"
    """The subscription of a link, by its client. A link that is attached is closed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A change that a user has asked another node for than the home.

    `number`: of the question; its node uses it once. `type`: the type of `$management`, a group or a cursor.
    `incarnation`: of the log. `group`, or `container` and `link`: whose cursor it is. `user`: who asks; None:
    anonymous. `rights`: those that the user has on the log, as the node that was asked has decided.
    `positions`: of MOVE.
    """

    number: int
    bucket: int
    change: Change
    type: str
    incarnation: str
    group: str | None
    container: str | None
    link: str | None
    user: str | None
    rights: frozenset[str] = frozenset()
    positions: Positions = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a change.

    `status`, `description`: as in an answer of `$management`. `cursor`: the value of the cursor's state after
    MOVE. `moved`: the node is not the home now, and has changed nothing.
    """

    number: int
    status: int
    description: str
    cursor: str | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A group, or the cursor with this id, that is to be described. `bucket`: of the group or cursor."""

    bucket: int
    incarnation: str
    group: str | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question about groups and cursors to the node that is their home.

    `number`: of the question; its node uses it once. `named`: buckets of which the answer names the groups
    that have links, and no states that each node knows.
    """

    number: int
    subjects: tuple[Subject, ...] = ()
    named: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Kept:
    """The cursor of a group or link, with its positions at its home."""

    user: str | None
    updated_ms: int
    positions: Positions


@dataclass(frozen=True, slots=True)
class Described:
    """What a home knows of a subject of an inquiry.

    `at`: the index of the subject. `exists`: a group or cursor is there. `active`: it has links. `waiting`:
    how many of them have no partition. `owners`: by partition, the member whose link was granted it.
    `epochs`: by partition, those that are not 0.
    """

    at: int
    exists: bool
    active: bool = False
    waiting: int = 0
    owners: tuple[tuple[int, str], ...] = ()
    epochs: Positions = ()
    kept: Kept | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A group that has links, and no states that each node knows."""

    bucket: int
    incarnation: str
    group: str


@dataclass(frozen=True, slots=True)
class Description:
    """The answer to an inquiry. `named`: the buckets whose groups are named, all of them.

    Subjects that are missing were not described: their home is elsewhere, or the answer has no room for them.
    """

    number: int
    named: tuple[int, ...] = ()
    items: tuple[Described | Named, ...] = ()
