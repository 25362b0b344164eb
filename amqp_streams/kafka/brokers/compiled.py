"""[io] A consumer whose records a compiled loop takes. See docs/compiled-loops.md.

`_records.c` is built with the wheel when a C compiler is there. It uses the librdkafka that confluent-kafka
has loaded, but not the consumer of confluent-kafka: that one calls Python for errors and for lines of the log
while records are taken, and a compiled loop does not have the interpreter's lock then. So this module makes a
consumer of its own, from the same settings. What is not a message, errors of brokers and lines of the log,
has a queue of its own (*events*), which is emptied after each take.
"""

import ctypes
import logging
import os
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import KafkaError, KafkaException, libversion

from amqp_streams.kafka.brokers.taking import Other, Place, Portion
from amqp_streams.kafka.records.chunks import Consumed
from amqp_streams.wire.batched.packed import Packed

PURE_VARIABLE: Final = "AMQP_STREAMS_PURE"
"""See `proton/compiled.py`."""
FUNCTIONS: Final = (
    "rd_kafka_consume_batch_queue",
    "rd_kafka_message_destroy",
    "rd_kafka_message_timestamp",
    "rd_kafka_topic_name",
    "rd_kafka_message_errstr",
)
"""The library's functions that `_records.c` calls, in the order of its structure `library`."""
_TEXT_BYTES: Final = 512
_CONSUMER: Final = 1
_DONE: Final = 0
"""The library's values for a consumer, and for no error."""
_ERROR_EVENT: Final = 0x8
"""RD_KAFKA_EVENT_ERROR."""
_FAILED: Final = "error_cb"
"""The one setting of confluent-kafka that is a function: it gets the errors of brokers."""
_WAIT_MS: Final = 10_000
_LEVELS: Final = (logging.CRITICAL,) * 3 + (
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.INFO,
    logging.DEBUG,
)
"""By syslog's level."""

_P: Final = ctypes.c_void_p
_INT: Final = ctypes.c_int
_TEXT: Final = ctypes.c_char_p
_INT64: Final = ctypes.c_int64

log = logging.getLogger("amqp_streams.kafka")


class Columns(NamedTuple):
    """Records of one partition that follow each other: arrays as bytes, and the values one after another."""

    topic: str
    partition: int
    offsets: bytes
    times_ms: bytes
    sizes: bytes
    """The sizes of the values, int32; -1: no value."""
    buffer: bytes


class _Partition(ctypes.Structure):
    """rd_kafka_topic_partition_t of rdkafka.h."""

    _fields_ = (
        ("topic", _TEXT),
        ("partition", ctypes.c_int32),
        ("offset", _INT64),
        ("metadata", _P),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", _P),
        ("error", _INT),
        ("private", _P),
    )


_PARTITION: Final = ctypes.POINTER(_Partition)
_SIGNATURES: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "rd_kafka_version": (_INT, ()),
    "rd_kafka_err2str": (_TEXT, (_INT,)),
    "rd_kafka_conf_new": (_P, ()),
    "rd_kafka_conf_set": (_INT, (_P, _TEXT, _TEXT, _P, ctypes.c_size_t)),
    "rd_kafka_conf_set_events": (None, (_P, _INT)),
    "rd_kafka_conf_set_log_cb": (None, (_P, _P)),
    "rd_kafka_conf_destroy": (None, (_P,)),
    "rd_kafka_new": (_P, (_INT, _P, _P, ctypes.c_size_t)),
    "rd_kafka_last_error": (_INT, ()),
    "rd_kafka_name": (_TEXT, (_P,)),
    "rd_kafka_poll_set_consumer": (_INT, (_P,)),
    "rd_kafka_queue_get_consumer": (_P, (_P,)),
    "rd_kafka_queue_get_main": (_P, (_P,)),
    "rd_kafka_queue_forward": (None, (_P, _P)),
    "rd_kafka_queue_new": (_P, (_P,)),
    "rd_kafka_queue_destroy": (None, (_P,)),
    "rd_kafka_set_log_queue": (_INT, (_P, _P)),
    "rd_kafka_queue_poll": (_P, (_P, _INT)),
    "rd_kafka_event_type": (_INT, (_P,)),
    "rd_kafka_event_error": (_INT, (_P,)),
    "rd_kafka_event_error_string": (_TEXT, (_P,)),
    "rd_kafka_event_log": (
        _INT,
        (_P, ctypes.POINTER(_TEXT), ctypes.POINTER(_TEXT), ctypes.POINTER(_INT)),
    ),
    "rd_kafka_event_destroy": (None, (_P,)),
    "rd_kafka_topic_partition_list_new": (_P, (_INT,)),
    "rd_kafka_topic_partition_list_add": (_PARTITION, (_P, _TEXT, ctypes.c_int32)),
    "rd_kafka_topic_partition_list_destroy": (None, (_P,)),
    "rd_kafka_assign": (_INT, (_P, _P)),
    "rd_kafka_seek_partitions": (_P, (_P, _P, _INT)),
    "rd_kafka_error_code": (_INT, (_P,)),
    "rd_kafka_error_destroy": (None, (_P,)),
    "rd_kafka_query_watermark_offsets": (
        _INT,
        (_P, _TEXT, ctypes.c_int32, ctypes.POINTER(_INT64), ctypes.POINTER(_INT64), _INT),
    ),
    "rd_kafka_consumer_close": (_INT, (_P,)),
    "rd_kafka_destroy": (None, (_P,)),
}
"""The library's functions that are called from Python: what they return, and their arguments."""


