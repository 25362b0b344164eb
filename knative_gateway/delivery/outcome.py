"""The meaning of an answer to a POST: accepted, a reply, a retry, or a failure. Pure.

Where the data plane contract's table differs from the test specification, the test specification is followed.
408 is retried, too. A redirect is a failure and is not followed.

Spec: knative-eventing-test-spec, "Event Acknowledgement and Delivery Retry".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from event_formats.event import CloudEvent

OK: Final = 200
RETRIED: Final = frozenset((404, 408, 409, 429))
"""Statuses below 500 that are retried. All statuses from 500 on are retried, too."""
OVERLOADED: Final = frozenset((429, 503))
"""Statuses with which `Retry-After` is used."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one POST.

    `status`: None if no answer came; then `reason` gives the cause (timeout, connection refused, …). `at_ms`:
    the time of the answer in milliseconds since 1970 UTC. `body`: the first bytes, for the history. `event`:
    the CloudEvent in the answer, if the answer contains one. `elapsed_ms`: the duration of the request.
    `final`: no answer came, and a retry cannot help (the destination is denied).
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
        """Return the first value of a header. `name` must be in lower case."""
        return next(
            (value.decode("latin-1").strip() for key, value in self.headers if key.lower() == name), None
        )


class Verdict(StrEnum):
    """The meaning of an answer for the delivery."""

    ACCEPTED = "accepted"
    REPLIED = "replied"
    RETRY = "retry"
    FAILED = "failed"


def succeeded(status: int | None) -> bool:
    """Return whether the event was accepted: any status 2xx."""
    return status is not None and 200 <= status < 300


def retryable(status: int | None) -> bool:
    """Return whether a retry may help: no answer, a status of the table, or a server error."""
    return status is None or status in RETRIED or status >= 500


def verdict(answer: Answer, *, reply_wanted: bool) -> Verdict:
    """Return the meaning of an answer.

    `reply_wanted`: the POST had `Prefer: reply`. Without it, an event in the answer is ignored.
    """
    if succeeded(answer.status):
        return (
            Verdict.REPLIED
            if reply_wanted and answer.status == OK and answer.event is not None
            else Verdict.ACCEPTED
        )
    return Verdict.RETRY if retryable(answer.status) and not answer.final else Verdict.FAILED


# 404 and 409 are retried, but they do not show that there were too many requests, so they do not lower the
# limit.
def overloaded(answer: Answer) -> bool:
    """Return whether congestion control must send less: no answer, 408, 429, or a server error."""
    if answer.final:
        return False
    return answer.status is None or answer.status in {408, 429} or answer.status >= 500
