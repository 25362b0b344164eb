"""The events that senders post: ordinary ones, and those that have broken gateways before."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from event_formats.amqp_binding import encode
from event_formats.event import CloudEvent

TYPES: Final = ("a", "ab", "abc", "b")
KEYS: Final = ("k1", "k2", "k3")


@dataclass(frozen=True)
class Posted:
    """A request of a sender. `ids`: of its events; `data`: of its single event, if the data must arrive
    unchanged.
    """

    headers: list[tuple[str, str]]
    body: bytes
    ids: Sequence[str]
    data: bytes | None = None
    is_plain: bool = False


class Events:
    """Creates events. Every event has a unique id."""

    def __init__(self, random: Random) -> None:
        self.random: Final = random
        self._made = 0

    def next_id(self) -> str:
        self._made += 1
        return f"e{self._made}"

    def attributes(self) -> dict[str, str]:
        """The attributes of an ordinary event."""
        choice, random = self.random.choice, self.random.random
        made = {"id": self.next_id(), "source": choice(("/a", "/b", "b")), "type": choice(TYPES)}
        if random() < 0.4:
            made["subject"] = choice(("a", "b", "ab"))
        if random() < 0.3:
            made["number"] = choice(("5", "7", "05"))
        if random() < 0.5:
            made["partitionkey"] = choice(KEYS)
        return made

    def plain(self) -> Posted:
        """An ordinary event in binary mode."""
        made, data = self.attributes(), b"data %d" % self._made
        return Posted(_binary(made), data, [made["id"]], data, is_plain=True)

    def any(self) -> Posted:
        """An ordinary event, or one of the others."""
        if self.random.random() < 0.6:
            return self.plain()
        return self.random.choice(POISON)(self)

    def message(self) -> tuple[bytes, int]:
        """A message that an AMQP client writes into the log, with its message-format."""
        return self.random.choice(MESSAGES)(self)


def _binary(attributes: Mapping[str, str], content_type: str = "text/plain") -> list[tuple[str, str]]:
    return [
        ("ce-specversion", "1.0"),
        *((f"ce-{name}", value) for name, value in attributes.items()),
        ("content-type", content_type),
    ]


def _typed(content_type: str) -> Callable[[Events], Posted]:
    """Binary mode with a media type."""

    def make(events: Events) -> Posted:
        made = events.attributes()
        body = events.random.choice((b"AAAA", b"{}", b"[]", b"\xff\xfe", _inner(events)))
        return Posted(_binary(made, content_type), body, [made["id"]], body)

    return make


def _inner(events: Events) -> bytes:
    """Return an event as the data of another one. It must not be delivered as an event."""
    inner = {"specversion": "1.0", "id": f"inner{events.next_id()}", "source": "/in", "type": "a", "data": 1}
    return json.dumps(inner).encode()


def _structured(events: Events) -> Posted:
    made = events.attributes()
    data = events.random.choice(({"a": [1, None]}, "text", 5, None, True, ""))
    body = json.dumps({"specversion": "1.0", **made, "data": data}).encode()
    return Posted([("content-type", "application/cloudevents+json")], body, [made["id"]])


def _structured_with(**more: object) -> Callable[[Events], Posted]:
    def make(events: Events) -> Posted:
        made = events.attributes()
        body = json.dumps({"specversion": "1.0", **made, **more}).encode()
        return Posted([("content-type", "application/cloudevents+json")], body, [made["id"]])

    return make


def _batch(events: Events) -> Posted:
    many = [events.attributes() for _ in range(events.random.randint(0, 6))]
    body = json.dumps([{"specversion": "1.0", **made, "data": made["id"]} for made in many]).encode()
    return Posted(
        [("content-type", "application/cloudevents-batch+json")], body, [made["id"] for made in many]
    )


def _named(name: str, value: str = "v") -> Callable[[Events], Posted]:
    """One more attribute, or another value of one."""

    def make(events: Events) -> Posted:
        made = {**events.attributes(), name: value}
        return Posted(_binary(made), b"data", [made["id"]], b"data")

    return make


def _with_headers(*headers: tuple[str, str]) -> Callable[[Events], Posted]:
    def make(events: Events) -> Posted:
        made = events.attributes()
        return Posted([*_binary(made), *headers], b"data", [made["id"]], b"data")

    return make


def _large(events: Events) -> Posted:
    made = events.attributes()
    body = bytes(events.random.choice((70_000, 300_000, 1_000_000, (1 << 20) + 1)))
    return Posted(_binary(made, "application/octet-stream"), body, [made["id"]], body)


def _empty(events: Events) -> Posted:
    made = events.attributes()
    return Posted(_binary(made)[:-1], b"", [made["id"]], b"")


POISON: Final[Sequence[Callable[[Events], Posted]]] = (
    _structured,
    _structured,
    _batch,
    _batch,
    _large,
    _empty,
    *map(
        _typed,
        (
            "application/cloudevents",
            "application/cloudevents+avro",
            "application/cloudevents+xml",
            "application/cloudeventsfoo",
            "application/cloudevents+json; charset=utf-16",
            "text/plain; charset=utf-16",
            "application/json",
            "a/b; c=\xe9",
            "",
        ),
    ),
    *(
        _structured_with(datacontenttype=media, data_base64="AAAA")
        for media in (
            "application/cloudevents+avro",
            "application/cloudevents+json",
            "application/cloudevents-batch+json",
            "APPLICATION/CloudEvents+JSON; charset=utf-16",
            "application/json",
            "no media type",
        )
    ),
    _structured_with(
        datacontenttype="application/cloudevents+json", data={"specversion": "1.0", "id": "inner1"}
    ),
    _structured_with(data_base64=base64.b64encode(bytes(range(256))).decode()),
    _structured_with(ext=True),
    _structured_with(ext=7),
    _structured_with(ext=2**40),
    _structured_with(ext=1.5),
    _structured_with(ext=None),
    _structured_with(ext={"a": 1}),
    _structured_with(ext="\ud800"),
    _structured_with(ext="\0"),
    _structured_with(subject="s" * 200_000),
    _structured_with(partitionkey=5),
    _structured_with(specversion="0.3"),
    _structured_with(specversion="2.0"),
    _structured_with(time="yesterday"),
    _structured_with(dataschema="not a uri"),
    _structured_with(knativebrokerttl=1),
    _structured_with(knativebrokerttl="255"),
    _structured_with(data=1, data_base64="AAAA"),
    _named("x" * 129),
    _named("x" * 128),
    _named("a" * 3000),
    _named("knativebrokerttl", "2"),
    _named("knativebrokerttl", "-1"),
    _named("knativeerrorcode", "500"),
    _named("knativearrivaltime", "now"),
    _named("type", ""),
    _named("type", "%E4%BD%A0%20%0d%0a"),
    _named("subject", "%zz%"),
    _named("subject", "\xe9\xff"),
    _named("partitionkey", "k" * 60_000),
    _named("time", "2020-02-30T00:00:00Z"),
    _named("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    _named("data", "x"),
    _with_headers(
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", "a=b")
    ),
    _with_headers(("traceparent", "\t00-1")),
    _with_headers(("x-request-id", "r"), ("x-b3-traceid", "b" * 900), ("knative-foo", "bar")),
    _with_headers(*(("knative-" + "n" * number, "v" * 500) for number in range(60))),
    _with_headers(("x-request-id", "\xe9")),
    _with_headers(("knative-hops", "255")),
    _with_headers(("knative-hops", "-1")),
    _with_headers(("prefer", "reply"), ("retry-after", "5"), ("kn-namespace", "other")),
)


def _made(events: Events, **more: str) -> CloudEvent:
    return CloudEvent({"specversion": "1.0", **events.attributes(), **more}, b"data")


def _valid(events: Events) -> tuple[bytes, int]:
    return encode(_made(events)), 0


def _noise(events: Events) -> tuple[bytes, int]:
    return events.random.randbytes(events.random.randint(1, 60)), 0


def _cut(events: Events) -> tuple[bytes, int]:
    whole = encode(_made(events))
    return whole[: events.random.randrange(1, len(whole))], 0


def _flipped(events: Events) -> tuple[bytes, int]:
    whole = bytearray(encode(_made(events)))
    for _ in range(events.random.randint(1, 3)):
        whole[events.random.randrange(len(whole))] = events.random.randrange(256)
    return bytes(whole), 0


def _formatted(events: Events) -> tuple[bytes, int]:
    return encode(_made(events)), events.random.choice((1, 0x80013701))


def _media(events: Events) -> tuple[bytes, int]:
    """A content-type of an event format, written over one of the same length."""
    media = events.random.choice(
        (b"application/cloudevents+avro", b"application/cloudevents+json", b"application/cloudevents")
    )
    placeholder = "q" * len(media)
    return encode(_made(events, datacontenttype=placeholder)).replace(placeholder.encode(), media), 0


def _broken_header(events: Events) -> tuple[bytes, int]:
    """A header that would go with the event, with a line break."""
    value = events.random.choice((b"a\r\nb: c", b"a\0bcdef", b"\xc3\xa9\xc3\xa9abc"))
    return encode(_made(events), {"x-request-id": "QQQQQQQ"}).replace(b"QQQQQQQ", value), 0


def _broken_attribute(events: Events) -> tuple[bytes, int]:
    value = events.random.choice((b"\r\nx: yz", b"\0\1\2abcd", b"\xff\xfeabcde"))
    return encode(_made(events, subject="QQQQQQQ")).replace(b"QQQQQQQ", value[:7]), 0


MESSAGES: Final[Sequence[Callable[[Events], tuple[bytes, int]]]] = (
    _valid,
    _noise,
    _cut,
    _flipped,
    _flipped,
    _formatted,
    _media,
    _broken_header,
    _broken_attribute,
)