class Loaded(NamedTuple):
    """The library, and the compiled module that calls it."""

    library: Any
    module: Any


def _file() -> str | None:
    """The file of the librdkafka that this process uses; None: unknown."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    files = {line.split(maxsplit=5)[5] for line in lines if "/librdkafka" in line}
    return files.pop() if len(files) == 1 else None


def _load() -> Loaded | None:
    """None if something is missing or disabled: then `takers` does the same in Python."""
    if os.environ.get(PURE_VARIABLE) or (file := _file()) is None:
        return None
    try:
        module = import_module("amqp_streams.kafka.brokers._records")
        library = ctypes.CDLL(file)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        functions = addresses([getattr(library, name) for name in FUNCTIONS])
    except (ImportError, OSError, AttributeError):
        return None
    if library.rd_kafka_version() != libversion()[1]:
        return None
    module.bind(functions)
    return Loaded(library, module)


def addresses(functions: Sequence[Any]) -> bytes:
    """Functions of C as `bind` of the compiled module takes them."""
    found = [ctypes.cast(function, _P).value or 0 for function in functions]
    return b"".join(address.to_bytes(ctypes.sizeof(_P), sys.byteorder) for address in found)


loaded: Final = _load()
KIND: Final = "python" if loaded is None else "compiled"


class CompiledTaker:
    """See `Taker`. For topics of our own: keys and headers are not taken."""

    def __init__(self, settings: Mapping[str, object], parts: Loaded) -> None:
        library = self._library = parts.library
        self._take: Final = parts.module.take
        given = dict(settings)
        self._failed: Final = cast("Callable[[KafkaError], object] | None", given.pop(_FAILED, None))
        self._handle: int | None = _made(given, library)
        self._name: Final = library.rd_kafka_name(self._handle).decode()
        self._events: Final = library.rd_kafka_queue_new(self._handle)
        library.rd_kafka_set_log_queue(self._handle, self._events)
        library.rd_kafka_poll_set_consumer(self._handle)
        self._queue: Final = library.rd_kafka_queue_get_consumer(self._handle)
        # From here on, the queue of the consumer has messages only.
        main = library.rd_kafka_queue_get_main(self._handle)
        library.rd_kafka_queue_forward(main, self._events)
        library.rd_kafka_queue_destroy(main)

    def assign(self, place: Place, at: int) -> None:
        """See `Taker.assign`."""
        some, _ = self._list(place, at)
        try:
            self._check(self._library.rd_kafka_assign(self._handle, some))
        finally:
            self._library.rd_kafka_topic_partition_list_destroy(some)

    def seek(self, place: Place, at: int) -> None:
        """See `Taker.seek`."""
        library = self._library
        some, partition = self._list(place, at)
        try:
            error = library.rd_kafka_seek_partitions(self._handle, some, _WAIT_MS)
            code = partition.error
            if error:
                code = library.rd_kafka_error_code(error)
                library.rd_kafka_error_destroy(error)
            self._check(code)
        finally:
            library.rd_kafka_topic_partition_list_destroy(some)

    def take(self, timeout_s: float, count: int, bytes_max: int) -> Portion:
        """See `Taker.take`."""
        assert self._handle is not None, "it is open"
        runs, others = self._take(self._queue, int(timeout_s * 1000), count, bytes_max)
        self._take_events()
        return Portion(
            [
                (Place(columns.topic, columns.partition), consumed_columns(columns))
                for columns in map(Columns._make, runs)
            ],
            [
                Other(Place(topic, partition), offset, KafkaError(code, text))
                for topic, partition, offset, code, text in others
            ],
        )

    def extent(self, place: Place, timeout_s: float) -> tuple[int, int]:
        """See `Taker.extent`."""
        start, end = _INT64(), _INT64()
        self._check(
            self._library.rd_kafka_query_watermark_offsets(
                self._handle,
                place.topic.encode(),
                place.partition,
                ctypes.byref(start),
                ctypes.byref(end),
                int(timeout_s * 1000),
            )
        )
        return start.value, end.value

    def close(self) -> None:
        """See `Taker.close`."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        self._library.rd_kafka_consumer_close(handle)
        self._take_events()
        # The library demands that its queues are given back before the consumer ends.
        self._library.rd_kafka_queue_destroy(self._queue)
        self._library.rd_kafka_queue_destroy(self._events)
        self._library.rd_kafka_destroy(handle)

    def _list(self, place: Place, at: int) -> tuple[Any, _Partition]:
        """A list of the library with one position, and that position."""
        some = self._library.rd_kafka_topic_partition_list_new(1)
        partition: _Partition = self._library.rd_kafka_topic_partition_list_add(
            some, place.topic.encode(), place.partition
        ).contents
        partition.offset = at
        return some, partition

    def _check(self, code: int) -> None:
        if code != _DONE:
            raise KafkaException(KafkaError(code, _decoded(self._library.rd_kafka_err2str(code))))

    def _take_events(self) -> None:
        """Report errors of brokers, and write the lines of the log that the library has made."""
        library = self._library
        while event := library.rd_kafka_queue_poll(self._events, 0):
            try:
                if library.rd_kafka_event_type(event) == _ERROR_EVENT:
                    self._report(
                        library.rd_kafka_event_error(event), library.rd_kafka_event_error_string(event)
                    )
                else:
                    self._write_line(event)
            finally:
                library.rd_kafka_event_destroy(event)

    def _report(self, code: int, text: bytes | None) -> None:
        if self._failed is not None:
            self._failed(KafkaError(code, _decoded(text)))

    def _write_line(self, event: int) -> None:
        facility, text, level = _TEXT(), _TEXT(), _INT()
        found = ctypes.byref(facility), ctypes.byref(text), ctypes.byref(level)
        if self._library.rd_kafka_event_log(event, *found) == _DONE:
            words = _decoded(facility.value), self._name, _decoded(text.value)
            log.log(_LEVELS[level.value], "%s [%s] %s", *words)


