"""Every option of `format("amqpstreams")`, in one table: name, kind, default, meaning, and where it counts. Pure.

Law: an option that is not in the table, or does not count where it is given, is an error that names the nearest one: nothing is ignored in
silence. `docs/spark.md` has the same table (tests/spark_connector/options/test_table.py compares them).
Values of secret options are never shown.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Final

from spark_connector.errors import OptionError
from spark_connector.options.option_kinds import FLAG, Endpoint, Kind, choice, duration, endpoints, names, number, plain, size


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
    """`default` is text as a user would write it; None: there is none. `aliases` are names that users know from elsewhere."""

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
_TIMES: Final = plain("JSON: `{STREAM: {PARTITION: ms}}`")

CONNECTION: Final = (
    Option(
        "endpoint",
        ALL,
        endpoints(),
        None,
        "Where the node listens. Of several, the next is tried when one refuses or does not answer within `connectTimeout`. Required.",
    ),
    Option("user", ALL, _ANY, None, "Who logs in: by SCRAM, or PLAIN over TLS."),
    Option("password", ALL, _ANY, None, "The user's password.", secret=True),
    Option("passwordFile", ALL, _FILE, None, "A file with the password instead, on every machine; read at each connection."),
    Option("token", ALL, _ANY, None, "An OAuth access token instead of a password.", secret=True),
    Option(
        "tokenFile", ALL, _FILE, None, "A file with the token instead, on every machine; read at each connection, so it may be renewed."
    ),
    Option(
        "saslMechanisms", ALL, names("mechanisms, best first"), None, "Log in with these and no others. Default: the best that is offered."
    ),
    Option("plainWithoutTls", ALL, FLAG, "false", "Show password or token to a network without TLS."),
    Option("tlsCaFile", ALL, _FILE, None, "Authorities that `amqps://` and `wss://` trust, on every machine. Default: the system's."),
    Option("tlsCertificateFile", ALL, _FILE, None, "Our certificate, on every machine, where the node asks for one."),
    Option("tlsKeyFile", ALL, _FILE, None, "Its key, on every machine."),
    Option("tlsVerify", ALL, FLAG, "true", "`false` trusts anybody: tests only."),
    Option("tlsServerName", ALL, _ANY, None, "The name in the node's certificate where it is not the endpoint's host."),
    Option("connectTimeout", ALL, duration(100, 3_600_000), "10s", "How long one try to connect to one endpoint may take."),
    Option(
        "operationTimeout",
        ALL,
        duration(100, 3_600_000),
        "30s",
        "How long one request, or a wait for the next events of a range, may take.",
    ),
    Option("idleTimeout", ALL, duration(1000, 3_600_000), "30s", "A node that is silent for so long is taken for lost."),
    Option(
        "retries", ALL, number(0, 10_000), "12", "How often what failed for the network or a restart of the node is tried again, in a row."
    ),
    Option("retryInterval", ALL, duration(1, 3_600_000), "200ms", "Wait before the first of them; the next waits double, up to 10 s."),
)

READING: Final = (
    Option(
        "stream",
        ALL,
        names("names with commas"),
        None,
        "The logs to read; the one log to write to. Required.",
        ("subscribe", "topic", "path"),
    ),
    Option("startingOffsets", READ, _OFFSETS, None, "Where to begin. Default: `earliest` in batches, `latest` in streaming."),
    Option("startingTimestamp", READ, _TIME, None, "Begin with the first event stored at or after this time."),
    Option("startingOffsetsByTimestamp", READ, _TIMES, None, "The same, for each partition; `startingTimestamp` is for the others."),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        choice("latest", "error"),
        "latest",
        "Where a partition has no event at or after the time: begin at its end, or fail.",
    ),
    Option("endingOffsets", BATCH, _OFFSETS, "latest", "Where to end (exclusive)."),
    Option("endingTimestamp", BATCH, _TIME, None, "End before the first event stored at or after this time."),
    Option("endingOffsetsByTimestamp", BATCH, _TIMES, None, "The same, for each partition; `endingTimestamp` is for the others."),
    Option(
        "failOnDataLoss",
        READ,
        FLAG,
        "true",
        "Events that were to be read are gone: fail (`true`), or log how many and go on with what is there.",
    ),
    Option("maxOffsetsPerTrigger", STREAM, number(1), None, "At most so many offsets in a micro-batch, over all partitions. Default: all."),
    Option(
        "maxBytesPerTrigger", STREAM, size(1), None, "About so many stored bytes in a micro-batch, by the average size in each partition."
    ),
    Option(
        "minOffsetsPerTrigger",
        STREAM,
        number(1),
        None,
        "Wait for so many offsets before a micro-batch, but no longer than `maxTriggerDelay`.",
    ),
    Option("maxTriggerDelay", STREAM, duration(0), "15m", "See `minOffsetsPerTrigger`."),
    Option("minPartitions", READ, number(1, 100_000), None, "Split ranges into at least so many tasks, if there are as many offsets."),
    Option("maxPartitions", READ, number(1, 100_000), None, "Read with at most so many tasks."),
    Option(
        "maxOffsetsPerPartition",
        READ,
        number(1),
        "1000000",
        "The most offsets that one task reads, unless `maxPartitions` is given, which wins.",
    ),
    Option("filter", READ, _ANY, None, "SQL condition that the node evaluates: only events of which it is true are sent."),
    Option(
        "columns",
        READ,
        names("names of columns, or `default`, `cloudevents`, `all`"),
        "default",
        "The columns, unless `.schema(…)` names them.",
    ),
    Option("includeProperties", READ, FLAG, "true", "Whether `default` has the column `properties`."),
    Option(
        "mode",
        READ,
        choice("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
        "FAILFAST",
        "Of a stored message that cannot be read: fail; leave what it has not null; leave the row out. All but the first are logged.",
    ),
    Option("batchRows", READ, number(1, 100_000), "10000", "Rows of an Arrow record batch at most."),
    Option("batchBytes", READ, size(1 << 10, 1 << 30), "8m", "Bytes of an Arrow record batch at most, unless one row is larger."),
    Option("pollInterval", STREAM, duration(210, 3_600_000), "250ms", "How often an idle query asks the node for news."),
)

WRITING: Final = (
    Option(
        "createPartitions",
        WRITE,
        number(1, 1024),
        None,
        "Make the log with so many partitions if there is none. Default: it has to be there.",
    ),
    Option(
        "deduplicate", WRITE, FLAG, "true", "Whether the log is to know rows that it has already when a task or a micro-batch is run again."
    ),
    Option(
        "transactionId",
        frozenset({Use.BATCH_WRITE}),
        plain("text that no other write to the log has"),
        None,
        "Names this write, so that the same rows written again under the same name are not stored twice. Default: a random one.",
    ),
    Option(
        "sortRows",
        WRITE,
        FLAG,
        "false",
        "Write rows of a task in the order of their bytes, so that a replay is known for one although a shuffle gave them another order.",
    ),
)

TABLE: Final = (*CONNECTION, *READING, *WRITING)
SPARKS_OWN: Final = frozenset({"checkpointlocation"})
"""What Spark passes on of its own."""

_NO_GROUP: Final = "Reading needs no consumer group: leave it out"

ELSEWHERE: Final = {
    "bootstrap.servers": "endpoint",
    "connectionstring": "endpoint",
    "service.url": "endpoint",
    "assign": "startingOffsets",
    "startingposition": "startingOffsets",
    "startingpositions": "startingOffsets",
    "endingposition": "endingOffsets",
    "endingpositions": "endingOffsets",
    "maxeventspertrigger": "maxOffsetsPerTrigger",
    "maxrecordspertrigger": "maxOffsetsPerTrigger",
    "maxrecordsperpartition": "maxOffsetsPerPartition",
    "includeheaders": "includeProperties",
    "fetchoffset.numretries": "retries",
    "fetchoffset.retryintervalms": "retryInterval",
    "polltimeoutms": "operationTimeout",
    "receivertimeout": "operationTimeout",
    "operationtimeout": "operationTimeout",
}
"""What options of other sources are called here, by the end of their names in lower case."""

NOT_NEEDED: Final = {
    "group.id": _NO_GROUP,
    "groupidprefix": _NO_GROUP,
    "consumergroup": _NO_GROUP,
    "prefetchcount": "Leave it out: tasks prefetch automatically, and batchBytes limits their memory",
    "subscribepattern": "Patterns are not supported: name the logs in 'stream', separated by commas",
}
"""What to do about options of other sources that have no counterpart here, by the end of their names in lower case."""

_CATALOGUE: Final = "option."
"""Prefix of the options of `CREATE TABLE … USING amqpstreams OPTIONS (…)`, as Spark's catalogue passes them to the source."""

