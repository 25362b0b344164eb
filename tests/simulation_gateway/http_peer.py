"""A minimal HTTP/1.1 for simulated clients and subscribers: whole messages with a length."""

import asyncio
from dataclasses import dataclass, field

from tests.simulation_gateway.loop import SimulationError
from tests.simulation_gateway.network import Network


@dataclass(frozen=True)
class HttpMessage:
    """A request or an answer. Names of headers are in lower case."""

    first: str
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> int:
        return int(self.first.split()[1])

    @property
    def path(self) -> str:
        return self.first.split()[1]


@dataclass
class Reader:
    """Bytes of one direction, in pieces."""

    buffer: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> HttpMessage | None:
        """The next message, if all of it is here. Call it again with no data for the one behind."""
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name = name.lower()
            if name in headers and not name.startswith(("x-", "knative-")):
                raise SimulationError(f"the header {name} comes twice: {first}")
            headers[name] = value.strip()
        size = int(headers.get("content-length", "0"))
        if len(self.buffer) < end + 4 + size:
            return None
        body = bytes(self.buffer[end + 4 : end + 4 + size])
        del self.buffer[: end + 4 + size]
        return HttpMessage(first, headers, body)


class Call(asyncio.Protocol):
    """One request of a client, and its answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[HttpMessage | None] = asyncio.get_running_loop().create_future()
        self._reader = Reader()

    def data_received(self, data: bytes) -> None:
        answer = self._reader.feed(data)
        if answer is not None and not self.answer.done():
            self.answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_result(None)


async def call(
    network: Network,
    address: tuple[str, int],
    method: str,
    path: str,
    *,
    headers: list[tuple[str, str]],
    body: bytes = b"",
    timeout_s: float = 60.0,
) -> HttpMessage | None:
    """Send one request over a new connection; None: no answer."""
    try:
        transport, protocol = await network.connect(Call, *address)
    except OSError:
        return None
    assert isinstance(protocol, Call)
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = f"{method} {path} HTTP/1.1\r\nHost: gateway\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    transport.write(head.encode("latin-1") + body)
    try:
        async with asyncio.timeout(timeout_s):
            return await protocol.answer
    except TimeoutError:
        return None
    finally:
        transport.close()
