"""[io] ASGI applications as handlers of exchanges. Spec: ASGI 3.0, HTTP 2.3."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

import httptools
import structlog

from knative_gateway.http.exchange import Exchange
from knative_gateway.http.responses import CLOSE, Header, check_header, head, is_chunked

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]

HAS_LEFT: Final = "has_left"
"""In the `state` of a scope: a function that returns whether the client has disconnected."""
CUT: Final = "cut"
"""In the `state` of a scope: a function that closes the connection before the answer is complete."""
_WITHOUT_BODY: Final = frozenset({204, 304})
_VERSIONS: Final = {"version": "3.0", "spec_version": "2.3"}

log = structlog.get_logger("knative_gateway")


class AsgiHandler:
    """Runs an ASGI application for one exchange, in a task. `tasks`: the set of all running tasks."""

    def __init__(self, exchange: Exchange, app: App, tasks: set[asyncio.Task[None]]) -> None:
        self._exchange: Final = exchange
        self._app: Final = app
        self._tasks: Final = tasks
        self._news: Final = asyncio.Event()
        self._is_body_out = False
        self._is_chunked = False
        self._left: int | None = None
        """Bytes of the answer's Content-Length that were not sent yet."""
        self._sends_body = exchange.method != b"HEAD"
        self._closes = False

    def begin(self) -> None:
        """Start the application. An invalid request target is answered with 400."""
        try:
            scope = self._scope()
        except (httptools.HttpParserInvalidURLError, ValueError):
            self._exchange.refuse(400, "the request target is not valid")
            return
        # The set keeps a reference: the event loop alone does not keep a task alive.
        task = asyncio.get_running_loop().create_task(self._run(scope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def received(self) -> None:
        """Wake the application, which may wait for the body."""
        self._news.set()

    def lost(self) -> None:
        """Wake the application. Its next `receive` returns `http.disconnect`."""
        self._news.set()

    def _scope(self) -> Message:
        exchange = self._exchange
        target = httptools.parse_url(exchange.target)
        if not target.path or not target.path.startswith(b"/"):
            message = "no path"
            raise ValueError(message)
        path = target.path.decode("ascii")
        connection = exchange.connection
        return {
            "type": "http",
            "asgi": _VERSIONS,
            "http_version": exchange.version,
            "scheme": "https" if connection.is_encrypted else "http",
            "server": connection.address("sockname"),
            "client": connection.address("peername"),
            "method": exchange.method.decode("ascii"),
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": target.path,
            "query_string": target.query or b"",
            "headers": exchange.headers,
            "state": {HAS_LEFT: lambda: exchange.is_lost, CUT: exchange.cut},
        }

    async def _run(self, scope: Message) -> None:
        exchange = self._exchange
        try:
            await self._app(scope, self._receive, self._send)
        except Exception:
            log.exception("request_broke", method=scope["method"], path=scope["path"])
        # Cancelled at the end of the drain: the client must see that the answer is not complete, before the
        # task ends.
        except BaseException:
            self._give_up()
            raise
        if not exchange.is_answered and not exchange.is_lost:
            self._give_up()

    def _give_up(self) -> None:
        """End an exchange that the application did not answer, or not completely: the client must notice."""
        if self._exchange.has_begun:
            self._exchange.cut()
        elif not self._exchange.is_lost:
            self._exchange.refuse(500, "internal error of the gateway: see its log")

    async def _receive(self) -> Message:
        exchange = self._exchange
        exchange.invite()
        while not exchange.is_lost and not exchange.is_answered:
            if exchange.body or (exchange.is_whole and not self._is_body_out):
                body = exchange.take()  # reading may resume, and more of the body arrive
                self._is_body_out = exchange.is_whole and not exchange.body
                return {"type": "http.request", "body": body, "more_body": not self._is_body_out}
            self._news.clear()
            await self._news.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        exchange = self._exchange
        # Back-pressure: an application that streams, for example a watch, waits here while its client does
        # not read.
        await exchange.connection.writable()
        if exchange.is_lost:
            return
        if exchange.is_answered:
            wrong = f"{message['type']} after the answer"
            raise RuntimeError(wrong)
        if not exchange.has_begun:
            _expect(message, "http.response.start")
            self._start(message["status"], message.get("headers", ()))
        else:
            _expect(message, "http.response.body")
            self._body(message.get("body", b""), is_last=not message.get("more_body", False))

    def _start(self, status: int, own: Any) -> None:
        exchange = self._exchange
        headers: list[Header] = [*exchange.connection.shared.headers]
        closes, length = exchange.must_close, None
        for written, value in own:
            # Values may come from users, for example the name of an object. A line break in one would end the
            # head of the answer.
            check_header(written, value)
            name = written.lower()
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                self._is_chunked = is_chunked(value)
            elif name == b"connection":
                closes = closes or b"close" in value.lower()
                continue
            headers.append((name, value))
        self._sends_body = self._sends_body and status not in _WITHOUT_BODY
        self._left = None if self._is_chunked else length
        if self._sends_body and length is None and not self._is_chunked:
            if exchange.version == "1.1":
                self._is_chunked = True
                headers.append((b"transfer-encoding", b"chunked"))
            else:
                closes = True  # the end of the connection is the end of the body
        self._closes = closes
        if closes:
            headers.append(CLOSE)
        exchange.write(head(status, headers))

    def _body(self, body: bytes, *, is_last: bool) -> None:
        exchange = self._exchange
        if self._sends_body:
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0 or (is_last and self._left):
                    message = "the answer's body is not as long as its Content-Length"
                    raise RuntimeError(message)
            if self._is_chunked:
                body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (
                    b"0\r\n\r\n" if is_last else b""
                )
            if body:
                exchange.write(body)
        if is_last:
            exchange.end(close=self._closes)
            self._news.set()  # the application may wait for more of the request


def _expect(message: Message, kind: str) -> None:
    if message["type"] != kind:
        wrong = f"expected {kind}, not {message['type']}"
        raise RuntimeError(wrong)
