"""Subscribers, dead letter sinks and receivers of replies: each site has moods, and answers accordingly.

A mood is a list of behaviours, of which each request gets one.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from tests.simulation_gateway.http_peer import HttpMessage, Reader
from tests.simulation_gateway.loop import Process, VirtualLoop
from tests.simulation_gateway.network import End, Network

FAR_MS: Final = 10_000_000
PICKED_SHARE: Final = 0.3


@dataclass
class Attempt:
    """One request that a site has read.

    `reply`: the id of the event in the answer, which is a valid event if `is_reply_good`. `retry_after_ms`:
    what the answer asks for. `began_ms`: the earliest time at which the attempt can have begun: when the
    gateway looked up the name, opened the connection, or wrote the request; the site reads it later.
    `arrives_ms`: when the end of the answer arrives at the gateway.
    """

    site: str
    tag: str
    request: HttpMessage
    process: Process | None
    at_ms: int
    status: int | None = None
    answered_ms: int | None = None
    reply: str = ""
    is_reply_good: bool = False
    retry_after_ms: int | None = None
    event_id: str = ""
    began_ms: int = 0
    arrives_ms: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True)
class Behaviour:
    """How one request is answered: after `wait_ms`, these bytes in pieces, and then possibly an end of the
    connection. `status` None: the answer is not complete.
    """

    wait_ms: int = 0
    status: int | None = 202
    pieces: Sequence[bytes] = ()
    piece_ms: int = 0
    close: bool = False
    abort: bool = False
    reply: str = ""
    is_reply_good: bool = False
    retry_after_ms: int | None = None
    idle_close_ms: int | None = None


class Told(Protocol):
    """The recorder of attempts."""

    def attempted(self, attempt: Attempt) -> None:
        """A request was read."""

    def answered(self, attempt: Attempt) -> None:
        """An answer was sent completely."""

    def given_up(self, attempt: Attempt) -> None:
        """The gateway closed the connection of a request, and no byte of an answer was sent."""


def answer(status: int, headers: Sequence[tuple[str, str]] = (), body: bytes = b"") -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 {status} x\r\n{lines}content-length: {len(body)}\r\n\r\n".encode("latin-1") + body


@dataclass
class Site:
    """One host. `mood`: the name of its current one. `replies`: how many replies it has sent. `is_fixed`: it
    stays as it is for the whole run. `picks_max`: how many events it picks and answers with 500, always.
    """

    name: str
    random: Random
    mood: str = "good"
    replies: int = 0
    is_fixed: bool = False
    picks_max: int = 0
    picked: set[str] = field(default_factory=set)
    connections: dict["SiteConnection", None] = field(default_factory=dict)

    def behave(self, event_id: str) -> Behaviour:
        if len(self.picked) < self.picks_max and self.random.random() < PICKED_SHARE:
            self.picked.add(event_id)
        if event_id in self.picked:
            return _FAILED[0](self)
        return self.random.choice(MOODS[self.mood])(self)

    def reply_id(self) -> str:
        self.replies += 1
        return f"r-{self.name}-{self.replies}"


Make = Callable[[Site], Behaviour]


def _good(site: Site) -> Behaviour:
    return Behaviour(
        site.random.choice((0, 0, 1, 3, 20)), status := site.random.choice((200, 202, 204)), [answer(status)]
    )


def _status(
    status: int, *headers: tuple[str, str], retry_after_ms: int | None = None, wait_ms: int = 1
) -> Make:
    return lambda _: Behaviour(
        wait_ms, status, [answer(status, headers, b"no")], retry_after_ms=retry_after_ms
    )


def _raw(*pieces: bytes, close: bool = False, abort: bool = False, piece_ms: int = 5) -> Make:
    return lambda _: Behaviour(1, None, pieces, piece_ms, close=close, abort=abort)


def _reply(*, is_good: bool = True, **attributes: str) -> Make:
    def make(site: Site) -> Behaviour:
        reply = site.reply_id()
        event = {"specversion": "1.0", "id": reply, "source": "/reply", "type": "reply", **attributes}
        headers = [(f"ce-{name}", value) for name, value in event.items() if name != "datacontenttype"]
        headers.append(("content-type", event.get("datacontenttype", "text/plain")))
        more = [("x-request-id", f"of {reply}"), ("date", "now")]
        return Behaviour(
            2, 200, [answer(200, [*headers, *more], b"reply")], reply=reply, is_reply_good=is_good
        )

    return make


def _structured_reply(site: Site) -> Behaviour:
    reply = site.reply_id()
    event = {"specversion": "1.0", "id": reply, "source": "/reply", "type": "reply", "data": {"a": 1}}
    body = json.dumps(event).encode()
    return Behaviour(
        2,
        200,
        [answer(200, [("content-type", "application/cloudevents+json")], body)],
        reply=reply,
        is_reply_good=True,
    )


def _slow_reply(site: Site) -> Behaviour:
    """A reply of many bytes, in pieces, with pauses."""
    whole = _reply(subject="s" * 50)(site)
    event = whole.pieces[0].replace(b"content-length: 5", b"content-length: 60000").removesuffix(b"reply")
    pieces = [event, *[b"x" * 10_000] * 6]
    return Behaviour(2, 200, pieces, site.random.choice((1, 200)), reply=whole.reply, is_reply_good=True)


_HUGE: Final = b"HTTP/1.1 200 x\r\nce-specversion: 1.0\r\nce-id: h\r\nce-source: /h\r\nce-type: h\r\n"
_CHUNKED: Final = b"HTTP/1.1 500 x\r\ntransfer-encoding: chunked\r\n\r\n"
_FAILED: Final = tuple(_status(status) for status in (500, 502, 503, 599, 404, 408, 409, 429))
_REFUSED: Final = tuple(_status(status) for status in (400, 401, 403, 405, 413, 415, 422, 301, 307, 304))
_WAIT: Final = (
    _status(503, ("retry-after", "7"), retry_after_ms=7_000),
    _status(429, ("Retry-After", "20"), retry_after_ms=20_000),
    _status(503, ("retry-after", "86400000000000000000000")),
    _status(503, ("retry-after", "Mon, 01 Jan 2024 00:00:00 +99999999999999999999")),
    _status(503, ("retry-after", "Mon, 99 Jan 0000 99:99:99 GMT")),
    _status(503, ("retry-after", "Wed, 15 Nov 2023 00:00:00 GMT")),
    _status(503, ("retry-after", "-5")),
    _status(503, ("retry-after", "\xb9\xb2")),
    _status(429, ("retry-after", "")),
    _status(500, ("retry-after", "40")),
)
_BROKEN: Final = (
    _raw(b"HTTP/1.1 202"),
    _raw(b"HTTP/1.1 202 x\r\ncontent-length: 10\r\n\r\nhalf", close=True),
    _raw(b"HTTP/1.1 200 x\r\nce-id: 1\r\n", b"ce-", close=True),
    _raw(close=True),
    _raw(abort=True),
    _raw(b"HTTP/1.1 999999 ?\r\n\r\n"),
    _raw(b"\0\xff\r\n\r\n"),
    _raw(b"HTTP/1.1 100 x\r\n\r\n" * 20, abort=True),
    _raw(_CHUNKED, b"zz\r\n"),
    _raw(b"HTTP/1.1 202 x\r\n" + b"".join(b"a%d: b\r\n" % number for number in range(40_000)) + b"\r\n"),
    _raw(_HUGE + b"content-length: 3000000\r\n\r\n", *[b"x" * 65536] * 50),
    _raw(
        _HUGE + b"transfer-encoding: chunked\r\n\r\n", *[b"8000\r\n%b\r\n" % (b"x" * 32768)] * 60, piece_ms=1
    ),
)
_ODD: Final = (
    lambda _: Behaviour(1, 202, [b"HTTP/1.1 100 x\r\n\r\n", answer(202)], 10),
    lambda _: Behaviour(1, 202, [answer(202) + answer(202)]),
    lambda _: Behaviour(1, 202, [b"HTTP/1.1 202 x\r\nconnection: close\r\n\r\n"], close=True),
    lambda _: Behaviour(1, 202, [answer(202)], idle_close_ms=1),
    lambda _: Behaviour(1, 202, [answer(202)], idle_close_ms=50),
    lambda _: Behaviour(1, 200, [answer(200, [("content-type", "application/cloudevents+json")], b"{}")]),
    lambda _: Behaviour(1, 200, [answer(200, [("content-type", "application/cloudevents+json")], b"\xff")]),
    lambda _: Behaviour(1, 200, [answer(200, [("content-type", "application/cloudevents+avro")], b"A")]),
    lambda _: Behaviour(1, 200, [answer(200, [("ce-id", "only")], b"A")]),
)
_REPLIES: Final = (
    _reply(),
    _reply(subject="s"),
    _reply(partitionkey="p"),
    _structured_reply,
    _slow_reply,
)
_BAD_REPLIES: Final = (
    _reply(is_good=False, datacontenttype="application/cloudevents+avro"),
    _reply(is_good=False, datacontenttype="application/cloudevents+json; charset=utf-16"),
    _reply(is_good=False, datacontenttype="application/cloudevents-batch+json"),
    _reply(is_good=False, **{"x" * 200: "long"}),
    _reply(is_good=False, partitionkey="k" * 60_000),
    _reply(is_good=False, knativebrokerttl="1"),
    _reply(is_good=False, time="never"),
)


def _slow(site: Site) -> Behaviour:
    return Behaviour(site.random.choice((500, 2000, 9000)), 202, [answer(202)])


def _silent(_site: Site) -> Behaviour:
    return Behaviour(FAR_MS, None)


MOODS: Final[dict[str, Sequence[Make]]] = {
    "good": (_good,),
    "slow": (_slow, _good),
    "silent": (_silent,),
    "closing": (_ODD[2],),
    "failing": (*_FAILED, _good),
    "down": _FAILED,
    "refusing": (*_REFUSED, _good),
    "busy": (*_WAIT, _good),
    "broken": (*_BROKEN, _good),
    "odd": (*_ODD, _good),
    "replying": _REPLIES,
    "badly replying": (*_REPLIES, *_BAD_REPLIES),
    "anything": (
        _good,
        _good,
        _slow,
        _silent,
        *_FAILED,
        *_REFUSED,
        *_WAIT,
        *_BROKEN,
        *_ODD,
        *_REPLIES,
        *_BAD_REPLIES,
    ),
}


class SiteConnection(asyncio.Protocol):
    """One connection of a site."""

    def __init__(self, site: Site, loop: VirtualLoop, told: Told) -> None:
        self._site: Final = site
        self._loop: Final = loop
        self._told: Final = told
        self._reader: Final = Reader()
        self._end: End
        self._unanswered: Attempt | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, End)
        self._end = transport
        self._site.connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._site.connections.pop(self, None)

    def peer_aborts(self) -> None:
        """The gateway closes the connection at this moment; this site notices later."""
        attempt, self._unanswered = self._unanswered, None
        if attempt is not None:
            self._loop.call_soon(self._told.given_up, attempt)  # not in the gateway's own call

    def data_received(self, data: bytes) -> None:
        request = self._reader.feed(data)
        while request is not None:
            self._take(request)
            request = self._reader.feed(b"")

    def cut(self) -> None:
        """The machine of the site resets its connections."""
        self._unanswered = None
        self._end.abort()

    def _take(self, request: HttpMessage) -> None:
        tag = request.path.rpartition("/")[2]
        attempt = Attempt(self._site.name, tag, request, self._end.peer.process, self._loop.now_ms)
        attempt.began_ms = self._end.peer.began_ms
        self._unanswered = attempt
        self._told.attempted(attempt)
        behaviour = self._site.behave(attempt.event_id)
        is_reply = attempt.event_id.startswith("r-") and not self._site.is_fixed
        if is_reply and self._site.random.random() < 0.8:
            behaviour = MOODS["good"][0](self._site)  # else replies to replies have no end
        attempt.is_reply_good = behaviour.is_reply_good
        attempt.reply, attempt.retry_after_ms = behaviour.reply, behaviour.retry_after_ms
        if behaviour.wait_ms < FAR_MS:
            self._loop.call_later(behaviour.wait_ms / 1000, self._send, attempt, behaviour, 0)

    def _send(self, attempt: Attempt, behaviour: Behaviour, index: int) -> None:
        end = self._end
        if end.is_closing():
            return
        self._unanswered = None
        if index < len(behaviour.pieces):
            attempt.arrives_ms = end.write(behaviour.pieces[index])
        if index + 1 < len(behaviour.pieces):
            self._loop.call_later(behaviour.piece_ms / 1000, self._send, attempt, behaviour, index + 1)
            return
        if behaviour.status is not None:
            attempt.status, attempt.answered_ms = behaviour.status, self._loop.now_ms
            self._told.answered(attempt)
        if behaviour.abort:
            end.abort()
        elif behaviour.close:
            end.close()
        elif behaviour.idle_close_ms is not None:
            self._loop.call_later(behaviour.idle_close_ms / 1000, end.close)


class Sites:
    """All sites, each with its own address and name."""

    def __init__(self, network: Network, loop: VirtualLoop, told: Told) -> None:
        self.by_name: Final[dict[str, Site]] = {}
        self.addresses: Final[dict[str, str]] = {}
        self._network: Final = network
        self._loop: Final = loop
        self._told: Final = told

    async def add(self, name: str, random: Random) -> Site:
        site = self.by_name[name] = Site(name, random)
        address = self.addresses[name] = f"198.51.100.{len(self.by_name)}"
        self._network.names[f"{name}.test"] = [address]
        await self._network.listen(lambda: SiteConnection(site, self._loop, self._told), address, 80)
        return site