_BY_NAME: Final = {name.lower(): option for option in TABLE for name in (option.name, *option.aliases)}


class Values:
    """What was given for one use, read and within bounds, defaults filled in. Never shows a secret."""

    __slots__ = ("_given", "_values")

    def __init__(self, values: Mapping[str, object], given: frozenset[str]) -> None:
        self._values = dict(values)
        self._given = given

    def __repr__(self) -> str:
        return f"Values(given={sorted(self._given)})"

    def given(self, name: str) -> bool:
        """The user named it."""
        return name in self._given

    def text(self, name: str) -> str | None:
        """Text, a path, or a word; None: not given."""
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
        """A number, size (bytes) or time (ms) that need not be given."""
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
        OptionError: one is unknown, given twice under two names, does not count here, or has a value that is none. Values are not shown.
    """
    texts: dict[str, str] = {}
    for name, text in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        option = _BY_NAME.get(name.lower())
        if option is None:
            raise _unknown(name, frozenset({use}))
        if use not in option.uses:
            raise OptionError(
                f"option {option.name!r} does not count for {use.value}",
                "",
                f"It counts for {_listed(use.value for use in _order(option.uses))}",
            )
        if option.name in texts:
            raise OptionError(f"option {option.name!r} is given twice", f"as {name!r} and by another name", "Keep one of them")
        texts[option.name] = text
    values = {option.name: _value(option, texts.get(option.name)) for option in TABLE if use in option.uses}
    return Values(values, frozenset(texts))


def without_catalogue(given: Mapping[str, str]) -> Mapping[str, str]:
    """The options of the user, without what Spark's catalogue adds for a table: its provider, owner, comment and properties."""
    if "provider" not in {name.lower() for name in given}:
        return given
    return {name[len(_CATALOGUE) :]: text for name, text in given.items() if name.lower().startswith(_CATALOGUE)}


