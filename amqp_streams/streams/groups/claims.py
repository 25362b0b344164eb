"""Claims of consumers within groups, and the changes that follow: the values of `ownership.py`.

Spec: Event Streams 4.5, 4.6.2, 4.6.3.

Law: the consumer makes a claim, never the node. A link in a group gets one partition of the log, or none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase
from typing import Final

from amqp_streams import names
from amqp_streams.errors import PeerError
from amqp_streams.wire.types import Value

GROUP_CHARACTERS_MAX: Final = 255
"""The longest name of a group: as for a log's name and a container-id."""
EPOCH_MAX: Final = 2**64 - 1
"""The answer carries an epoch as a ulong."""
UNNAMED: Final = ""
"""The scope of epochs without a group."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One link's claim.

    `partition` None: any; the node chooses. `epoch` None: no epoch. `member`: the link's member.
    """

    group: str
    partition: int | None
    epoch: int | None
    member: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the attach of a link asks its home for (`homes/`).

    `claim`: in a group; None: the link has a cursor of its own, for `partitions`. `durable`: it has a cursor.
    `starts`: by partition of the log, where the cursor begins if it does not exist.
    """

    incarnation: str
    user: str | None
    container: str
    link: str
    claim: Claim | None
    durable: bool
    starts: tuple[int, ...]
    partitions: tuple[int, ...] = ()


class GroupLinkState(Enum):
    """The state of a link in a group."""

    WAITING = auto()
    """Waits for a partition to become free."""
    RECORDING = auto()
    """Waits for its epoch to be on the disk; it is the only claimant of the partition."""
    OWNING = auto()
    LEAVING = auto()
    """Asked to leave; it owns the partition until it is released."""
    GONE = auto()


@dataclass(slots=True, eq=False)
class GroupLink:
    """A link's claim in its group. The attach is answered with `epoch` once the state is `OWNING`."""

    claim: Claim
    since_ms: int
    partition: int | None = None
    epoch: int = 0
    state: GroupLinkState = GroupLinkState.WAITING

    @property
    def group(self) -> str:
        """The group's name."""
        return self.claim.group

    @property
    def member(self) -> str:
        """The link's member."""
        return self.claim.member

    @property
    def owning(self) -> bool:
        """Whether events may be sent on it and its settlements count. Other links are fenced."""
        return self.state is GroupLinkState.OWNING or self.state is GroupLinkState.LEAVING


# -- changes, which the node turns into effects


@dataclass(frozen=True, slots=True)
class Assigned:
    """The link owns its partition from now on."""

    link: GroupLink


@dataclass(frozen=True, slots=True)
class Record:
    """Write this epoch, then call `Ownership.recorded`. Writes happen in the order of the changes."""

    link: GroupLink
    group: str
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Evicted:
    """The link must end: close it now."""

    link: GroupLink
    error: PeerError


@dataclass(frozen=True, slots=True)
class Leaving:
    """Stop sending, close the link when all is settled or after `within_ms`, then `release` it."""

    link: GroupLink
    error: PeerError
    within_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The link ended before it was granted: refuse its attach."""

    link: GroupLink
    error: PeerError


Change = Assigned | Record | Evicted | Leaving | Refused


def requested_claim(properties: Mapping[str, Value], partition: int | None, member: str) -> Claim | None:
    """The claim in a consumer's link properties; None if they have neither a group nor an epoch.

    `partition` is the one that the link asks to be bound to, or None.

    Raises:
        PeerError: amqp:invalid-field, with the property that has a wrong form.
    """
    group, epoch = properties.get(names.CONSUMER_GROUP), properties.get(names.EPOCH)
    if group is None and epoch is None:
        return None
    if epoch is not None and (
        # In Python, a bool is an int.
        isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= EPOCH_MAX
    ):
        raise _invalid(f"link property {names.EPOCH} must be an integer from 0 to 2^64 - 1")
    if group is None:
        if partition is None:
            raise _invalid(f"an epoch needs a partition: name it in link property {names.PARTITION}")
        return Claim(UNNAMED, partition, None if epoch is None else int(epoch), member)
    if not isinstance(group, str) or not is_group_name(group):
        raise _invalid(
            f"link property {names.CONSUMER_GROUP} must be a string of 1 to {GROUP_CHARACTERS_MAX} characters"
            " without control characters"
        )
    return Claim(str(group), partition, None if epoch is None else int(epoch), member)


def is_group_name(text: str) -> bool:
    """Whether the text is a valid name of a group: 1 to 255 characters, no control characters."""
    return 0 < len(text) <= GROUP_CHARACTERS_MAX and not any(
        ord(character) < 32 or 127 <= ord(character) < 160 for character in text
    )


def check_configured(group: str, only: tuple[str, ...]) -> None:
    """Check a group's name against the setting `groups.only`; empty: every name is allowed. Spec: 4.5, 4.6.2.

    Raises:
        PeerError: amqp:not-found, with the setting.
    """
    if only and group != UNNAMED and not any(fnmatchcase(group, pattern) for pattern in only):
        allowed = ", ".join(map(repr, only))
        raise PeerError(
            names.NOT_FOUND,
            f"no consumer group named {group[:64]!r}: the setting 'groups.only' of this node allows"
            f" {allowed}",
        )


def _invalid(description: str) -> PeerError:
    return PeerError(names.INVALID_FIELD, description, {"field": "properties"})
