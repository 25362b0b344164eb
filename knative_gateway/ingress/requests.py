"""The headers of a request that are not part of the event. Pure.

One pass over the headers. The kind of each name is cached, because requests repeat the same names.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from event_formats.host import is_host
from event_formats.media import BATCH
from knative_gateway.delivery.headers import (
    FORWARDED,
    FORWARDED_MAX,
    FORWARDED_PREFIXES,
    FORWARDED_TOTAL_BYTES_MAX,
    HOPS,
)
from knative_gateway.delivery.ttl import TTL_DEFAULT
from knative_gateway.errors import BadRequestError, UnsupportedMediaError

_NAMES_MAX: Final = 2048
_NAME_LENGTH_MAX: Final = 128
"""Bytes of a header name that is cached. Untrusted clients choose the names."""
_HOPS_DIGITS: Final = 9
_PRINTABLE: Final = re.compile(rb"[ -~]*")
_BATCH: Final = BATCH.encode()
_VALUE_MAX: Final = 1024
"""Bytes of a header value that is stored with the event. Headers with longer values are not stored."""


class _Kind(IntEnum):
    NOTHING = 0
    AUTHORIZATION = 1
    LENGTH = 2
    ENCODING = 3
    TRACE = 4
    PASSED_ON = 5
    TYPE = 6
    HOST = 7


_FIXED: Final = {
    b"authorization": _Kind.AUTHORIZATION,
    b"content-length": _Kind.LENGTH,
    b"content-encoding": _Kind.ENCODING,
    b"content-type": _Kind.TYPE,
    b"host": _Kind.HOST,
    b"traceparent": _Kind.TRACE,
    b"tracestate": _Kind.TRACE,
}
_kinds: dict[bytes, _Kind] = {}


class Request:
    """The headers of one request.

    `trace`: traceparent and tracestate. `passed_on`: headers that are stored with the event and passed on to
    its subscribers. `batch`: the body is a batch of events, which may be empty. `has_host`: the request has
    exactly one Host header, and its value is valid.
    """

    __slots__ = (
        "_hosts",
        "_passed_on_bytes",
        "authorization",
        "batch",
        "has_host",
        "length",
        "passed_on",
        "trace",
    )

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Read the headers. Names must be in lower case, as in ASGI.

        Raises:
            UnsupportedMediaError: the body is compressed. BadRequestError: Content-Length is not a number,
            the event went through too many Brokers and Channels,
                or the request has two Authorization headers: proxies and the gateway might use different
                ones.
        """
        self.has_host = False
        self._hosts = 0
        self.authorization: str | None = None
        self.batch = False
        self.length: int | None = None
        self.trace: dict[str, str] | None = None
        self.passed_on: dict[str, str] | None = None
        self._passed_on_bytes = 0
        for name, value in headers:
            kind = _kinds.get(name)
            if kind is None:
                kind = _classify(name)
            if kind:
                self._note(kind, name, value)

    def _note(self, kind: _Kind, name: bytes, value: bytes) -> None:
        if kind is _Kind.LENGTH:
            # int() would also accept signs, spaces and underscores, which other HTTP parsers read in another
            # way.
            if not value.isdigit():
                raise BadRequestError("Content-Length is not a number")
            self.length = int(value)
        elif kind is _Kind.TYPE:
            self.batch = value[: len(_BATCH)].lower() == _BATCH
        elif kind is _Kind.ENCODING:
            if value.lower() != b"identity":
                raise UnsupportedMediaError("Content-Encoding: compressed bodies are not supported")
        elif kind is _Kind.HOST:
            self._hosts += 1
            self.has_host = self._hosts == 1 and is_host(value)
        elif kind is _Kind.AUTHORIZATION:
            if self.authorization is not None:
                raise BadRequestError("the request has more than one Authorization header")
            self.authorization = value.decode("latin-1")
        # These values are stored with every event and sent to each subscriber, so they are small and in
        # ASCII, whatever the client sent.
        elif len(value) <= _VALUE_MAX and value.isascii():
            if kind is _Kind.TRACE:
                if not _PRINTABLE.fullmatch(value):
                    return  # it becomes an attribute, and attributes must not contain a tab
                self.trace = {**(self.trace or {}), name.decode(): value.decode()}
            else:
                self._pass_on(name.decode("latin-1"), value.decode())

    def _pass_on(self, name: str, value: str) -> None:
        """Add a header. Several headers with one name become one value with commas (RFC 9110, 5.3)."""
        if name == HOPS and not (
            value.isdigit() and len(value) <= _HOPS_DIGITS and int(value) <= TTL_DEFAULT
        ):
            raise BadRequestError(
                f"{HOPS} {value[:_HOPS_DIGITS]}: the event went through more than {TTL_DEFAULT} Brokers "
                f"and Channels"
            )
        # The count of hops is exempt: a client could otherwise fill the limit, lose the count, and make
        # events go around without end.
        self._passed_on_bytes += len(name) + len(value)
        if self._passed_on_bytes > FORWARDED_TOTAL_BYTES_MAX and name != HOPS:
            return
        if self.passed_on is None:
            self.passed_on = {name: value}
        elif name in self.passed_on:
            self.passed_on[name] += f", {value}"
        elif len(self.passed_on) < FORWARDED_MAX:
            self.passed_on[name] = value


def _classify(name: bytes) -> _Kind:
    kind = _FIXED.get(name, _Kind.NOTHING)
    if name in FORWARDED or name.startswith(FORWARDED_PREFIXES):
        kind = _Kind.PASSED_ON
    if len(name) <= _NAME_LENGTH_MAX:
        # Names come from untrusted clients. Emptying the cache is cheaper than keeping an order of use, and
        # the usual names are back after one request.
        if len(_kinds) >= _NAMES_MAX:
            _kinds.clear()
        _kinds[name] = kind
    return kind


def is_ignored(name: bytes) -> bool:
    """Return whether a header with this name, in lower case, has no meaning for the ingress."""
    kind = _kinds.get(name)
    if kind is None:
        kind = _classify(name)
    return kind is _Kind.NOTHING or kind is _Kind.AUTHORIZATION
