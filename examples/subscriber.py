"""A subscriber: an HTTP server on this machine that takes events, remembers them, and fails as it is told to.

Events come in binary mode: attributes in `ce-` headers, the data in the body.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Delivered:
    """One request. `attributes`: of the event, without `ce-`; `headers`: all others, names in lower case."""

    attributes: Mapping[str, str]
    headers: Mapping[str, str]
    data: bytes
    status: int

    @property
    def id(self) -> str:
        """The event's."""
        return self.attributes.get("id", "")


Decide = Callable[[Mapping[str, str]], int]
"""The status to answer an event with, given its attributes."""


@dataclass
class SubscriberServer:
    """Listens on 127.0.0.1 while in `with`.

    `decide` may be set anew at any time; `port` 0: any, kept by later starts.
    """

    decide: Decide = field(default=lambda _: 202)
    port: int = 0
    requests: list[Delivered] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = field(default=None, init=False)
    _came: threading.Condition = field(default_factory=threading.Condition, init=False)

    @property
    def url(self) -> str:
        """Where events are sent."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def taken(self) -> list[Delivered]:
        """Those that were accepted, in the order of their answers."""
        with self._came:
            return [one for one in self.requests if 200 <= one.status < 300]

    def note(self, one: Delivered) -> None:
        """A request is about to be answered."""
        with self._came:
            self.requests.append(one)
            self._came.notify_all()

    def wait(self, until: Callable[[Self], bool], seconds: float = 60.0) -> bool:
        """Until that holds, looked at after each request; False if it does not in time."""
        deadline = time.monotonic() + seconds
        with self._came:
            while not until(self):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._came.wait(min(left, 1.0))
        return True

    def __enter__(self) -> Self:
        subscriber = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("content-length") or 0))
                fields = {name.lower(): value for name, value in self.headers.items()}
                attributes = {
                    name[3:]: unquote(value) for name, value in fields.items() if name.startswith("ce-")
                }
                rest = {name: value for name, value in fields.items() if not name.startswith("ce-")}
                status = subscriber.decide(attributes)
                subscriber.note(Delivered(attributes, rest, data, status))
                body = b"" if status < 300 else f"not now: {status}".encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's word for it
                """Nothing: what came is in `requests`."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: object, client_address: object) -> None:
                """Whoever is killed in the middle of a request needs no traceback here."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
