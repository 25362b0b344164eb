"""Messages that are larger than a frame should be: made of parts, one frame each. Pure.

A report or an answer of a node with thousands of links is sent in parts, so that no loop is busy for long
with one of them.

Laws: a message is used only if all its parts have come, in their order. All unfinished messages of a node
together are bounded: at the bound, the one that began first is given up, so a node that never ends its
messages costs itself only.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from amqp_streams.homes.protocol.fields import Fields, Json, encoded
from amqp_streams.homes.protocol.frames import FrameError

PART_BYTES: Final = 16 << 10
"""A part ends with the item that reaches this size: about a millisecond of work."""

_Item = TypeVar("_Item")


def parts_of(head: Json, name: str, items: Iterable[Json]) -> Iterator[bytes]:
    """The bodies of a message: `head` and the next items in the list `name`."""
    part, size, texts = 0, 0, list[bytes]()
    for item in items:
        if size >= PART_BYTES:
            yield _part(head, name, texts, part, more=True)
            part, size, texts = part + 1, 0, []
        text = encoded(item).encode()
        texts.append(text)
        size += len(text)
    yield _part(head, name, texts, part, more=False)


def _part(head: Json, name: str, texts: list[bytes], part: int, *, more: bool) -> bytes:
    fields = dict(head)
    if part:
        fields["part"] = part
    if more:
        fields["more"] = True
    return b'%s,"%s":[%s]}' % (encoded(fields)[:-1].encode(), name.encode(), b",".join(texts))


class Unfinished:
    """The unfinished messages of all connections. `bytes_max`: of their parts together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.given_up = 0
        """How many messages were given up."""
        self._bytes_max: Final = bytes_max
        self._sizes: Final[dict[Parts[Any], int]] = {}
        """In the order in which they began."""

    def add(self, message: "Parts[Any]", size: int) -> None:
        """A part of a message has come."""
        self._sizes[message] = self._sizes.get(message, 0) + size
        self.bytes += size
        while self.bytes > self._bytes_max:
            self.given_up += 1
            next(iter(self._sizes)).give_up()

    def end(self, message: "Parts[Any]") -> None:
        """The message is complete, or not wanted any more."""
        self.bytes -= self._sizes.pop(message, 0)


class Parts(Generic[_Item]):
    """Puts the messages of one direction of a connection together. It holds at most one unfinished message.

    `bytes_max`: of all parts of a message. `unfinished`: of all connections.
    """

    def __init__(self, where: str, bytes_max: int, unfinished: Unfinished | None = None) -> None:
        self._unfinished: Final = unfinished or Unfinished(bytes_max)
        self._given_up = False
        self._where: Final = where
        self._bytes_max: Final = bytes_max
        self._head: object = None
        self._next = 0
        self._bytes = 0
        self._items: list[_Item] = []

    def take(self, fields: Fields, head: object, items: list[_Item], size: int) -> tuple[_Item, ...] | None:
        """Take a part of the message with this `head`. Returns all items if it was the last part.

        Raises:
            FrameError: the part does not follow the part before, or the message is too large.
        """
        part = fields.whole_or_none("part") or 0
        if part == 0:
            self.give_up()
            self._head, self._given_up = head, False
        elif self._given_up:
            return None
        elif part != self._next or head != self._head:
            raise fields.error("part", "the next part of the message before")
        self._next = part + 1
        self._bytes += size
        if self._bytes > self._bytes_max:
            message = f"{self._where} has more than {self._bytes_max} bytes"
            raise FrameError(message)
        self._items += items
        if fields.flag("more"):
            self._unfinished.add(self, size)
            return None
        whole = tuple(self._items)
        self.give_up()
        self._given_up = False
        return whole

    def give_up(self) -> None:
        """Forget an unfinished message. What follows of it is ignored."""
        self._unfinished.end(self)
        self._given_up = True
        self._head, self._next, self._bytes, self._items = None, 0, 0, []
