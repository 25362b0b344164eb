"""Numbers for the events of a producer that has an id, so that the node stores each once however often it is
sent. Pure.

Law: numbers rise in the order of sending, and an event keeps its own however often it goes out.
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
"""The number of the first event, each following one higher by one; or one for each; or None: the producer
numbers by itself.
"""


def checked_id(producer_id: str) -> str:
    """The id. Raises ValueError if it cannot be one."""
    if not 0 < len(producer_id.encode()) <= PRODUCER_ID_BYTES_MAX:
        message = f"a producer's id is text of 1 to {PRODUCER_ID_BYTES_MAX} bytes"
        raise ValueError(message)
    return producer_id


class Numbering:
    """The numbers of one producer."""

    def __init__(self) -> None:
        self._last = -1
        self._next = 0

    def heard(self, highest: object) -> None:
        """The node says how far the producer has come: what is numbered here goes on behind that."""
        if isinstance(highest, int):
            self._next = max(self._next, highest + 1)

    def number(self, entries: Sequence[Entry], sequences: Sequences) -> None:
        """Put numbers into messages that were never sent.

        Raises:
            SequenceError: they do not rise, or one is too large. Nothing is changed.
            WireError: one is not a message.
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
                f"numbers rise from event to event, up to {SEQUENCE_MAX}: {list(numbers[:3])} after"
                f" {previous}"
            )
            raise SequenceError(description)
        for entry, message in zip(
            entries, with_sequences([entry.message for entry in entries], numbers), strict=True
        ):
            entry.message = message
        self._last = numbers[-1]
        self._next = max(self._next, self._last + 1)


def share(sequences: Sequences, at: int, count: int) -> Sequences:
    """The part of them for `count` events from number `at` on."""
    if sequences is None:
        return None
    return sequences + at if isinstance(sequences, int) else sequences[at : at + count]
