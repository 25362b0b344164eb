"""[io] The ingress with traces: each request is a span, and each event that it stores is a child span.

The fast path is off, so that its code does not contain tracing.
"""

from typing import Final

from knative_gateway.ingress.answers import Answer
from knative_gateway.ingress.app import Ingress, IngressLimits, Message, Receive
from knative_gateway.ingress.figures import RouteFigures
from knative_gateway.ports import Authorizer, EventLog, Route, Routes
from knative_gateway.tracing import TracedLog, Traces


class TracedIngress(Ingress):
    """An ingress that makes spans."""

    def __init__(
        self,
        event_log: EventLog,
        traces: Traces,
        *,
        limits: IngressLimits | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(TracedLog(event_log, traces), limits=limits, authorizer=authorizer)
        self._traces: Final = traces

    def use(self, routes: Routes) -> None:
        """Serve these routes from the next request on, without the fast path."""
        super().use(routes)
        self.direct = {}

    async def _post(self, route: Route, figures: RouteFigures, scope: Message, receive: Receive) -> Answer:
        with self._traces.receiving(route, scope["headers"]) as (outcome, headers):
            answer = await super()._post(route, figures, {**scope, "headers": headers}, receive)
            outcome.record(answer.status, "", failed=answer.status >= 500)
        return answer
