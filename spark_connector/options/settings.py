"""The options of one query as values: the connection, and what to read or write. Pure.

The values are frozen and can be pickled. Their texts contain no secrets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from amqp_streams.wire.batched.compression import available
from service_parts.extras import DISTRIBUTION
from spark_connector.errors import OffsetError, OptionError
from spark_connector.options.given import Values, known, parse
from spark_connector.options.table import Use
from spark_connector.planning.offsets import (
    TIMESTAMP_MAX,
    Edge,
    Positions,
    Times,
    parse_positions,
    parse_times,
)

Where = Positions | Times

RETRY_WAIT_MAX_MS: Final = 10_000
_IN_SQL: Final = "In SQL, a table keeps no options"
_NAMING: Final = {
    Use.BATCH_READ: (
        f""" or .load("NAME"). {_IN_SQL}: give them in the query,"""
        """ FROM TABLE WITH (endpoint = 'URL', stream = 'NAME')"""
    ),
    Use.STREAM_READ: ' or .load("NAME")',
    Use.BATCH_WRITE: f""" or .save("NAME"). {_IN_SQL}: INSERT INTO a temporary view with options""",
    Use.STREAM_WRITE: "",
}
"""How a user can name the log without the option `stream`."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to connect to a node. Times are milliseconds.

    Hashable, because it is the key of the connections of a process.
    """

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    sasl_mechanisms: tuple[str, ...] = ()
    plain_without_tls: bool = False
    tls_ca_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    tls_verify: bool = True
    tls_server_name: str | None = None
    connect_timeout_ms: int = 10_000
    operation_timeout_ms: int = 30_000
    idle_timeout_ms: int = 30_000
    retries: int = 12
    retry_interval_ms: int = 200
    compression: str | None = None

    def __str__(self) -> str:
        return ", ".join(self.endpoints)

    def wait_ms(self, attempt: int) -> int:
        """Return the wait before the retry after attempt number `attempt` (from 0)."""
        # The shift is limited, because a large one makes an enormous number.
        return min(self.retry_interval_ms << min(attempt, 32), max(RETRY_WAIT_MAX_MS, self.retry_interval_ms))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, and how much at a time. `ending` is None in streaming."""

    connection: ConnectionOptions
    streams: tuple[str, ...]
    starting: Where
    ending: Where | None
    late_start_fails: bool
    fail_on_data_loss: bool
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_partitions: int | None
    max_partition_offsets: int
    filter: str | None
    columns: tuple[str, ...]
    include_properties: bool
    mode: str
    batch_rows: int
    batch_bytes: int
    poll_ms: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write, and how repeated rows are recognized.

    `transaction`: identifies the write; None in streaming, where the id of the query identifies it.
    """

    connection: ConnectionOptions
    stream: str
    create_partitions: int | None
    deduplicate: bool
    transaction: str | None
    sort_rows: bool


def connection_options(values: Values) -> ConnectionOptions:
    """Return the options of the connection, for reading and writing.

    Raises:
        OptionError: the endpoint is missing, or options exclude each other.
    """
    endpoints = values.urls("endpoint")
    if not endpoints:
        raise OptionError(
            "no endpoint is given", "", 'Set the URL of the node: .option("endpoint", "amqp://host:5672")'
        )
    for one, other in (
        ("password", "passwordFile"),
        ("token", "tokenFile"),
        ("password", "token"),
        ("password", "tokenFile"),
    ):
        if values.given(one) and values.given(other):
            raise OptionError(f"options {one!r} and {other!r} exclude each other", "", "Keep one of them")
    if (values.given("password") or values.given("passwordFile")) and not values.given("user"):
        raise OptionError("a password is given, but no user", "", 'Name the user: .option("user", "NAME")')
    if values.given("tlsKeyFile") and not values.given("tlsCertificateFile"):
        raise OptionError("option 'tlsKeyFile' is given, but not 'tlsCertificateFile'", "", "Give both")
    return ConnectionOptions(
        endpoints=endpoints,
        user=values.text("user"),
        password=values.text("password"),
        password_file=values.text("passwordFile"),
        token=values.text("token"),
        token_file=values.text("tokenFile"),
        sasl_mechanisms=values.names("saslMechanisms"),
        plain_without_tls=values.flag("plainWithoutTls"),
        tls_ca_file=values.text("tlsCaFile"),
        tls_certificate_file=values.text("tlsCertificateFile"),
        tls_key_file=values.text("tlsKeyFile"),
        tls_verify=values.flag("tlsVerify"),
        tls_server_name=values.text("tlsServerName"),
        connect_timeout_ms=values.number("connectTimeout"),
        operation_timeout_ms=values.number("operationTimeout"),
        idle_timeout_ms=values.number("idleTimeout"),
        retries=values.number("retries"),
        retry_interval_ms=values.number("retryInterval"),
        compression=_compression(values),
    )


def _compression(values: Values) -> str | None:
    name = values.word("compression")
    if name == "none":
        return None
    if available(name) is None:
        raise OptionError(
            "the library of the codec is not installed",
            f"option 'compression' is {name!r}",
            f"Install {DISTRIBUTION}[compression] on every machine",
        )
    return name


def first_look(given: Mapping[str, str]) -> None:
    """Check the options when a frame is created, before Spark knows whether it is a batch or a stream.

    Raises:
        OptionError: an option is unknown, or the node or the log is missing.
    """
    values = parse(known(given, Use.BATCH_READ), Use.BATCH_READ)
    connection_options(values)
    _streams(values, Use.BATCH_READ)


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Return the options of a query that reads.

    Raises:
        OptionError: an option is unknown, missing, out of bounds, or excludes another one.
        OffsetError: offsets or times are not valid.
    """
    use = Use.STREAM_READ if streaming else Use.BATCH_READ
    values = parse(given, use)
    streams = _streams(values, use)
    return ReadOptions(
        connection=connection_options(values),
        streams=streams,
        starting=_starting(values, streams, streaming=streaming),
        ending=None if streaming else _ending(values, streams),
        late_start_fails=values.word("startingOffsetsByTimestampStrategy") == "error",
        fail_on_data_loss=values.flag("failOnDataLoss"),
        max_offsets=values.limit("maxOffsetsPerTrigger") if streaming else None,
        max_bytes=values.limit("maxBytesPerTrigger") if streaming else None,
        min_offsets=values.limit("minOffsetsPerTrigger") if streaming else None,
        max_delay_ms=values.number("maxTriggerDelay") if streaming else 0,
        min_partitions=values.limit("minPartitions"),
        max_partitions=values.limit("maxPartitions"),
        max_partition_offsets=values.number("maxOffsetsPerPartition"),
        filter=values.text("filter"),
        columns=values.names("columns"),
        include_properties=values.flag("includeProperties"),
        mode=values.word("mode"),
        batch_rows=values.number("batchRows"),
        batch_bytes=values.number("batchBytes"),
        poll_ms=values.number("pollInterval") if streaming else 0,
    )


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the options of a write.

    Raises:
        OptionError: an option is unknown, missing, out of bounds, or excludes another one.
    """
    use = Use.STREAM_WRITE if streaming else Use.BATCH_WRITE
    values = parse(given, use)
    streams = _streams(values, use)
    if len(streams) > 1:
        raise OptionError(
            "a write has exactly one log",
            f"option 'stream' is {', '.join(streams)!r}",
            "Write to each log separately",
        )
    return WriteOptions(
        connection=connection_options(values),
        stream=streams[0],
        create_partitions=values.limit("createPartitions"),
        deduplicate=values.flag("deduplicate"),
        transaction=None if streaming else values.text("transactionId"),
        sort_rows=values.flag("sortRows"),
    )


def _streams(values: Values, use: Use) -> tuple[str, ...]:
    streams = values.names("stream")
    if not streams:
        raise OptionError("no log is given", "", f'Name the log with .option("stream", "NAME"){_NAMING[use]}')
    return streams


def _starting(values: Values, streams: tuple[str, ...], *, streaming: bool) -> Where:
    found = _where(values, "starting", Edge.LATEST if streaming else Edge.EARLIEST, Edge.EARLIEST)
    if not streaming and isinstance(found, Positions) and _mentions(found, Edge.LATEST):
        raise OptionError(
            "a batch cannot begin at latest", "option 'startingOffsets'", "It would read nothing"
        )
    return _of(found, streams, "starting")


def _ending(values: Values, streams: tuple[str, ...]) -> Where:
    found = _where(values, "ending", Edge.LATEST, Edge.LATEST)
    if isinstance(found, Positions) and _mentions(found, Edge.EARLIEST):
        raise OptionError("a batch cannot end at earliest", "option 'endingOffsets'", "It would read nothing")
    return _of(found, streams, "ending")


def _mentions(positions: Positions, edge: Edge) -> bool:
    return (positions.others is edge and not positions.named) or any(
        edge in entry.values() for entry in positions.named.values()
    )


def _where(values: Values, end: str, alone: Edge, others: Edge) -> Where:
    """Return where the partitions begin or end.

    `alone`: for all partitions if no option is given. `others`: for partitions that the JSON does not name.
    """
    offsets, time, times = f"{end}Offsets", f"{end}Timestamp", f"{end}OffsetsByTimestamp"
    if not values.given(time) and not values.given(times):
        text = values.text(offsets)
        return Positions(alone) if text is None else _located(offsets, lambda: parse_positions(text, others))
    if values.given(offsets):
        other = time if values.given(time) else times
        raise OptionError(f"options {offsets!r} and {other!r} exclude each other", "", "Keep one of them")
    at = values.text(time)
    moment = None if at is None else _moment(at, time)
    return _located(times, lambda: parse_times(values.text(times), moment))


def _located(option: str, read: Callable[[], Where]) -> Where:
    try:
        return read()
    except OffsetError as error:
        where = f"option {option!r}" + (f", {error.where}" if error.where else "")
        raise OffsetError(error.what, where, error.remedy) from None


def _of(found: Where, streams: tuple[str, ...], end: str) -> Where:
    """Check that `found` names only logs that the query reads, and return it."""
    unknown = sorted(set(found.named) - set(streams))
    if unknown:
        raise OffsetError(
            f"log {unknown[0]!r} has {end} offsets, but is not read",
            f"option 'stream' is {', '.join(streams)!r}",
            "Add the log to 'stream', or remove its offsets",
        )
    return found


def _moment(text: str, option: str) -> int:
    """Return a time in ms since 1970 UTC."""
    text = text.strip()
    wanted = OptionError(
        f"the value of option {option!r} is not a time",
        "",
        "Expected: ms since 1970 UTC, or ISO 8601 with a zone: 2026-01-31T12:00:00Z",
    )
    if text.isascii() and text.isdigit():
        value = int(text) if len(text) <= 18 else -1
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise wanted from None
        if moment.tzinfo is None:
            raise wanted
        value = -int(-moment.timestamp() * 1_000_000 // 1000)  # rounded up: the first ms at or after the time
    if not 0 <= value <= TIMESTAMP_MAX:
        raise wanted
    return value
