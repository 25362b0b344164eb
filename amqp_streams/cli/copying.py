"""Copies events from a consumer to stdout, in the requested form, until no more are expected."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from amqp_streams.cli.terminal.console import say
from amqp_streams.cli.terminal.parameters import now_ms
from amqp_streams.cli.terminal.rendering import Format, Shown, render
from amqp_streams.cli.terminal.starts import AtTime, Bounds, Remaining
from amqp_streams.cli.terminal.writing import Output
from amqp_streams.client import ReceivedEvent, TimedOutError
from amqp_streams.errors import WireError

_FAILED: Final = 1
_BATCH_EVENTS: Final = 500
_SLICE_S: Final = 1.0
"""How often a wait checks whether stdout is still read and whether the time of --until has passed."""


class Source(Protocol):
    """A source of events: a client's consumer, of a log or in a group."""

    async def receive(self, max_events: int = 500, timeout: float | None = None) -> list[ReceivedEvent]:  # noqa: ASYNC109  # the client's
        """The next events; none after `timeout` seconds."""

    async def receive_retained(
        self,
        max_events: int = 500,
        timeout: float | None = None,  # noqa: ASYNC109 noqa: ASYNC109  # the client's
    ) -> list[ReceivedEvent]:
        """The next of the present events; none at their end.

        Raises:
            TimedOutError: neither is known in time.
        """

    def settle(self, events: Iterable[ReceivedEvent]) -> None:
        """Settle these events."""


@dataclass(frozen=True, slots=True)
class Ending:
    """When to stop.

    `drained`: at the end of the present events; `reached`: called when no event arrives: whether the log has
    passed the given end, so that events that a filter rejects need not be waited for; `settles`: settle the
    printed events.
    """

    follow: bool = False
    drained: bool = False
    settles: bool = False
    events_max: int | None = None
    timeout_s: float | None = None
    remaining: Remaining | None = None
    bounds: Bounds = field(default_factory=lambda: Bounds(None, None))
    reached: Callable[[], Awaitable[bool]] | None = None


class Copied(NamedTuple):
    """The exit status of the command, and the number of printed events."""

    status: int
    events: int


async def copy(source: Source, ending: Ending, form: Format) -> Copied:
    """Print events until no more are expected."""
    output = Output()
    left = ending.events_max
    printed = 0
    heard = time.monotonic()
    while True:
        events = await _next(source, ending, _BATCH_EVENTS if left is None else min(_BATCH_EVENTS, left))
        if events:
            kept = _kept(events, ending.remaining)
            await output.write(b"".join(line_of(event, form) for event in kept))
            heard = time.monotonic()
            # After the write: an event whose output was lost must come again.
            if ending.settles:
                source.settle(events)
            printed += len(kept)
            if left is not None:
                left -= len(kept)
        # Without events no write fails, so a closed stdout is noticed here.
        output.check()
        if events is None or left == 0 or (ending.remaining is not None and not ending.remaining):
            return Copied(0, printed)
        # Events before the end may still be on their way, so the rest is drained.
        if not events and not ending.drained and await _over(ending):
            ending = replace(ending, drained=True)
        if ending.timeout_s is not None and time.monotonic() - heard >= ending.timeout_s:
            say(f"no event arrived for {ending.timeout_s:g} s")
            return Copied(0 if ending.follow else _FAILED, printed)


async def _next(source: Source, ending: Ending, count_max: int) -> Sequence[ReceivedEvent] | None:
    """The next events; none when it is time to check; None at the end."""
    slice_s = min(_SLICE_S, ending.timeout_s or _SLICE_S)
    if not ending.drained:
        return await source.receive(count_max, timeout=slice_s)
    try:
        return await source.receive_retained(count_max, timeout=slice_s) or None
    except TimedOutError:
        # Neither events nor the end: the caller makes its checks, and asks again.
        return ()


def line_of(event: ReceivedEvent, form: Format) -> bytes:
    """The printed form of an event.

    An event that cannot be decoded must not block later ones: it is shown as stored.
    """
    try:
        return render(shown(event, form), form)
    except WireError as error:
        say(
            f"partition {event.partition}, offset {event.offset}: {error}; the message is shown as it is"
            " stored"
        )
        return render(
            Shown(
                event.partition,
                event.offset,
                event.timestamp_ms,
                body=event.encode(),
                message_format=event.message_format,
            ),
            form,
        )


def shown(event: ReceivedEvent, form: Format) -> Shown:
    """An event to print; only what the form shows is decoded."""
    if form is Format.BODY or form is Format.RAW:
        return Shown(None, None, None, body=_stripped(event).body)
    position, message = (event.partition, event.offset, event.timestamp_ms), _stripped(event)
    if form is Format.TEXT:
        return Shown(*position, key=message.key, body=message.body, message_format=event.message_format)
    return Shown(
        *position,
        message_format=event.message_format,
        key=message.key,
        subject=message.subject,
        content_type=message.content_type,
        properties=message.properties,
        annotations=message.annotations,
        body=message.body,
    )


def _stripped(event: ReceivedEvent) -> ReceivedEvent:
    """The event without delivery annotations, whose decoding is slow: the offset is already known."""
    return ReceivedEvent(event.encode())


def _kept(events: Sequence[ReceivedEvent], remaining: Remaining | None) -> Sequence[ReceivedEvent]:
    if remaining is None:
        return events
    return [event for event in events if remaining.wants(event.partition, event.offset, event.timestamp_ms)]


async def _over(ending: Ending) -> bool:
    """No event arrives, and later ones are after the given end: its time has passed, or its offsets exist."""
    end = ending.bounds.end
    if isinstance(end, AtTime):
        # A second for the clocks of this machine and the node.
        return now_ms() > end.ms + 1000
    return ending.reached is not None and await ending.reached()
