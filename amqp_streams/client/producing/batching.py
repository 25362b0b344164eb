"""Batched sends: which events of a producer share a transfer, and what the outcome of a batch means for each
of them. Pure. See docs/batched-sends.md.

Laws: batches keep the order of the events. A rejected batch fails only the event that the node names: the
others are sent again alone, and only an event that is rejected alone fails. Events after a rejected batch are
not sent before its remaining events are. The events of a batch of which a part may be stored are sent again
alone: while one of its partitions is away, the events of the others are stored twice, and not each time.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, cast

from amqp_streams import names
from amqp_streams.client.connection.links import SEND_BUFFER_BYTES_MAX
from amqp_streams.client.errors import EndpointError, RejectedError, ReleasedError
from amqp_streams.client.producing.outbox import Entry, Outbox
from amqp_streams.errors import WireError
from amqp_streams.proton.sending import Sendable
from amqp_streams.wire.batched.compression import Codec, codec, compressed
from amqp_streams.wire.batched.sends import (
    BATCH_OVERHEAD_BYTES,
    EVENT_BYTES,
    FORMAT_BYTES,
    event_text,
    resuming,
    write_sent_batch,
)
from amqp_streams.wire.types import Symbol

BYTES_DEFAULT: Final = 256 << 10
"""The size of a batch. Larger batches save nothing: the cost of a transfer is then small."""
BYTES_MAX: Final = 1 << 20
_TURN_MAX: Final = 10_000
"""Events that one loop iteration puts into batches, so that other links of the client are not delayed."""
_PER_EVENT: Final = EVENT_BYTES + FORMAT_BYTES
_DECOMPRESSED_MAX: Final = 64 << 20
"""The most bytes of a batch that a program has compressed itself. Nodes take less."""
_MODIFIED: Final = "modified"
"""The condition of a batch of which a part may be stored."""
_SENT_AGAIN: Final = "another event of the batch is not valid"


class Batch:
    """Events that share a transfer (`Sendable`). The bytes are made when they are sent, and not kept."""

    __slots__ = ("codec", "entries", "messages", "resumes")
    message_format: Final = names.BATCH_MESSAGE_FORMAT

    def __init__(
        self,
        entries: Sequence[Entry],
        codec: Codec | None = None,
        messages: Sequence[bytes] | None = None,
    ) -> None:
        """`messages`: those of the entries, if all their message-formats are 0; None: they are looked up."""
        self.entries: Final = entries
        self.codec: Final = codec
        self.messages: Final = messages
        self.resumes = False

    @property
    def message(self) -> bytes:
        """The bytes of the batch."""
        entries = self.entries
        # The program made the batch, and `group` compresses it.
        if entries[0].message_format == names.BATCH_MESSAGE_FORMAT:
            made = entries[0].message
            return compressed(_resuming(made) if self.resumes else made, self.codec)
        messages, formats = self.messages, dict[int, int]()
        if messages is None:
            messages = [entry.message for entry in entries]
            formats = {
                index: each.message_format for index, each in enumerate(entries) if each.message_format
            }
        return compressed(write_sent_batch(messages, formats, resumes=self.resumes), self.codec)


Refused = list[tuple[Entry, EndpointError]]


class Batching:
    """The batches of one producer.

    `events_max`: the most events of a batch on the current link; 0: the node does not take batches.
    `resuming`: a batch was rejected, and the node waits until the producer resumes.
    """

    def __init__(self, bytes_max: int, compression: str | None = None) -> None:
        """Raises: ValueError if `bytes_max` is not from 0 (no batches) to BYTES_MAX, or the codec is unknown;
        MissingExtraError if the library of the codec is not installed.
        """
        if not 0 <= bytes_max <= BYTES_MAX:
            message = f"batch_bytes must be from 0 to {BYTES_MAX} (got {bytes_max})"
            raise ValueError(message)
        self.bytes_max: Final = bytes_max
        self.events_max = 0
        self.resuming = False
        self._wanted: Final = None if compression is None else codec(compression)
        self._codec: Codec | None = None
        self._link_bytes_max = bytes_max
        self._uncompressed_max = 0
        self._alone: set[int] = set()
        """Numbers of the events that must not share a transfer."""

    @property
    def wanted(self) -> tuple[str, ...]:
        """The capabilities to ask for."""
        return (names.CAPABILITY_BATCHED_SENDS,) if self.bytes_max else ()

    @property
    def properties(self) -> dict[str, object]:
        """The link properties to ask for."""
        wanted = self._wanted
        return {} if wanted is None or not self.bytes_max else {names.BATCH_COMPRESSION: Symbol(wanted.name)}

    def attached(self, properties: Mapping[str, object]) -> None:
        """A link was attached. `properties`: of the node's answer."""
        most = properties.get(names.BATCH_EVENTS)
        self.events_max = most if self.bytes_max and isinstance(most, int) else 0
        self.resuming = False
        # Compression is an offer of the node: without it, the batches are sent as they are.
        wanted, largest = self._wanted, properties.get(names.BATCH_UNCOMPRESSED_BYTES)
        agreed = wanted is not None and properties.get(names.BATCH_COMPRESSION) == wanted.name
        self._uncompressed_max = largest if agreed and isinstance(largest, int) else 0
        self._codec = wanted if self._uncompressed_max else None
        self._link_bytes_max = min(self.bytes_max, self._uncompressed_max or self.bytes_max)

    def group(
        self, entries: Sequence[Entry], message_bytes_max: int, *, formatted: bool = True
    ) -> list[Sendable]:
        """Return the transfers for these events, in order. `message_bytes_max`: of the link; 0: no limit.

        `formatted`: a message-format may differ from 0.
        """
        bytes_max = min(self._link_bytes_max, message_bytes_max or self.bytes_max) - BATCH_OVERHEAD_BYTES
        usual = not (formatted or self._alone)
        sendables = self._grouped(entries, bytes_max) if usual else None
        if sendables is None:
            sendables = self._sorted(entries, bytes_max)
        if self.resuming and sendables:
            first = sendables[0]
            batch = first if isinstance(first, Batch) else Batch([cast("Entry", first)])
            batch.resumes = True
            sendables[0] = batch
        return sendables

    def _grouped(self, entries: Sequence[Entry], bytes_max: int) -> list[Sendable] | None:
        """The hot path of `group`, without a step of Python for each event: only sizes decide. None: an event
        is too large for a batch.
        """
        messages, codec, events_max = [entry.message for entry in entries], self._codec, self.events_max
        ends = list(accumulate(map(_PER_EVENT.__add__, map(len, messages)), initial=0))
        sendables: list[Sendable] = []
        at, count = 0, len(messages)
        while at < count:
            end = min(at + events_max, bisect_right(ends, ends[at] + bytes_max, at) - 1)
            if end <= at:
                return None
            sendables.append(Batch(entries[at:end], codec, messages[at:end]) if end - at > 1 else entries[at])
            at = end
        return sendables

    def _sorted(self, entries: Sequence[Entry], bytes_max: int) -> list[Sendable]:
        alone, codec = self._alone, self._codec
        sendables: list[Sendable] = []
        open_: list[Entry] = []
        room, events_max = bytes_max, self.events_max
        for entry in entries:
            size = len(entry.message) + _PER_EVENT
            # An event that a program sends as a batch already cannot be in another one.
            single = (
                size > bytes_max
                or entry.message_format == names.BATCH_MESSAGE_FORMAT
                or (alone and entry.number in alone)
            )
            if single or size > room or len(open_) >= events_max:
                _close(open_, sendables, codec)
                open_, room = [], bytes_max
            if single and not self._takes_compressed(entry):
                sendables.append(entry)
            elif single:
                sendables.append(Batch([entry], codec))
            else:
                open_.append(entry)
                room -= size
        _close(open_, sendables, codec)
        return sendables

    def _takes_compressed(self, entry: Entry) -> bool:
        """Whether to compress an event that a program sends as a batch already."""
        return (
            entry.message_format == names.BATCH_MESSAGE_FORMAT
            and len(entry.message) <= self._uncompressed_max
            and not self.resuming  # with its annotation it may be too large
        )

    def accepted(self, sendables: Iterable[Sendable]) -> list[Entry]:
        """Return the events of accepted transfers."""
        entries = events_of(sendables)
        self._answered(entries)
        return entries

    def refused(self, sendables: Iterable[tuple[Sendable, EndpointError]]) -> Refused:
        """Return the events of refused transfers, each with its own error."""
        found: Refused = []
        for each, error in sendables:
            entries = each.entries if type(each) is Batch else (cast("Entry", each),)
            if isinstance(error, RejectedError) and len(entries) > 1:
                found += self._taken_apart(entries, error)
            else:
                if (
                    isinstance(error, RejectedError)
                    and entries[0].message_format == names.BATCH_MESSAGE_FORMAT
                ):
                    # The batch of a program fails as a whole, but the node waits as after any other batch.
                    self.resuming = True
                if self.resuming and error.condition == "released":
                    for entry in entries:
                        entry.attempts -= 1  # the node did not look at it
                if error.condition == _MODIFIED and len(entries) > 1:
                    self._alone.update(entry.number for entry in entries)
                found += [(entry, _own(error)) for entry in entries]
        if self._alone:
            self._answered([entry for entry, error in found if not isinstance(error, ReleasedError)])
        return found

    def _taken_apart(self, entries: Sequence[Entry], error: RejectedError) -> Refused:
        self.resuming = True
        index = error.info.get(names.EVENT_INDEX)
        bad = entries[index] if isinstance(index, int) and 0 <= index < len(entries) else None
        found: Refused = []
        for entry in entries:
            if entry is bad:
                found.append((entry, _own(error)))
            else:
                entry.attempts -= 1  # nothing of the batch was stored
                self._alone.add(entry.number)
                found.append((entry, ReleasedError("released", _SENT_AGAIN)))
        return found

    def _answered(self, entries: Iterable[Entry]) -> None:
        if self._alone:
            self._alone.difference_update([entry.number for entry in entries])


