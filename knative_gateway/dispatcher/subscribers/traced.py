"""[io] A courier where traces are asked for: each POST is a span.

Every event goes the long way then, so that the short one knows nothing of traces.
"""

from collections.abc import Sequence

from knative_gateway.delivery import Answer, Post
from knative_gateway.delivery.outcome import succeeded
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.dispatcher.subscribers.courier import Courier
from knative_gateway.dispatcher.subscribers.flight import Flight
from knative_gateway.dispatcher.subscribers.redriving import Again
from knative_gateway.dispatcher.subscribers.track import Track


class TracedCourier(Courier):
    """As any courier."""

    def _begin(self, track: Track | Again) -> None:
        self._carry_later(Flight(self, track, *track.take()), None)

    async def _post(self, post: Post, arrival: Arrival, trace: Sequence[tuple[str, str]] | None = None) -> Answer:
        traces = self.outside.settings.traces
        assert traces is not None, "or it were a plain courier"
        assert trace is None, "it is made here"
        with traces.delivering(self.spec, post, arrival) as (headers, outcome):
            answer = await super()._post(post, arrival, headers)
            outcome.tell(answer.status, answer.reason, failed=answer.status is None or not succeeded(answer.status))
        return answer


def courier_class(*, traced: bool) -> type[Courier]:
    """What brings events to subscribers."""
    return TracedCourier if traced else Courier
