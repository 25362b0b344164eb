"""What an answer to a POST means: accepted, a reply, a retry, or a failure.

Spec: knative-eventing-test-spec, "Event Acknowledgement and Delivery Retry". Where the data plane contract's
table differs, the test specification is followed; 408 is retried as well. A redirect is a failure and is not
followed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from event_formats.event import CloudEvent

OK: Final = 200
RETRIED: Final = frozenset((404, 408, 409, 429))
"""Statuses below 500 that are retried. All statuses from 500 on are retried."""
OVERLOADED: Final = frozenset((429, 503))
"""Statuses with which `Retry-After` is used."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How one POST ended.

    `status` None: no answer came, and `reason` says why (timeout, connection refused, …). `at_ms`: when it
    came, milliseconds since 1970 UTC. `body`: its first bytes, for the history. `event`: the CloudEvent in
    the answer, if there is one. `elapsed_ms`: how long the request took. `final`: no answer came, and a retry
    cannot help (a destination that is not allowed).
    """

    status: int | None
    at_ms: int
    reason: str = ""
    body: bytes = b""
    headers: Sequence[tuple[bytes, bytes]] = field(default=())
    event: CloudEvent | None = None
    elapsed_ms: int = 0
    final: bool = False

    def header(self, name: bytes) -> str | None:
        """The first value of a header. `name`: in lower case."""
        return next(
            (value.decode("latin-1").strip() for key, value in self.headers if key.lower() == name), None
        )


class Verdict(StrEnum):
    """What an answer means for the delivery."""

    ACCEPTED = "accepted"
    REPLIED = "replied"
    RETRY = "retry"
    FAILED = "failed"


def succeeded(status: int | None) -> bool:
    """Whether the event was accepted: any status 2xx."""
    return status is not None and 200 <= status < 300


def retryable(status: int | None) -> bool:
    """Whether a retry may help: no answer, a status of the table, or a failure of the subscriber."""
    return status is None or status in RETRIED or status >= 500


def verdict(answer: Answer, *, reply_wanted: bool) -> Verdict:
    """What an answer means. `reply_wanted`: the POST had `Prefer: reply`; without it an event in the answer
    is ignored.
    """
    if succeeded(answer.status):
        return (
            Verdict.REPLIED
            if reply_wanted and answer.status == OK and answer.event is not None
            else Verdict.ACCEPTED
        )
    return Verdict.RETRY if retryable(answer.status) and not answer.final else Verdict.FAILED


def overloaded(answer: Answer) -> bool:
    """Whether the subscriber gets more than it can process, so that congestion control sends less."""
    if answer.final:
        return False
    return answer.status is None or answer.status in {408, 429} or answer.status >= 500
