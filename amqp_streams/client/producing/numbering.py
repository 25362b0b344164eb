"""Sequence numbers for the events of an idempotent producer, with which the node stores each event once.

Pure.

Law: numbers increase in the order of sending, and an event keeps its number each time it is sent. See
docs/idempotent-producers.md.
"""

from collections.abc import Sequence
from operator import lt
from typing import Final

from amqp_streams.client.errors import SequenceError
from amqp_streams.client.producing.outbox import Entry
from amqp_streams.wire.sequences import SEQUENCE_MAX, with_sequences

PRODUCER_ID_BYTES_MAX: Final = 256

Sequences = int | Sequence[int] | None
"""The number of the first event, if the others follow by one; or a number for each event; or None: the
producer numbers the events.
"""


def checked_id(producer_id: str) -> str:
    """Return `producer_id`.

    Raises:
        ValueError: it is not a valid id.
    """
    if not 0 < len(producer_id.encode()) <= PRODUCER_ID_BYTES_MAX:
        size = len(producer_id.encode())
        message = f"producer_id must have 1 to {PRODUCER_ID_BYTES_MAX} bytes in UTF-8 (got {size})"
        raise ValueError(message)
    return producer_id


class Numbering:
    """The sequence numbers of one producer."""

    def __init__(self) -> None:
        self._last = -1
        self._next = 0

    def heard(self, highest: object) -> None:
        """Record the highest number that the node has of this producer: numbering continues after it."""
        if isinstance(highest, int):
            self._next = max(self._next, highest + 1)

    def number(self, entries: Sequence[Entry], sequences: Sequences) -> None:
        """Write numbers into messages that were never sent.

        Raises:
            SequenceError if the numbers do not increase or one is too large, and WireError if a message is
            not valid. Then nothing has changed.
        """
        if not entries:
            return
        if sequences is None or isinstance(sequences, int):
            first = self._next if sequences is None else sequences
            numbers: Sequence[int] = range(first, first + len(entries))
        else:
            numbers = sequences
        previous = self._last
        rising = isinstance(numbers, range) or all(map(lt, numbers, numbers[1:]))
        if numbers[0] <= previous or not rising or numbers[-1] > SEQUENCE_MAX:
            description = (
                f"sequence numbers must increase and be at most {SEQUENCE_MAX} (got {list(numbers[:3])}"
                f" after {previous})"
            )
            raise SequenceError(description)
        # First everything is computed: an error must change nothing.
        for entry, message in zip(
            entries, with_sequences([entry.message for entry in entries], numbers), strict=True
        ):
            entry.message = message
        self._last = numbers[-1]
        self._next = max(self._next, self._last + 1)


def share(sequences: Sequences, at: int, count: int) -> Sequences:
    """Return the part of `sequences` for `count` events, from the event with index `at` on."""
    if sequences is None:
        return None
    return sequences + at if isinstance(sequences, int) else sequences[at : at + count]