def _decoded(text: bytes | None) -> str:
    return (text or b"").decode("utf-8", "replace")


def _made(settings: Mapping[str, object], library: Any) -> int:
    """A consumer with these settings.

    Raises:
        KafkaException: the library refuses a setting.
    """
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    configuration = library.rd_kafka_conf_new()
    for name, value in {**settings, "log.queue": True}.items():
        written = str(value).lower() if isinstance(value, bool) else str(value)
        if (
            library.rd_kafka_conf_set(configuration, name.encode(), written.encode(), text, len(text))
            != _DONE
        ):
            library.rd_kafka_conf_destroy(configuration)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text.value.decode()))
    library.rd_kafka_conf_set_events(configuration, _ERROR_EVENT)
    library.rd_kafka_conf_set_log_cb(configuration, None)
    handle: int | None = library.rd_kafka_new(_CONSUMER, configuration, text, len(text))
    if not handle:
        code = library.rd_kafka_last_error()
        library.rd_kafka_conf_destroy(configuration)
        raise KafkaException(KafkaError(code, text.value.decode()))
    return handle


def consumed_columns(columns: Columns) -> Consumed:
    """The records that the compiled loop has taken."""
    sizes = array("i", columns.sizes)
    offsets, times_ms = array("Q", columns.offsets), array("q", columns.times_ms)
    size = sizes[0]
    if size > 0 and sizes.count(size) == len(sizes):
        ends: range | list[int] = range(0, size * len(sizes) + 1, size)
    else:
        ends = list(accumulate([max(0, size) for size in sizes], initial=0))
    values = Packed(columns.buffer, ends)
    if -1 not in sizes:
        return Consumed(offsets, times_ms, values)
    found = [None if size < 0 else value for size, value in zip(sizes, values, strict=True)]
    return Consumed(offsets, times_ms, found)
