"""Every option of `format("amqpstreams")` in one table: name, kind, default, meaning, and uses. Pure.

Laws: no option is ignored. An option that is not in the table, or does not apply to the use, is an error that
names the nearest option. No message shows the value of a secret option. docs/spark.md has the same table
(tests/spark_connector/options/test_table.py compares them).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Final

from spark_connector.errors import OptionError
from spark_connector.options.option_kinds import FLAG, Endpoint, Kind, choice, duration, endpoints, names, number, plain, size
from spark_connector.options.other_sources import ELSEWHERE, NOT_NEEDED


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
    """`default` is text as a user would write it; None: no default. `aliases` are other names of the option."""

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
        "The URL of the node. If a node refuses or does not answer within `connectTimeout`, the next URL is used. Required.",
    ),
    Option("user", ALL, _ANY, None, "The user to log in as, with SCRAM, or with PLAIN over TLS."),
    Option("password", ALL, _ANY, None, "The user's password.", secret=True),
    Option("passwordFile", ALL, _FILE, None, "A file that contains the password, on every machine. It is read at each connection."),
    Option("token", ALL, _ANY, None, "An OAuth access token instead of a password.", secret=True),
    Option(
        "tokenFile",
        ALL,
        _FILE,
        None,
        "A file that contains the token, on every machine. It is read at each connection, so the token can be renewed.",
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
        "Certificate authorities that `amqps://` and `wss://` trust, on every machine. Default: those of the system.",
    ),
    Option("tlsCertificateFile", ALL, _FILE, None, "The client certificate, on every machine, for a node that asks for one."),
    Option("tlsKeyFile", ALL, _FILE, None, "The private key of the client certificate, on every machine."),
    Option("tlsVerify", ALL, FLAG, "true", "`false` accepts every certificate: for tests only."),
    Option("tlsServerName", ALL, _ANY, None, "The name in the node's certificate, if it is not the host of the endpoint."),
    Option("connectTimeout", ALL, duration(100, 3_600_000), "10s", "The longest time of one attempt to connect to one endpoint."),
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
        "retryInterval", ALL, duration(1, 3_600_000), "200ms", "The wait before the first retry. It doubles with each retry, up to 10 s."
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
    Option("startingOffsets", READ, _OFFSETS, None, "Where reading begins. Default: `earliest` in batches, `latest` in streaming."),
    Option("startingTimestamp", READ, _TIME, None, "Begin with the first event that was stored at or after this time."),
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
    Option("endingTimestamp", BATCH, _TIME, None, "End before the first event that was stored at or after this time."),
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
        "If requested events no longer exist: fail (`true`), or log how many are lost and continue (`false`).",
    ),
    Option("maxOffsetsPerTrigger", STREAM, number(1), None, "The most offsets of a micro-batch, over all partitions. Default: all."),
    Option(
        "maxBytesPerTrigger",
        STREAM,
        size(1),
        None,
        "The most stored bytes of a micro-batch, estimated from the average size of the events of each partition.",
    ),
    Option(
        "minOffsetsPerTrigger",
        STREAM,
        number(1),
        None,
        "Wait for this many offsets before a micro-batch, but no longer than `maxTriggerDelay`.",
    ),
    Option("maxTriggerDelay", STREAM, duration(0), "15m", "See `minOffsetsPerTrigger`."),
    Option("minPartitions", READ, number(1, 100_000), None, "Split ranges into at least this many tasks, if they have as many offsets."),
    Option("maxPartitions", READ, number(1, 100_000), None, "Read with at most this many tasks."),
    Option(
        "maxOffsetsPerPartition",
        READ,
        number(1),
        "1000000",
        "The most offsets that one task reads. `maxPartitions` overrides it.",
    ),
    Option("filter", READ, _ANY, None, "SQL condition that the node evaluates. The node sends only the events for which it is true."),
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
        "If a stored message cannot be read: fail, set the columns that cannot be read to null, or leave out the row. "
        "The last two write a log line.",
    ),
    Option("batchRows", READ, number(1, 100_000), "10000", "The most rows of an Arrow record batch."),
    Option("batchBytes", READ, size(1 << 10, 1 << 30), "8m", "The most bytes of an Arrow record batch, unless one row is larger."),
    Option("pollInterval", STREAM, duration(210, 3_600_000), "250ms", "How often an idle query asks the node for new events."),
)

WRITING: Final = (
    Option(
        "createPartitions",
        WRITE,
        number(1, 1024),
        None,
        "If the log does not exist, create it with this many partitions. Default: a log that does not exist is an error.",
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
        "The name of this write. The same rows written again under this name are not stored twice. Default: a random name.",
    ),
    Option(
        "sortRows",
        WRITE,
        FLAG,
        "false",
        "Write the rows of a task in the order of their bytes. The log then recognizes a replay even if a shuffle changed the order.",
    ),
)

TABLE: Final = (*CONNECTION, *READING, *WRITING)
SPARKS_OWN: Final = frozenset({"checkpointlocation"})
"""Options that Spark itself adds."""

_CATALOGUE: Final = "option."
"""Prefix of the options of `CREATE TABLE … USING amqpstreams OPTIONS (…)`, as Spark's catalogue passes them
to the source.
"""

_BY_NAME: Final = {name.lower(): option for option in TABLE for name in (option.name, *option.aliases)}


class Values:
    """The options of one use: converted, checked, with defaults. Its text contains no secrets."""

    __slots__ = ("_given", "_values")

    def __init__(self, values: Mapping[str, object], given: frozenset[str]) -> None:
        self._values = dict(values)
        self._given = given

    def __repr__(self) -> str:
        return f"Values(given={sorted(self._given)})"

    def given(self, name: str) -> bool:
        """Whether the user set the option."""
        return name in self._given

    def text(self, name: str) -> str | None:
        """Text, a path, or a word; None if it was not given."""
        value = self._values[name]
        assert value is None or isinstance(value, str), name
        return value

    def word(self, name: str) -> str:
        """A word that has a default."""
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def flag(self, name: str) -> bool:
        """`true` or `false`."""
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def limit(self, name: str) -> int | None:
        """A number, size (bytes) or time (ms); None if it was not given."""
        value = self._values[name]
        assert value is None or isinstance(value, int), name
        return value

    def number(self, name: str) -> int:
        """A number, size (bytes) or time (ms) that has a default."""
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """A list; empty if it was not given."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def urls(self, name: str) -> tuple[str, ...]:
        """URLs without user and password; empty if not given."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), name
        return tuple(one.url for one in value or () if isinstance(one, Endpoint))


def parse(given: Mapping[str, str], use: Use) -> Values:
    """Read options as Spark gives them, names in any case.

    Raises:
        OptionError: an option is unknown, has different values under two of its names, does not apply to this
            use, or has a value that is not valid. The message does not show values of secret options.
    """
    texts: dict[str, str] = {}
    names_given: dict[str, str] = {}
    for name, text in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        option = _BY_NAME.get(name.lower())
        if option is None:
            raise _unknown(name, frozenset({use}))
        if use not in option.uses:
            raise OptionError(
                f"option {option.name!r} does not apply to {use.value}",
                "",
                f"It applies to {_listed(use.value for use in _order(option.uses))}",
            )
        first = names_given.setdefault(option.name, name)
        if texts.setdefault(option.name, text) != text:
            raise OptionError(
                f"option {option.name!r} has two values",
                f"{first!r} and {name!r} are names of the same option",
                "Keep one of them",
            )
    values = {option.name: _value(option, texts.get(option.name)) for option in TABLE if use in option.uses}
    return Values(values, frozenset(texts))


def without_catalogue(given: Mapping[str, str]) -> Mapping[str, str]:
    """The options of the user, without those that Spark's catalogue adds: provider, owner, comment and
    properties.
    """
    if "provider" not in {name.lower() for name in given}:
        return given
    return {name[len(_CATALOGUE) :]: text for name, text in given.items() if name.lower().startswith(_CATALOGUE)}


def known(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """The options that apply to `use`, for callers that do not know the use of the others yet.

    Raises:
        OptionError: an option is unknown for every use.
    """
    unknown = [name for name in given if name.lower() not in _BY_NAME and name.lower() not in SPARKS_OWN]
    if unknown:
        raise _unknown(unknown[0], ALL)
    return {name: text for name, text in given.items() if name.lower() in _BY_NAME and use in _BY_NAME[name.lower()].uses}


def _value(option: Option, text: str | None) -> object:
    chosen = option.default if text is None else text
    if chosen is None:
        return None
    try:
        return option.kind.read(chosen)
    except ValueError as error:
        shown = "" if option.secret or len(chosen) > 80 or "@" in chosen else f" {chosen!r}"
        raise OptionError(f"the value{shown} of option {option.name!r} is not valid", "", f"Expected: {error}") from None


def _unknown(name: str, uses: frozenset[Use]) -> OptionError:
    usable = {known: option.name for known, option in _BY_NAME.items() if uses & option.uses}
    short = name.lower().removeprefix("amqpstreams.").removeprefix("kafka.").removeprefix("eventhubs.").strip()
    if short in NOT_NEEDED:
        return OptionError(f"unknown option {name!r}", "", NOT_NEEDED[short])
    meant = ELSEWHERE.get(short)
    near = [meant.lower()] if meant is not None and meant.lower() in usable else get_close_matches(short, usable, n=1, cutoff=0.6)
    remedy = f"Did you mean {usable[near[0]]!r}?" if near else f"Options: {', '.join(sorted(set(usable.values())))}"
    what = "" if len(uses) > 1 else f" for {next(iter(uses)).value}"
    return OptionError(f"unknown option {name!r}{what}", "", remedy)


def _order(uses: frozenset[Use]) -> list[Use]:
    return [use for use in Use if use in uses]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
