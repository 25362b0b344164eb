"""The options of `format("amqpstreams")` in one table: name, kind, default, meaning, and uses. Pure.

No option is ignored. An option that is not in the table, or does not apply to the use, is an error that names
the most similar option. Messages do not contain values of secret options. docs/spark.md has the same table
(tests/spark_connector/options/test_table.py compares them).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_connector.options.option_kinds import (
    FLAG,
    Kind,
    choice,
    duration,
    endpoints,
    names,
    number,
    plain,
    size,
)


class Use(Enum):
    """What a query does with the source or the sink."""

    BATCH_READ = "spark.read"
    STREAM_READ = "spark.readStream"
    BATCH_WRITE = "write"
    STREAM_WRITE = "writeStream"


READ: Final = frozenset({Use.BATCH_READ, Use.STREAM_READ})
WRITE: Final = frozenset({Use.BATCH_WRITE, Use.STREAM_WRITE})
BATCH: Final = frozenset({Use.BATCH_READ})
STREAM: Final = frozenset({Use.STREAM_READ})
ALL: Final = READ | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    """`default`: text as a user would write it; None: the option does not have a default.

    `aliases`: other names.
    """

    name: str
    uses: frozenset[Use]
    kind: Kind
    default: str | None
    meaning: str
    aliases: tuple[str, ...] = ()
    secret: bool = False


_ANY: Final = plain("text")
_FILE: Final = plain("a path")
_OFFSETS: Final = plain("`earliest`, `latest`, or JSON")
_TIME: Final = plain("ms since 1970 UTC, or ISO 8601 with a zone")
_TIMES: Final = plain("JSON: `{LOG: {PARTITION: ms}}`")

CONNECTION: Final = (
    Option(
        "endpoint",
        ALL,
        endpoints(),
        None,
        "The URL of the node, or of several nodes of a cluster. Each connection begins at a random one, and"
        " changes to another one if a node refuses it, is silent or is lost. Required.",
    ),
    Option("user", ALL, _ANY, None, "The user to log in as, with SCRAM, or with PLAIN over TLS."),
    Option("password", ALL, _ANY, None, "The user's password.", secret=True),
    Option(
        "passwordFile",
        ALL,
        _FILE,
        None,
        "A file that contains the password, on every machine. It is read at each connection.",
    ),
    Option("token", ALL, _ANY, None, "An OAuth access token instead of a password.", secret=True),
    Option(
        "tokenFile",
        ALL,
        _FILE,
        None,
        "A file that contains the token, on every machine. It is read at each connection, so the token can be"
        " renewed.",
    ),
    Option(
        "saslMechanisms",
        ALL,
        names("mechanisms, best first"),
        None,
        "Use only these mechanisms to log in. Default: the best one that the node offers.",
    ),
    Option("plainWithoutTls", ALL, FLAG, "false", "Send the password or the token without TLS."),
    Option(
        "tlsCaFile",
        ALL,
        _FILE,
        None,
        "Certificate authorities that `amqps://` and `wss://` trust, on every machine. Default: those of the"
        " system.",
    ),
    Option(
        "tlsCertificateFile",
        ALL,
        _FILE,
        None,
        "The client certificate, on every machine, for a node that requires one.",
    ),
    Option("tlsKeyFile", ALL, _FILE, None, "The private key of the client certificate, on every machine."),
    Option("tlsVerify", ALL, FLAG, "true", "`false` accepts every certificate: for tests only."),
    Option(
        "tlsServerName",
        ALL,
        _ANY,
        None,
        "The name in the node's certificate, if it is not the host of the endpoint.",
    ),
    Option(
        "connectTimeout",
        ALL,
        duration(100, 3_600_000),
        "10s",
        "The longest time of one attempt to connect, over all endpoints.",
    ),
    Option(
        "operationTimeout",
        ALL,
        duration(100, 3_600_000),
        "30s",
        "The longest time of one request, or of one wait for the next events of a range.",
    ),
    Option(
        "idleTimeout",
        ALL,
        duration(1000, 3_600_000),
        "30s",
        "If the node sends nothing for this time, the connection counts as lost.",
    ),
    Option(
        "retries",
        ALL,
        number(0, 10_000),
        "12",
        "How often in a row an operation is retried after a network failure or a restart of the node.",
    ),
    Option(
        "retryInterval",
        ALL,
        duration(1, 3_600_000),
        "200ms",
        "The wait before the first retry. It doubles with each retry, up to 10 s.",
    ),
    Option(
        "compression",
        ALL,
        choice("none", "zstd", "lz4"),
        "none",
        "Compress the events on the network, if the node supports it. Needs the `compression` extra on every"
        " machine.",
    ),
)

READING: Final = (
    Option(
        "stream",
        ALL,
        names("names, separated by commas"),
        None,
        "The logs to read, or the one log to write to. Required.",
        ("log", "subscribe", "topic", "path"),
    ),
    Option(
        "startingOffsets",
        READ,
        _OFFSETS,
        None,
        "Where reading begins. Default: `earliest` in batches, `latest` in streaming.",
    ),
    Option(
        "startingTimestamp",
        READ,
        _TIME,
        None,
        "Begin with the first event that was stored at or after this time.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        READ,
        _TIMES,
        None,
        "The same for each partition. `startingTimestamp` applies to the partitions that are not named.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        choice("latest", "error"),
        "latest",
        "If a partition has no event at or after the time: begin at its end, or fail.",
    ),
    Option("endingOffsets", BATCH, _OFFSETS, "latest", "Where reading ends (exclusive)."),
    Option(
        "endingTimestamp",
        BATCH,
        _TIME,
        None,
        "End before the first event that was stored at or after this time.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        BATCH,
        _TIMES,
        None,
        "The same for each partition. `endingTimestamp` applies to the partitions that are not named.",
    ),
    Option(
        "failOnDataLoss",
        READ,
        FLAG,
        "true",
        "If requested events no longer exist: fail (`true`), or log how many are lost and continue"
        " (`false`).",
    ),
    Option(
        "maxOffsetsPerTrigger",
        STREAM,
        number(1),
        None,
        "The most offsets of a micro-batch, over all partitions. Default: all.",
    ),
    Option(
        "maxBytesPerTrigger",
        STREAM,
        size(1),
        None,
        "The most stored bytes of a micro-batch, estimated from the average size of the events of each"
        " partition.",
    ),
    Option(
        "minOffsetsPerTrigger",
        STREAM,
        number(1),
        None,
        "Wait for this many offsets before a micro-batch, but no longer than `maxTriggerDelay`.",
    ),
    Option("maxTriggerDelay", STREAM, duration(0), "15m", "See `minOffsetsPerTrigger`."),
    Option(
        "minPartitions",
        READ,
        number(1, 100_000),
        None,
        "Split ranges into at least this many tasks, if they have as many offsets.",
    ),
    Option("maxPartitions", READ, number(1, 100_000), None, "Read with at most this many tasks."),
    Option(
        "maxOffsetsPerPartition",
        READ,
        number(1),
        "1000000",
        "The most offsets that one task reads. `maxPartitions` overrides it.",
    ),
    Option(
        "filter",
        READ,
        _ANY,
        None,
        "SQL condition that the node evaluates. The node sends only the events for which it is true.",
    ),
    Option(
        "columns",
        READ,
        names("names of columns, or `default`, `cloudevents`, `all`"),
        "default",
        "The columns, unless `.schema(…)` names them.",
    ),
    Option("includeProperties", READ, FLAG, "true", "Whether `default` includes the column `properties`."),
    Option(
        "mode",
        READ,
        choice("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
        "FAILFAST",
        "If a stored message cannot be read: fail, set the columns that cannot be read to null, or leave out"
        " the row. The last two write a log line.",
    ),
    Option("batchRows", READ, number(1, 100_000), "10000", "The most rows of an Arrow record batch."),
    Option(
        "batchBytes",
        READ,
        size(1 << 10, 1 << 30),
        "8m",
        "The most bytes of an Arrow record batch, unless one row is larger.",
    ),
    Option(
        "pollInterval",
        STREAM,
        duration(210, 3_600_000),
        "250ms",
        "How often an idle query asks the node for new events.",
    ),
)

WRITING: Final = (
    Option(
        "createPartitions",
        WRITE,
        number(1, 1024),
        None,
        "If the log does not exist, create it with this many partitions. Default: a log that does not exist"
        " is an error.",
    ),
    Option(
        "deduplicate",
        WRITE,
        FLAG,
        "true",
        "Whether the log skips rows that it already has when a task or a micro-batch runs again.",
    ),
    Option(
        "transactionId",
        frozenset({Use.BATCH_WRITE}),
        plain("text that no other write to the log has"),
        None,
        "The name of this write. The same rows written again under this name are not stored twice. Default: a"
        " random name.",
    ),
    Option(
        "sortRows",
        WRITE,
        FLAG,
        "false",
        "Write the rows of a task in the order of their bytes. The log then recognizes a replay even if a"
        " shuffle changed the order.",
    ),
)

TABLE: Final = (*CONNECTION, *READING, *WRITING)
SPARKS_OWN: Final = frozenset({"checkpointlocation"})
"""Options that Spark itself adds."""