def known(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """Those that count for `use`, before anybody knows what for they were given.

    Raises:
        OptionError: one is unknown for whatever use.
    """
    strange = [name for name in given if name.lower() not in _BY_NAME and name.lower() not in SPARKS_OWN]
    if strange:
        raise _unknown(strange[0], ALL)
    return {name: text for name, text in given.items() if name.lower() in _BY_NAME and use in _BY_NAME[name.lower()].uses}


def _value(option: Option, text: str | None) -> object:
    chosen = option.default if text is None else text
    if chosen is None:
        return None
    try:
        return option.kind.read(chosen)
    except ValueError as error:
        shown = "" if option.secret or len(chosen) > 80 or "@" in chosen else f" {chosen!r}"
        raise OptionError(f"option {option.name!r} has a value{shown} that it cannot have", "", f"Wanted: {error}") from None


def _unknown(name: str, uses: frozenset[Use]) -> OptionError:
    usable = {known: option.name for known, option in _BY_NAME.items() if uses & option.uses}
    short = name.lower().removeprefix("amqpstreams.").removeprefix("kafka.").removeprefix("eventhubs.").strip()
    if short in NOT_NEEDED:
        return OptionError(f"there is no option {name!r}", "", NOT_NEEDED[short])
    meant = ELSEWHERE.get(short)
    near = [meant.lower()] if meant is not None and meant.lower() in usable else get_close_matches(short, usable, n=1, cutoff=0.6)
    remedy = f"Did you mean {usable[near[0]]!r}?" if near else f"There are: {', '.join(sorted(set(usable.values())))}"
    what = "" if len(uses) > 1 else f" for {next(iter(uses)).value}"
    return OptionError(f"there is no option {name!r}{what}", "", remedy)


def _order(uses: frozenset[Use]) -> list[Use]:
    return [use for use in Use if use in uses]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
