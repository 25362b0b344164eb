"""What a consumer claims within a group, what it holds, and what follows: the values of `ownership.py`.

Spec: Event Streams 4.5, 4.6.2, 4.6.3.

One law: a claim is made by the consumer, never by the node; whoever names a group gets one partition of the log, or none.
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
"""Of a group's name: as many as a log's name and a container-id may have."""
EPOCH_MAX: Final = 2**64 - 1
"""It is answered as a ulong."""
UNNAMED: Final = ""
"""The scope of epochs that are claimed without a group."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One link's claim. `partition` None: any, the node chooses. `epoch` None: none offered. `member`: whose link it is."""

    group: str
    partition: int | None
    epoch: int | None
    member: str


class HoldState(Enum):
    """Where a link in a group stands."""

    WAITING = auto()
    """For a partition to become free."""
    RECORDING = auto()
    """For its epoch to be on the disk; the partition is nobody else's."""
    OWNING = auto()
    LEAVING = auto()
    """Asked to go; it owns the partition until it is released."""
    GONE = auto()


@dataclass(slots=True, eq=False)
class Hold:
    """One link's standing in its group. `epoch` is what the attach is answered with, told once the state is `OWNING`."""

    claim: Claim
    since_ms: int
    partition: int | None = None
    epoch: int = 0
    state: HoldState = HoldState.WAITING

    @property
    def group(self) -> str:
        """The group's name."""
        return self.claim.group

    @property
    def member(self) -> str:
        """Whose link it is."""
        return self.claim.member

    @property
    def owning(self) -> bool:
        """Whether events may go out on it and its settlements count: for everybody else the partition is fenced."""
        return self.state is HoldState.OWNING or self.state is HoldState.LEAVING


# -- changes: what the node turns into effects


@dataclass(frozen=True, slots=True)
class Assigned:
    """The hold owns its partition from now on."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Record:
    """Write this epoch, then say `Ownership.recorded`. Writes are carried out in the order they are asked for."""

    hold: Hold
    group: str
    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Evicted:
    """The hold is gone: close its link now."""

    hold: Hold
    error: PeerError


@dataclass(frozen=True, slots=True)
class Leaving:
    """Send nothing more on its link, close it when all is settled, after `within_ms` at the latest, then `Ownership.release` it."""

    hold: Hold
    error: PeerError
    within_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The hold, which was not yet granted, is gone: refuse its attach."""

    hold: Hold
    error: PeerError


Change = Assigned | Record | Evicted | Leaving | Refused


def requested_claim(properties: Mapping[str, Value], partition: int | None, member: str) -> Claim | None:
    """The claim that a consumer's link properties make; None if they name neither a group nor an epoch.

    `partition` is the one that the link asks to be bound to, None if it asks for none.

    Raises:
        PeerError: amqp:invalid-field, saying which property is of the wrong form.
    """
    group, epoch = properties.get(names.CONSUMER_GROUP), properties.get(names.EPOCH)
    if group is None and epoch is None:
        return None
    if epoch is not None and (isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= EPOCH_MAX):
        raise _invalid(f"link property {names.EPOCH} is a whole number from 0 to 2^64 - 1")
    if group is None:
        if partition is None:
            raise _invalid(f"an epoch is for one partition: name it in link property {names.PARTITION}")
        return Claim(UNNAMED, partition, None if epoch is None else int(epoch), member)
    if not isinstance(group, str) or not is_group_name(group):
        raise _invalid(
            f"link property {names.CONSUMER_GROUP} is a string of 1 to {GROUP_CHARACTERS_MAX} characters, none of them a control"
        )
    return Claim(str(group), partition, None if epoch is None else int(epoch), member)


def is_group_name(text: str) -> bool:
    """Whether a group may be called so: 1 to 255 characters, no control characters."""
    return 0 < len(text) <= GROUP_CHARACTERS_MAX and not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in text)


def check_configured(group: str, only: tuple[str, ...]) -> None:
    """Hold a group's name against the setting `groups.only`; empty, it lets all pass. Spec: 4.5, 4.6.2 (MAY require a configured item).

    Raises:
        PeerError: amqp:not-found, naming the setting.
    """
    if only and group != UNNAMED and not any(fnmatchcase(group, pattern) for pattern in only):
        allowed = ", ".join(map(repr, only))
        raise PeerError(names.NOT_FOUND, f"there is no consumer group {group[:64]!r}: the setting 'groups.only' of this node has {allowed}")


def _invalid(description: str) -> PeerError:
    return PeerError(names.INVALID_FIELD, description, {"field": "properties"})
