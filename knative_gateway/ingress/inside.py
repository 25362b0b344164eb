"""[io] The way in for events of the gateway itself: from a delivery to a Broker or Channel of its own,
without a connection or a token.
"""

from collections.abc import Sequence
from typing import Final

from knative_gateway.errors import ForbiddenError
from knative_gateway.ingress.answers import Answer, Header, refusal
from knative_gateway.ingress.app import Ingress
from knative_gateway.security.inward import Inward


class Inside:
    """Knows which URLs it is for."""

    def __init__(self, ingress: Ingress, inward: Inward) -> None:
        self._ingress: Final = ingress
        self._inward: Final = inward

    def leads_in(self, url: str) -> bool:
        """Whether events for this URL go to `take`."""
        return self._inward.path_of(url) is not None

    async def take(self, url: str, namespace: str, headers: Sequence[Header], body: bytes) -> Answer:
        """Store the event of a request, which an object of this namespace sends; names of headers in lower
        case.
        """
        path = self._inward.path_of(url)
        assert path is not None, "it was asked before"
        refused = self._inward.refusal(url, namespace)
        if refused is not None:
            return refusal(ForbiddenError(refused))
        return await self._ingress.take(path, headers, body)
