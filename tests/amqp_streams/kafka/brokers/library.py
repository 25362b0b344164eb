"""The functions of librdkafka that `_records.c` calls, over messages that a test makes."""

import ctypes
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from amqp_streams.kafka.brokers import compiled
from amqp_streams.kafka.brokers.library import FUNCTIONS, PURE_VARIABLE, addresses

QUEUE: Final = 1
"""The address of a queue, which these functions do not look at."""


def use_kind(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Let new clients take and hand over records in Python, or compiled.

    Skips the test if that is not installed.
    """
    if kind == "python":
        monkeypatch.setattr(compiled, "loaded", None)
    elif compiled.loaded is None:
        pytest.skip(f"the loop is not built here, or {PURE_VARIABLE} is set")


def stored(servers: str, topic: str, index: int, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of the first records of a partition."""
    reader = Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
    )
    reader.assign([TopicPartition(topic, index, 0)])
    found: list[tuple[bytes | None, bytes | None]] = []
    while len(found) < count and (some := reader.consume(count - len(found), 60)):
        found += [(each.key(), each.value()) for each in some]
    reader.close()
    return found


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


class Reported(NamedTuple):
    """The report on a record."""

    number: int
    offset: int
    error: int = 0


class Handed(NamedTuple):
    """A record that was handed over."""

    topic: str
    partition: int
    value: bytes
    key: bytes | None
    number: int


_POINTER: Final = ctypes.POINTER(_Message)
_REPORTS: Final = 1
_OTHER: Final = 8
"""Kinds of events."""
ERROR_TEXT: Final = b"an error"


class Library:
    """While it is entered, the compiled module takes these messages, at most `at_once` with each call.

    `codes`: with which errors it takes the records that are handed over, 0 for all after these. `events`: of
    a producer, those with reports, and others, which are None.
    """

    def __init__(
        self,
        made: Sequence[Made] = (),
        at_once: int = 1 << 20,
        *,
        codes: Sequence[int] = (),
        events: Sequence[Sequence[Reported] | None] = (),
    ) -> None:
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
        self._codes: Final = list(codes)
        self.handed: Final[list[Handed]] = []
        self.tried: Final[list[int]] = []
        """How many records each call handed over."""
        self.topics: Final[list[str | None]] = []
        """The topics that were asked for, and None for each that was given back."""
        self.no_topic = 0
        """The error with which a topic is refused."""
        self._events: Final = list(events)
        self._open: dict[int, list[_Message]] = {}
        self.released: Final[list[int]] = []
        """The events that were given back, by their numbers from 1 on."""
        self._polled = 0
        self._given: list[_Message] = []
        self._functions: Final = (
            ctypes.CFUNCTYPE(
                ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_POINTER), ctypes.c_size_t
            )(self._consume),
            ctypes.CFUNCTYPE(None, _POINTER)(self._destroy),
            ctypes.CFUNCTYPE(ctypes.c_int64, _POINTER, ctypes.POINTER(ctypes.c_int))(self._timestamp),
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda topic: topic),
            ctypes.CFUNCTYPE(ctypes.c_void_p, _POINTER)(lambda _message: ctypes.addressof(self._text)),
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
                self._new_topic
            ),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _topic: self.topics.append(None)),
            ctypes.CFUNCTYPE(ctypes.c_int)(lambda: self.no_topic),
            ctypes.CFUNCTYPE(
                ctypes.c_int, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, _POINTER, ctypes.c_int
            )(self._produce),
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(self._poll),
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(
                lambda event: _OTHER if self._events[event - 1] is None else _REPORTS
            ),
            ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(_POINTER), ctypes.c_size_t)(
                self._event_messages
            ),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.released.append),
        )

    def __enter__(self) -> "Library":
        self._loaded.module.bind(addresses(self._functions))
        return self

    def __exit__(self, *_: object) -> None:
        functions = [getattr(self._loaded.library, name) for name in FUNCTIONS]
        self._loaded.module.bind(addresses(functions))

    def take(self, count: int = 5000, bytes_max: int = 1 << 20, timeout_ms: int = 7) -> Any:
        """What the compiled module takes."""
        return self._loaded.module.take(QUEUE, timeout_ms, count, bytes_max)

    def produce(
        self,
        values: list[bytes],
        keys: list[bytes | None] | None = None,
        first: int = 0,
        *,
        number: int = 3,
        untried: int = -184,
    ) -> Any:
        """Hand records over to partition 5 of the topic `wörter`."""
        arguments = (QUEUE, "wörter", 5, values, keys, first, number, untried)
        return self._loaded.module.produce(*arguments)

    def reports(self, count: int = 10_000, timeout_ms: int = 7) -> Any:
        """The reports and other events of the producer."""
        return self._loaded.module.reports(QUEUE, timeout_ms, count)

    def _new_topic(self, producer: int, topic: bytes, settings: int | None) -> int | None:
        assert (producer, settings) == (QUEUE, None)
        if self.no_topic:
            return None
        self.topics.append(topic.decode())
        return QUEUE

    def _produce(self, topic: int, partition: int, flags: int, messages: Any, count: int) -> int:
        assert (topic, flags) == (QUEUE, 2)
        name = self.topics[-1]
        assert name is not None
        self.tried.append(count)
        taken = 0
        for index in range(count):
            message = messages[index]
            message.error = self._codes.pop(0) if self._codes else 0
            if not message.error:
                taken += 1
                value = ctypes.string_at(message.value, message.size)
                key = None if message.key is None else ctypes.string_at(message.key, message.key_size)
                self.handed.append(Handed(name, partition, value, key, message.private or 0))
        return taken

    def _poll(self, queue: int, timeout_ms: int) -> int | None:
        assert queue == QUEUE
        self.waits.append(timeout_ms)
        if self._polled == len(self._events):
            return None
        self._polled += 1
        self._open[self._polled] = [
            _Message(error=each.error, offset=each.offset, private=each.number)
            for each in self._events[self._polled - 1] or ()
        ]
        return self._polled

    def _event_messages(self, event: int, found: Any, count: int) -> int:
        # They stay in memory, as they do in the library until the event is released.
        left = self._open[event]
        some, self._open[event] = left[:count], left[count:]
        self._given += some
        for index, message in enumerate(some):
            found[index] = ctypes.pointer(message)
        return len(some)

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
