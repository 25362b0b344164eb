"""[io] The ingress for deliveries of the gateway to its own Brokers and Channels, without a connection or a
token.
"""

from collections.abc import Sequence
from typing import Final

from knative_gateway.errors import ForbiddenError
from knative_gateway.ingress.answers import Answer, Header, refusal
from knative_gateway.ingress.app import Ingress
from knative_gateway.security.inward import Inward


class Inside:
    """Stores events for URLs of this gateway."""

    def __init__(self, ingress: Ingress, inward: Inward) -> None:
        self._ingress: Final = ingress
        self._inward: Final = inward

    def leads_in(self, url: str) -> bool:
        """Return whether events for this URL go to `take`."""
        return self._inward.path_of(url) is not None

    async def take(self, url: str, namespace: str, headers: Sequence[Header], body: bytes) -> Answer:
        """Store the event of a request from an object of this namespace. Header names must be in lower case.

        Requires `leads_in(url)`.
        """
        path = self._inward.path_of(url)
        assert path is not None, "the caller has called leads_in"
        # The request does not pass the listener, so the rule between namespaces, which a token would enforce,
        # is applied here.
        refused = self._inward.refusal(url, namespace)
        if refused is not None:
            return refusal(ForbiddenError(refused))
        return await self._ingress.take(path, headers, body)
