"""The tracer that the dispatcher needs, and the tracer of a gateway without traces. Pure."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from knative_gateway.delivery import Post
from knative_gateway.ports import Subscriber


class Span(Protocol):
    """The span of one attempt."""

    def record(self, status: int | None, reason: str, *, failed: bool) -> None:
        """Record the answer. `status`: None if no answer came; then `reason` gives the cause."""


class Tracer(Protocol):
    """Makes a span for each attempt."""

    @property
    def enabled(self) -> bool:
        """False: no spans are made, and first attempts may skip `delivering`."""

    def delivering(
        self,
        spec: Subscriber,
        post: Post,
        *,
        partition: int,
        offset: str,
    ) -> AbstractContextManager[tuple[Sequence[tuple[str, str]] | None, Span]]:
        """Open the span of an attempt. Yields the span and its trace headers; None: pass on the event's own
        trace.
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
        """Return a context manager that does nothing. All attempts share it, because it has no state."""
        return self._nothing

    def record(self, status: int | None, reason: str, *, failed: bool) -> None:
        """Do nothing."""


NO_TRACES: Final = NoTraces()
