"""[io] The ingress where traces are asked for: each request is a span, each event that it stores another
below it.

Nothing comes in by the direct way then, so that what most requests go through knows nothing of traces.
"""

from typing import Final

from knative_gateway.ingress.answers import Answer
from knative_gateway.ingress.app import Ingress, IngressLimits, Message, Receive
from knative_gateway.ingress.figures import RouteFigures
from knative_gateway.ports import Authorizer, EventLog, Route, Routes
from knative_gateway.tracing import TracedLog, Traces


class TracedIngress(Ingress):
    """As any ingress."""

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
        """Serve these from the next request on."""
        super().use(routes)
        self.direct = {}

    async def _post(self, route: Route, figures: RouteFigures, scope: Message, receive: Receive) -> Answer:
        with self._traces.receiving(route, scope["headers"]) as (outcome, headers):
            answer = await super()._post(route, figures, {**scope, "headers": headers}, receive)
            outcome.record(answer.status, "", failed=answer.status >= 500)
        return answer
