"""What the tests of ownership share: an `Ownership` with short names for its calls."""

from collections.abc import Sequence

import pytest

from amqp_streams.config import GroupSettings
from amqp_streams.errors import PeerError
from amqp_streams.streams.groups.ownership import (
    Assigned,
    Change,
    Claim,
    GroupLink,
    Ownership,
    Record,
)

PAUSE = 3000
WAIT = 30_000
HANDOVER = 10_000


def ownership(
    partitions: int = 2,
    *,
    wait_ms: int = WAIT,
    only: tuple[str, ...] = (),
    groups_max: int = 10,
    waiting_max: int = 10,
) -> Ownership:
    settings = GroupSettings(wait_ms=wait_ms, pause_ms=PAUSE, handover_ms=HANDOVER, only=only)
    return Ownership(partitions, settings, groups_max=groups_max, waiting_max=waiting_max)


def any_of(member: str, group: str = "g") -> Claim:
    return Claim(group, None, None, member)


def one(partition: int, epoch: int | None = None, member: str = "m", group: str = "g") -> Claim:
    return Claim(group, partition, epoch, member)


def joined(owned: Ownership, member: str, count: int = 1, now_ms: int = 0) -> list[GroupLink]:
    return [owned.claim(any_of(member), now_ms)[0] for _ in range(count)]


def recorded(owned: Ownership, claim: Claim, now_ms: int = 0) -> GroupLink:
    """A claim whose epoch is written at once."""
    link, changes = owned.claim(claim, now_ms)
    if isinstance(changes[-1], Record):
        assert owned.recorded(link, None, now_ms) == [Assigned(link)]
    return link


def refusal(owned: Ownership, claim: Claim, now_ms: int = 0) -> PeerError:
    with pytest.raises(PeerError) as refused:
        owned.claim(claim, now_ms)
    return refused.value


def kinds(changes: Sequence[Change]) -> list[type[Change]]:
    return [type(change) for change in changes]
