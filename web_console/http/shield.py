"""[io] What every request meets first: headers of proxies, the Host header, and headers of security.

Laws: a page loads nothing from another host and runs no script that is not one of ours. A page of another
site can neither frame nor read a page of the console.
"""

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service_parts.texts import printable
from web_console.http.forwarded import inner_path, origin_of
from web_console.settings import ConsoleSettings

CLIENT: Final = "console.client"
"""The entry of a scope with the address of the client."""
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Shield:
    """An ASGI application in front of the pages."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app: Final = app
        self._settings: Final = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        # The server is started without WebSocket.
        assert scope["type"] == "http"
        headers = Headers(scope=scope)
        settings = self._settings
        peer = scope.get("client")
        origin = origin_of(
            peer[0] if peer else "",
            scope["scheme"],
            headers,
            trusted=settings.trusted_proxies,
            prefix=settings.root_path,
        )
        scope[CLIENT] = origin.client
        scope["scheme"] = origin.scheme
        scope["root_path"] = origin.prefix
        scope["path"] = inner_path(scope["path"], origin.prefix)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    answer.setdefault(name, value)
                answer.setdefault("cache-control", "no-store")
            await send(message)

        if not self._is_ours(headers.get("host", "")):
            # A page that lets its own name point to this address must not reach the console.
            name = printable(headers.get("host", "")[:255])
            words = f"the host name {name} is not one of --allow-host ({', '.join(self._settings.hosts)})\n"
            refusal = PlainTextResponse(words, status_code=421)
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _is_ours(self, host: str) -> bool:
        hosts = self._settings.hosts
        name = host.lower() if host.endswith("]") else host.lower().rsplit(":", 1)[0]
        return not hosts or name.strip("[]") in hosts
