"""Traces of attempts: what the dispatcher needs of a tracer, and the tracer that is used without traces.
Pure.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from knative_gateway.delivery import Post
from knative_gateway.ports import Subscriber


class Span(Protocol):
    """The span of one attempt."""

    def record(self, status: int | None, reason: str, *, failed: bool) -> None:
        """Record the answer. `status` None: there was no answer, and `reason` says why."""


class Tracer(Protocol):
    """Makes a span of each attempt."""

    @property
    def enabled(self) -> bool:
        """False: no spans are made, so events may take the short path, which does not call `delivering`."""

    def delivering(
        self,
        spec: Subscriber,
        post: Post,
        *,
        partition: int,
        offset: str,
    ) -> AbstractContextManager[tuple[Sequence[tuple[str, str]] | None, Span]]:
        """Open the span of an attempt: its trace headers, and the span. None: the event's own trace is passed
        on.
        """


class NoTraces:
    """The tracer of a gateway without traces."""

    enabled: Final = False

    def __init__(self) -> None:
        self._nothing: Final = nullcontext((None, self))

    def delivering(
        self,
        spec: Subscriber,  # noqa: ARG002  as the protocol has it
        post: Post,  # noqa: ARG002
        *,
        partition: int,  # noqa: ARG002
        offset: str,  # noqa: ARG002
    ) -> AbstractContextManager[tuple[None, "NoTraces"]]:
        """Open nothing. All attempts share one context manager: it has no state."""
        return self._nothing

    def record(self, status: int | None, reason: str, *, failed: bool) -> None:
        """Record nothing."""


NO_TRACES: Final = NoTraces()
