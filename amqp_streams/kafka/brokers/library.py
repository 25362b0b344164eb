"""[io] The librdkafka that confluent-kafka has loaded, called directly. See docs/compiled-loops.md.

`_records.c` is built with the wheel when a C compiler is there. It uses the library that is loaded, but not
the clients of confluent-kafka: they call Python for errors and for lines of the log while records are taken,
and a compiled loop does not have the interpreter's lock then. So this module makes clients of its own, from
the same settings. What is not a record or a report, such as errors of brokers and lines of the log, are
events of a queue (`Client.take_event`).
"""

import ctypes
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from confluent_kafka import KafkaError, KafkaException, libversion

PURE_VARIABLE: Final = "AMQP_STREAMS_PURE"
"""See `proton/compiled.py`."""
FUNCTIONS: Final = (
    "rd_kafka_consume_batch_queue",
    "rd_kafka_message_destroy",
    "rd_kafka_message_timestamp",
    "rd_kafka_topic_name",
    "rd_kafka_message_errstr",
    "rd_kafka_topic_new",
    "rd_kafka_topic_destroy",
    "rd_kafka_last_error",
    "rd_kafka_produce_batch",
    "rd_kafka_queue_poll",
    "rd_kafka_event_type",
    "rd_kafka_event_message_array",
    "rd_kafka_event_destroy",
)
"""The library's functions that `_records.c` calls, in the order of its structure `library`."""
PRODUCER: Final = 0
CONSUMER: Final = 1
DONE: Final = 0
"""The library's values for kinds of clients, and for no error."""
REPORTS: Final = 0x1
_LOG: Final = 0x4
_ERROR: Final = 0x8
_STATISTICS: Final = 0x40
"""The library's kinds of events: RD_KAFKA_EVENT_DR and others."""
_TEXT_BYTES: Final = 512
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
INT64: Final = ctypes.c_int64

log = logging.getLogger("amqp_streams.kafka")


class PartitionStructure(ctypes.Structure):
    """rd_kafka_topic_partition_t of rdkafka.h."""

    _fields_ = (
        ("topic", _TEXT),
        ("partition", ctypes.c_int32),
        ("offset", INT64),
        ("metadata", _P),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", _P),
        ("error", _INT),
        ("private", _P),
    )


_PARTITION: Final = ctypes.POINTER(PartitionStructure)
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
        (_P, _TEXT, ctypes.c_int32, ctypes.POINTER(INT64), ctypes.POINTER(INT64), _INT),
    ),
    "rd_kafka_consumer_close": (_INT, (_P,)),
    "rd_kafka_destroy": (None, (_P,)),
    "rd_kafka_event_stats": (_TEXT, (_P,)),
    "rd_kafka_event_error_is_fatal": (_INT, (_P,)),
    "rd_kafka_purge": (_INT, (_P, _INT)),
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


def load() -> Loaded | None:
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


class Client:
    """A client of Kafka that the library made. Ends with `close`.

    `error_cb` and `stats_cb` in the settings are functions, as for confluent-kafka: they get errors of
    brokers, and statistics.
    """

    def __init__(self, kind: int, settings: Mapping[str, object], library: Any) -> None:
        """Make it.

        Raises:
            KafkaException: the library refuses a setting.
        """
        given = dict(settings)
        self.library: Final = library
        self._failed: Final = cast("Callable[[KafkaError], object] | None", given.pop("error_cb", None))
        self._told: Final = cast("Callable[[str], object] | None", given.pop("stats_cb", None))
        self.handle: int | None = _made(kind, given, library)
        self._name: Final = library.rd_kafka_name(self.handle).decode()
        self.events: Final = library.rd_kafka_queue_new(self.handle)
        """The queue of the events. The caller of `close` must not use it any more."""
        library.rd_kafka_set_log_queue(self.handle, self.events)
        main = library.rd_kafka_queue_get_main(self.handle)
        if kind == CONSUMER:
            library.rd_kafka_poll_set_consumer(self.handle)
        # From here on, the queue of a consumer has messages only.
        library.rd_kafka_queue_forward(main, self.events)
        library.rd_kafka_queue_destroy(main)
        self.fatal: str | None = None
        """Why it cannot be used any more."""

    def take_events(self) -> None:
        """Take all events that are there."""
        while event := self.library.rd_kafka_queue_poll(self.events, 0):
            self.take_event(event)

    def take_event(self, event: int) -> None:
        """Report an error or statistics, or write a line of the log, and release the event."""
        library = self.library
        try:
            match library.rd_kafka_event_type(event):
                case kind if kind == _ERROR:
                    self._report(event)
                case kind if kind == _LOG:
                    self._write_line(event)
                case kind if kind == _STATISTICS and self._told is not None:
                    self._told(_decoded(library.rd_kafka_event_stats(event)))
        finally:
            library.rd_kafka_event_destroy(event)

    def check(self, code: int) -> None:
        """Raise KafkaException, if this is the code of an error."""
        if code != DONE:
            raise KafkaException(error_of(code, self.library))

    def close(self) -> None:
        """End it. May wait for its threads."""
        handle, self.handle = self.handle, None
        assert handle is not None, "it is closed once"
        # The library demands that its queues are given back before the client ends.
        self.library.rd_kafka_queue_destroy(self.events)
        self.library.rd_kafka_destroy(handle)

    def _report(self, event: int) -> None:
        library = self.library
        text = _decoded(library.rd_kafka_event_error_string(event))
        if library.rd_kafka_event_error_is_fatal(event):
            self.fatal = text
        elif self._failed is not None:
            self._failed(KafkaError(library.rd_kafka_event_error(event), text))

    def _write_line(self, event: int) -> None:
        facility, text, level = _TEXT(), _TEXT(), _INT()
        found = ctypes.byref(facility), ctypes.byref(text), ctypes.byref(level)
        if self.library.rd_kafka_event_log(event, *found) == DONE:
            words = _decoded(facility.value), self._name, _decoded(text.value)
            log.log(_LEVELS[level.value], "%s [%s] %s", *words)


def error_of(code: int, library: Any) -> KafkaError:
    """The error with this code, and the library's words for it."""
    return KafkaError(code, _decoded(library.rd_kafka_err2str(code)))


def _decoded(text: bytes | None) -> str:
    return (text or b"").decode("utf-8", "replace")


def _made(kind: int, settings: Mapping[str, object], library: Any) -> int:
    """A client with these settings.

    Raises:
        KafkaException: the library refuses a setting.
    """
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    configuration = library.rd_kafka_conf_new()
    for name, value in {**settings, "log.queue": True}.items():
        written = str(value).lower() if isinstance(value, bool) else str(value)
        if library.rd_kafka_conf_set(configuration, name.encode(), written.encode(), text, len(text)) != DONE:
            library.rd_kafka_conf_destroy(configuration)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text.value.decode()))
    events = _ERROR | (REPORTS | _STATISTICS if kind == PRODUCER else 0)
    library.rd_kafka_conf_set_events(configuration, events)
    library.rd_kafka_conf_set_log_cb(configuration, None)
    handle: int | None = library.rd_kafka_new(kind, configuration, text, len(text))
    if not handle:
        code = library.rd_kafka_last_error()
        library.rd_kafka_conf_destroy(configuration)
        raise KafkaException(KafkaError(code, text.value.decode()))
    return handle
