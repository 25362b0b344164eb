"""[io] Connections to subscribers: pooled by destination, and to allowed addresses only.

Law: the address that is connected to is one that the rules were asked about: names are resolved here, and nobody resolves them again.
"""

import socket
import ssl
from contextvars import ContextVar
from typing import Final

from aiohttp import ClientRequest, ClientTimeout, TCPConnector, ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace

from knative_gateway.destinations import Destinations

KEEP_ALIVE_S: Final = 4.0
"""Common servers close idle connections after five seconds: below that, requests seldom meet one that is closing."""

reused: Final[ContextVar[bool]] = ContextVar("reused", default=True)
"""In the task of a request that set it to True: it went over a connection that had one before."""


class DeniedError(OSError):
    """The rules deny this destination."""


class Resolver(AbstractResolver):
    """Names to addresses, less those that the rules deny."""

    def __init__(self, rules: Destinations, inner: AbstractResolver | None = None) -> None:
        self._rules: Final = rules
        self._inner: Final = inner or ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """The addresses of a host that may be connected to.

        Raises:
            DeniedError: none of them may.
            OSError: there are none.
        """
        found = await self._inner.resolve(host, port, family)
        refusals = [self._rules.refusal(host, each["host"]) for each in found]
        allowed = [each for each, refusal in zip(found, refusals, strict=True) if refusal is None]
        if found and not allowed:
            raise DeniedError(f"destination denied: {refusals[0]}")
        return allowed

    async def close(self) -> None:
        """Nothing is kept."""
        await self._inner.close()


class Connector(TCPConnector):
    """A pool of connections that knows whether one is new: a request that dies on an old one may have met its end, and says nothing."""

    def __init__(self, rules: Destinations, context: ssl.SSLContext, resolver: AbstractResolver | None = None) -> None:
        def socket_for(address: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
            # Addresses in URLs come past the resolver.
            family, kind, protocol, _, place = address
            refusal = rules.refusal_of_address(str(place[0]))
            if refusal is not None:
                raise DeniedError(f"destination denied: {refusal}")
            return socket.socket(family, kind, protocol)

        super().__init__(
            limit=0,  # each subscriber's window bounds its own; a common bound would let the slow hold up the others
            ssl=context,
            resolver=Resolver(rules, resolver),
            keepalive_timeout=KEEP_ALIVE_S,
            socket_factory=socket_for,
        )

    async def _create_connection(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> ResponseHandler:  # noqa: ASYNC109  the library's signature
        """A new connection, when there is none to use again."""
        reused.set(False)
        return await super()._create_connection(req, traces, timeout)


def denied(error: BaseException | None) -> DeniedError | None:
    """The refusal behind an error of the HTTP client."""
    while error is not None:
        if isinstance(error, DeniedError):
            return error
        error = getattr(error, "os_error", None) or error.__cause__
    return None