def share_of(outbox: Outbox) -> int:
    """Return how many events to take for batches: about as many as the buffer of a link holds."""
    fitting = SEND_BUFFER_BYTES_MAX * outbox.events // max(1, outbox.bytes)
    return max(1, min(_TURN_MAX, fitting))


def events_of(sendables: Iterable[Sendable]) -> list[Entry]:
    """Return the events of transfers, in order."""
    entries: list[Entry] = []
    for each in sendables:
        if type(each) is Batch:
            entries += each.entries
        else:
            entries.append(cast("Entry", each))
    return entries


def _close(entries: list[Entry], sendables: list[Sendable], codec: Codec | None) -> None:
    if len(entries) > 1:
        sendables.append(Batch(entries, codec))
    elif entries:
        sendables.append(entries[0])


def _resuming(batch: bytes) -> bytes:
    try:
        return resuming(batch, _DECOMPRESSED_MAX)
    except WireError:
        return batch  # the node rejects it, and the next batch resumes the link


def _own(error: EndpointError) -> EndpointError:
    """Return the error of a batch as that of the event that it names."""
    index = error.info.get(names.EVENT_INDEX)
    if not isinstance(index, int):
        return error
    info = {name: value for name, value in error.info.items() if name != names.EVENT_INDEX}
    return type(error)(error.condition, event_text(index, error.description), info)
