"""The functions of librdkafka that `_records.c` calls, over messages that a test makes."""

import ctypes
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest

from amqp_streams.kafka.brokers import compiled

QUEUE: Final = 1
"""The address of a queue, which these functions do not look at."""


def use_taker(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Let new consumers take records in Python, or compiled. Skips the test if that is not installed."""
    if kind == "python":
        monkeypatch.setattr(compiled, "loaded", None)
    elif compiled.loaded is None:
        pytest.skip(f"the loop is not built here, or {compiled.PURE_VARIABLE} is set")


class Made(NamedTuple):
    """A message. `error`: a code of the library; 0: it is a record."""

    topic: str
    partition: int
    offset: int
    value: bytes | None = b"v"
    time_ms: int = 0
    error: int = 0


class _Message(ctypes.Structure):
    _fields_ = (
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("value", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


_POINTER: Final = ctypes.POINTER(_Message)
ERROR_TEXT: Final = b"an error"


class Library:
    """While it is entered, the compiled module takes these messages, at most `at_once` with each call."""

    def __init__(self, made: Sequence[Made], at_once: int = 1 << 20) -> None:
        assert compiled.loaded is not None
        self._loaded: Final = compiled.loaded
        self._at_once: Final = at_once
        self._topics: Final = {
            topic: ctypes.create_string_buffer(topic.encode()) for topic in {each.topic for each in made}
        }
        self._values: Final = [None if each.value is None else _memory(each.value) for each in made]
        self._text: Final = ctypes.create_string_buffer(ERROR_TEXT)
        self._messages: Final = [
            self._message(each, value) for each, value in zip(made, self._values, strict=True)
        ]
        self.destroyed: Final[list[int]] = []
        """The offsets of the messages that were given back."""
        self.steps: Final[list[int]] = []
        """How many messages each call brought."""
        self.waits: Final[list[int]] = []
        self._functions: Final = (
            ctypes.CFUNCTYPE(
                ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_POINTER), ctypes.c_size_t
            )(self._consume),
            ctypes.CFUNCTYPE(None, _POINTER)(self._destroy),
            ctypes.CFUNCTYPE(ctypes.c_int64, _POINTER, ctypes.POINTER(ctypes.c_int))(self._timestamp),
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda topic: topic),
            ctypes.CFUNCTYPE(ctypes.c_void_p, _POINTER)(lambda _message: ctypes.addressof(self._text)),
        )

    def __enter__(self) -> "Library":
        self._loaded.module.bind(compiled.addresses(self._functions))
        return self

    def __exit__(self, *_: object) -> None:
        functions = [getattr(self._loaded.library, name) for name in compiled.FUNCTIONS]
        self._loaded.module.bind(compiled.addresses(functions))

    def take(self, count: int = 5000, bytes_max: int = 1 << 20, timeout_ms: int = 7) -> Any:
        """What the compiled module takes."""
        return self._loaded.module.take(QUEUE, timeout_ms, count, bytes_max)

    def _message(self, made: Made, value: "ctypes.Array[ctypes.c_char] | None") -> _Message:
        return _Message(
            error=made.error,
            topic=ctypes.addressof(self._topics[made.topic]),
            partition=made.partition,
            value=None if value is None else ctypes.addressof(value),
            size=0 if made.value is None else len(made.value),
            offset=made.offset,
            # Nobody else looks at it.
            private=made.time_ms,
        )

    def _consume(self, queue: int, timeout_ms: int, found: Any, count: int) -> int:
        assert queue == QUEUE
        at = sum(self.steps)
        some = self._messages[at : at + min(count, self._at_once)]
        for index, message in enumerate(some):
            found[index] = ctypes.pointer(message)
        self.steps.append(len(some))
        self.waits.append(timeout_ms)
        return len(some)

    def _destroy(self, message: Any) -> None:
        self.destroyed.append(message.contents.offset)

    def _timestamp(self, message: Any, kind: Any) -> int:
        kind[0] = 2
        return message.contents.private or 0


def _memory(value: bytes) -> "ctypes.Array[ctypes.c_char]":
    """The bytes alone, so that a sanitizer sees a step over their end."""
    return ctypes.create_string_buffer(value, len(value)) if value else ctypes.create_string_buffer(1)
