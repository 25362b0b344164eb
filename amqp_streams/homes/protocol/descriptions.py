"""Inquiries and descriptions as JSON, and back. Pure.

Law: an inquiry or a description changes nothing, so one that is given up costs a description only.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from amqp_streams.homes.buckets import BUCKETS
from amqp_streams.homes.messages import Described, Description, Inquiry, Kept, Named, Subject
from amqp_streams.homes.protocol.fields import Fields, Json
from amqp_streams.homes.protocol.frames import FrameError
from amqp_streams.homes.protocol.parts import Parts, Unfinished, parts_of
from amqp_streams.homes.protocol.reports import NUMBER_MAX
from amqp_streams.node.requests import PAGE_PARTITIONS_MAX

SUBJECTS_MAX: Final = PAGE_PARTITIONS_MAX
"""The most subjects of an inquiry: those of a page. Each has at least one partition."""
INQUIRY_BYTES_MAX: Final = 4 << 20
"""All parts of an inquiry. The name of a group has at most 255 characters."""
DESCRIPTION_CHARACTERS_MAX: Final = 1 << 20
"""Of the names in a description, besides those of the first subject. What is left is asked for again."""
DESCRIPTION_BYTES_MAX: Final = 16 << 20
"""All parts of a description. A character of a name can have six bytes in JSON."""
INQUIRIES_BYTES_MAX: Final = 4 * INQUIRY_BYTES_MAX
"""The unfinished inquiries of all nodes."""
UNFINISHED_BYTES_MAX: Final = 2 * DESCRIPTION_BYTES_MAX
"""The unfinished descriptions of all homes."""
OWNERS_AN_ITEM: Final = 64
"""A group with more owners is described in several items."""
_PARTITION_MAX: Final = 2**31 - 1


def inquiry_parts(inquiry: Inquiry) -> Iterator[bytes]:
    """The bodies of the frames of an inquiry."""
    head: Json = {"number": inquiry.number}
    if inquiry.named:
        head["named"] = inquiry.named
    return parts_of(head, "subjects", map(_of_subject, inquiry.subjects))


def description_parts(description: Description) -> Iterator[bytes]:
    """The bodies of the frames of a description."""
    head: Json = {"number": description.number}
    if description.named:
        head["named"] = description.named
    return parts_of(head, "items", _of_items(description.items))


class Inquiries:
    """The inquiries in the frames of a connection."""

    def __init__(self, unfinished: Unfinished | None = None) -> None:
        self._parts: Final[Parts[Subject]] = Parts("inquiry", INQUIRY_BYTES_MAX, unfinished)

    def give_up(self) -> None:
        """Forget an unfinished inquiry: the connection has ended."""
        self._parts.give_up()

    def take(self, body: bytes) -> Inquiry | None:
        """Take the body of a frame. None: more parts of the inquiry follow.

        Raises:
            FrameError: it is not an inquiry.
        """
        fields = Fields.of(body, "inquiry")
        inquiry = Inquiry(fields.whole("number", NUMBER_MAX), (), fields.wholes("named", BUCKETS - 1))
        subjects = [_subject(each) for each in fields.inner_list("subjects")]
        whole = self._parts.take(fields, inquiry, subjects, len(body))
        if whole is not None and len(whole) > SUBJECTS_MAX:
            message = f"inquiry has {len(whole)} subjects, and may have {SUBJECTS_MAX}"
            raise FrameError(message)
        return None if whole is None else replace(inquiry, subjects=whole)


class Descriptions:
    """The descriptions in the frames of a connection."""

    def __init__(self, unfinished: Unfinished | None = None) -> None:
        self._parts: Final[Parts[Described | Named]] = Parts("description", DESCRIPTION_BYTES_MAX, unfinished)

    def give_up(self) -> None:
        """Forget an unfinished description: the connection has ended."""
        self._parts.give_up()

    def take(self, body: bytes) -> Description | None:
        """Take the body of a frame. None: more parts of the description follow.

        Raises:
            FrameError: it is not a description.
        """
        fields = Fields.of(body, "description")
        head = Description(fields.whole("number", NUMBER_MAX), fields.wholes("named", BUCKETS - 1))
        items = [_item(each) for each in fields.inner_list("items")]
        whole = self._parts.take(fields, head, items, len(body))
        return None if whole is None else replace(head, items=tuple(_joined(whole)))


def _of_subject(subject: Subject) -> Json:
    made: Json = {"bucket": subject.bucket, "log": subject.incarnation}
    if subject.group is not None:
        made["group"] = subject.group
    if subject.cursor is not None:
        made["cursor"] = subject.cursor
    return made


def _subject(fields: Fields) -> Subject:
    return Subject(
        fields.whole("bucket", BUCKETS - 1),
        fields.text("log"),
        fields.text_or_none("group"),
        fields.text_or_none("cursor"),
    )


def _of_items(items: Iterable[Described | Named]) -> Iterator[Json]:
    for item in items:
        if isinstance(item, Named):
            yield {"bucket": item.bucket, "log": item.incarnation, "group": item.group}
            continue
        made = _of_described(item)
        yield made | _of_owners(item.owners[:OWNERS_AN_ITEM])
        for first in range(OWNERS_AN_ITEM, len(item.owners), OWNERS_AN_ITEM):
            yield {"at": item.at} | _of_owners(item.owners[first : first + OWNERS_AN_ITEM])


def _of_owners(owners: tuple[tuple[int, str], ...]) -> Json:
    if not owners:
        return {}
    return {"partitions": [at for at, _ in owners], "members": [name for _, name in owners]}


def _of_described(item: Described) -> Json:
    made: Json = {"at": item.at, "exists": item.exists}
    if item.active:
        made["active"] = True
    if item.waiting:
        made["waiting"] = item.waiting
    if item.epochs:
        made["epochs"] = item.epochs
    if item.kept is not None:
        kept: Json = {"updated_ms": item.kept.updated_ms, "positions": item.kept.positions}
        made["kept"] = kept if item.kept.user is None else {**kept, "user": item.kept.user}
    return made


def _item(fields: Fields) -> Described | Named:
    if fields.whole_or_none("at") is None:
        return Named(fields.whole("bucket", BUCKETS - 1), fields.text("log"), fields.text("group"))
    indices, members = fields.wholes("partitions", _PARTITION_MAX), fields.texts("members")
    if len(indices) != len(members):
        raise fields.error("members", "one for each of the partitions")
    kept = fields.inner_or_none("kept")
    return Described(
        fields.whole("at", SUBJECTS_MAX - 1),
        fields.flag("exists"),
        fields.flag("active"),
        fields.whole_or_none("waiting", NUMBER_MAX) or 0,
        tuple(zip(indices, members, strict=True)),
        fields.pairs("epochs"),
        None
        if kept is None
        else Kept(kept.text_or_none("user"), kept.whole("updated_ms", NUMBER_MAX), kept.pairs("positions")),
    )


def _joined(items: Iterable[Described | Named]) -> Iterator[Described | Named]:
    """The items, with those of one subject in one."""
    for at, of_one in groupby(items, lambda item: item.at if isinstance(item, Described) else None):
        if at is None:
            yield from of_one
            continue
        described = [item for item in of_one if isinstance(item, Described)]
        if len(described) == 1:
            yield described[0]
        else:
            owners = tuple(owner for item in described for owner in item.owners)
            yield replace(described[0], owners=owners)
