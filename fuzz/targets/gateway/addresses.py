"""Destinations of events: URLs, Services, references and settings. What is accepted becomes a request that an
HTTP parser reads as one POST to that host and nothing else; a URL that is refused says why.
"""

from typing import Final

import httptools

from fuzz.draw import Draw
from fuzz.target import Target, WrongError
from knative_gateway.addressing import Addressing, ServiceMap, Unresolved, is_absolute, without_credentials
from knative_gateway.dispatcher.posting.target import Target as Destination
from knative_gateway.errors import ConfigError
from knative_gateway.ports import Key
from knative_gateway.resources.hosts import is_dns_name
from knative_gateway.resources.objects import Object
from knative_gateway.security.destinations import Destinations, literal

_PIECES: Final = (
    "http://", "https://", "HTTP://", "//", "ftp://", "a.example", "s.n.svc", "s.n.svc.cluster.local.",
    "e.n.svc", "[::1]", "[::ffff:169.254.169.254]", "[fe80::1%25eth0]", "127.0.0.1", "2130706433", "0x7f.1",
    "169.254.169.254", "b\u00fccher.example", "xn--bcher-kva", "user:pa%40ss@", "@", ":80", ":0", ":65536",
    ":-1", ":", "/", "/p/../q", "?q=1&r", "#f", "%0d%0a", "\r\nx: y", "\t", " ", "\x00", "\x7f", "\\",
    "\u2028", "\ud800", "\u00e9", "a" * 64, ".", "..", "*", "[", "]", "metadata.google.internal",
)  # fmt: skip
_RULES: Final = (
    "10.0.0.0/8",
    "*.example",
    "::/0",
    "169.254.169.254",
    "host",
    "*",
    "10.0.0.1/8",
    "",
    "a b",
    "[::1]",
    "1.2.3.4/33",
)
_OBJECTS: Final[dict[Key, Object]] = {
    Key("", "Service", "n", "s"): {"spec": {"ports": [{"port": 8080}]}},
    Key("", "Service", "n", "e"): {
        "spec": {"type": "ExternalName", "externalName": "out.example", "ports": [{"port": 81}]}
    },
}


def run(data: bytes) -> str:
    """A URL, what stands in it, and rules for it."""
    draw = Draw(data)
    url = draw.rest().decode("utf-8", "replace") if draw.chance(4) else _url(draw)
    allowed, refused = _destinations(draw)
    services = _services(draw)
    objects = dict(_OBJECTS)
    objects[Key("g", "Any", "n", "x")] = {"status": {"address": {"url": _url(draw)}}}
    objects[Key("", "Service", "n", "d")] = {
        "spec": {
            "type": "ExternalName",
            "externalName": _url(draw),
            "ports": [{"port": draw.number(2)}, {"port": None}][draw.below(2) :],
        }
    }
    addressing = Addressing(objects.get, services, allowed, "http://gateway/broker/")
    destination: dict[str, object] = {"uri": url}
    if draw.chance(2):
        name = draw.pick(("s", "e", "d", "x"))
        reference = (
            {"apiVersion": "g/v1", "kind": "Any"} if name == "x" else {"apiVersion": "v1", "kind": "Service"}
        )
        destination["ref"] = {**reference, "name": name, "namespace": "n"}
        destination["uri"] = draw.pick((url, "", "/p", "?q"))
    found = addressing.resolve(destination, "n")
    if isinstance(found, Unresolved):
        found.message.encode("utf-8", "surrogatepass")
        return f"{found.reason} {refused}"
    return f"{_sent(addressing, found)} {refused}"


def _url(draw: Draw) -> str:
    made = draw.pick(("http://", "http://", "https://", "")) + "".join(
        draw.pick(_PIECES) for _ in range(draw.below(6))
    )
    return made + draw.text(12) if draw.chance(6) else made


def _destinations(draw: Draw) -> tuple[Destinations | None, bool]:
    try:
        return Destinations.parse(
            allow=[draw.pick(_RULES) for _ in range(draw.below(3))],
            deny=[draw.pick(_RULES) for _ in range(draw.below(3))],
        ), False
    except ConfigError:
        return None, True


def _services(draw: Draw) -> ServiceMap:
    try:
        return ServiceMap.parse(
            {draw.pick(("s.n", "x.n", "s", "S.n", "")): _url(draw) for _ in range(draw.below(3))}
        )
    except ConfigError:
        return ServiceMap()


def _sent(addressing: Addressing, url: str) -> str:
    if not is_absolute(url):
        message = f"{url!r} is resolved, but it is not absolute"
        raise WrongError(message)
    shown = without_credentials(url)
    if "@" in shown.partition("://")[2].partition("/")[0].partition("?")[0].partition("#")[0]:
        message = f"{url!r} is shown as {shown!r}"
        raise WrongError(message)
    addressing.shown(url, "n")
    reached = addressing.reached(url)
    try:
        target = Destination.of(reached)
    except ValueError:
        return "no target"
    _is_one_request(target, reached)
    if addressing.allowed is not None and literal(target.host):
        addressing.allowed.refusal(target.host, target.host)
    return f"to {'tls ' * target.is_tls}{is_dns_name(target.host)} {literal(target.host)}"


def _is_one_request(target: Destination, url: str) -> None:
    request = _Request()
    parser = httptools.HttpRequestParser(request)
    try:
        parser.feed_data(target.head + b"content-length: 1\r\n\r\nx")
    except httptools.HttpParserError as error:
        message = f"{url!r} makes a request that is not HTTP: {target.head!r}"
        raise WrongError(message) from error
    names = [name.lower() for name, _ in request.headers]
    expected = [
        b"host",
        b"user-agent",
        b"accept-encoding",
        *([b"authorization"] * (b"authorization" in names)),
        b"content-length",
    ]
    if names != expected or request.body != b"x" or request.count != 1:
        message = f"{url!r} makes the request {target.head!r}"
        raise WrongError(message)


class _Request:
    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.count = 0

    def on_message_begin(self) -> None:
        self.count += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, piece: bytes) -> None:
        self.body += piece


TARGET: Final = Target(
    "addresses", run, seconds_max=0.1, words=tuple(piece.encode("utf-8", "replace") for piece in _PIECES)
)
