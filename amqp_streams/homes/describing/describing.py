"""What a home says about groups and cursors, to its own node and to others. Pure.

Laws: an owner is shown only if this home has granted it the partition, and its lease is in force. A step
looks at a bounded number of partitions or groups.
"""

from collections.abc import Callable, Generator
from typing import Final, Protocol

from amqp_streams.homes.messages import Described, Description, Inquiry, Kept, Named, Positions, Subject
from amqp_streams.homes.protocol.descriptions import DESCRIPTION_CHARACTERS_MAX
from amqp_streams.homes.serving import Serving
from amqp_streams.node.requests import PAGE_PARTITIONS_MAX
from amqp_streams.storage.ports import StoredLog
from amqp_streams.streams.consuming.cursors import Cursor, group_key
from amqp_streams.streams.steps import PARTITIONS_A_STEP, Steps

GROUPS_A_STEP: Final = 500
"""How many groups a step looks at, to name those without states: less than a millisecond."""
NAMED_MAX: Final = 5000
"""The most groups that a description names. A bucket with more is not named, and the list says so."""


class Here(Protocol):
    """What this node knows of the buckets whose home it is."""

    def current(self, bucket: int) -> Serving | None:
        """The home, if it is here, decides, and knows who owns what: no later home can have granted."""


LogOf = Callable[[str], StoredLog | None]


def description(here: Here, log_of: LogOf, inquiry: Inquiry) -> Generator[None, None, Description]:
    """Answer an inquiry of another node, as far as the homes are here."""
    items: list[Described | Named] = []
    wide = characters = since = 0
    for at, subject in enumerate(inquiry.subjects):
        serving, log = here.current(subject.bucket), log_of(subject.incarnation)
        if serving is None or log is None:
            continue
        wide += len(log.partitions)
        if items and (wide > PAGE_PARTITIONS_MAX or characters > DESCRIPTION_CHARACTERS_MAX):
            break
        one = described(serving, log, subject, at)
        characters += sum(len(member) for _, member in one.owners) + len((one.kept and one.kept.user) or "")
        items.append(one)
        since += len(log.partitions)
        if since >= PARTITIONS_A_STEP:
            since = 0
            yield
    named: list[int] = []
    for bucket in dict.fromkeys(inquiry.named):
        serving = here.current(bucket)
        found = [] if serving is None else (yield from names(serving, log_of, bucket))
        if serving is not None and len(items) + len(found) <= len(inquiry.subjects) + NAMED_MAX:
            items += found
            named.append(bucket)
    return Description(inquiry.number, tuple(named), tuple(items))


def described(serving: Serving, log: StoredLog, subject: Subject, at: int = 0) -> Described:
    """Describe one group or cursor at its home."""
    if subject.group is None:
        cursor = serving.cursors.by_id(log.incarnation, subject.cursor or "")
        if cursor is None:
            return Described(at, exists=False)
        active = serving.uses(cursor.key)
        if cursor.key.group is None:
            return Described(at, exists=True, active=active, kept=_kept(cursor))
        owners, _, epochs = _of_group(serving, log, cursor.key.group)
        return Described(at, True, active, 0, owners, epochs, _kept(cursor))
    cursor = serving.cursors.find(group_key(log.incarnation, subject.group))
    owned = serving.groups.of(log)
    if cursor is None and not owned.knows(subject.group):
        return Described(at, exists=False)
    owners, waiting, epochs = _of_group(serving, log, subject.group)
    kept = None if cursor is None else _kept(cursor)
    return Described(at, True, bool(owners) or waiting > 0, waiting, owners, epochs, kept)


def names(serving: Serving, log_of: LogOf, bucket: int) -> Steps[list[Named]]:
    """Name the groups of a bucket that have links and no cursor. Other nodes may know no state of them."""
    found: list[Named] = []
    for incarnation in list(serving.groups.counts.incarnations()):
        log = log_of(incarnation)
        # A copy: groups come and go between steps.
        claimed = [] if log is None else list(serving.groups.counts.without_cursor(incarnation))
        for looked, group in enumerate(claimed, 1):
            if log is not None and serving.groups.of(log).links(group):
                found.append(Named(bucket, incarnation, group))
            if looked % GROUPS_A_STEP == 0:
                yield
        yield
    return found


def _of_group(
    serving: Serving, log: StoredLog, group: str
) -> tuple[tuple[tuple[int, str], ...], int, Positions]:
    """Its owners, how many links have no partition, and its epochs."""
    owned = serving.groups.of(log)
    links = owned.links(group)
    owners = tuple(
        (link.partition, link.member)
        for link in links
        if link.partition is not None and serving.granted(link)
    )
    epochs = ((each.index, owned.epoch(group, each.index)) for each in log.partitions)
    return owners, len(links) - len(owners), tuple(each for each in epochs if each[1])


def _kept(cursor: Cursor) -> Kept:
    return Kept(cursor.user, cursor.updated_ms, tuple(sorted(cursor.positions.items())))
