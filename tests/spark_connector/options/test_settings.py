"""How options act together."""

import pickle

import pytest

from amqp_streams.wire.batched import compression
from spark_connector.errors import ConnectorError, OffsetError, OptionError
from spark_connector.options.settings import ConnectionOptions, read_options, write_options
from spark_connector.planning.offsets import Edge, Positions, Times

REQUIRED = {"endpoint": "amqp://one,amqps://two:7000", "stream": "temps,doors"}
TO_WRITE = REQUIRED | {"stream": "temps"}


def test_required_options_must_be_given() -> None:
    with pytest.raises(OptionError, match="no endpoint"):
        read_options({"stream": "t"}, streaming=False)
    with pytest.raises(OptionError, match=r"no log is given.*load"):
        read_options({"endpoint": "h"}, streaming=False)


def test_a_batch_query_reads_what_exists_and_a_streaming_query_what_arrives() -> None:
    batch = read_options(REQUIRED, streaming=False)
    assert (batch.starting, batch.ending) == (Positions(Edge.EARLIEST), Positions(Edge.LATEST))
    stream = read_options(REQUIRED, streaming=True)
    assert (stream.starting, stream.ending) == (Positions(Edge.LATEST), None)
    assert (stream.max_offsets, stream.max_bytes, stream.min_offsets) == (None, None, None)
    assert stream.connection.endpoints == ("amqp://one:5672", "amqps://two:7000")


def test_partitions_that_are_not_named_begin_at_the_earliest_and_end_at_the_latest() -> None:
    found = read_options(
        REQUIRED | {"startingOffsets": '{"temps": {"0": 5}}', "endingOffsets": '{"temps": {"0": 9}}'},
        streaming=False,
    )
    assert found.starting == Positions(Edge.EARLIEST, {"temps": {0: 5}})
    assert found.ending == Positions(Edge.LATEST, {"temps": {0: 9}})


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00.0001Z", 1_769_860_800_001),
    ],
)
def test_times_are_ms_or_iso_8601(text: str, ms: int) -> None:
    assert read_options(REQUIRED | {"startingTimestamp": text}, streaming=True).starting == Times(ms)


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31T12:00:00", "-5", "9" * 30, "0001-01-01T00:00:00Z"])
def test_a_text_that_is_not_a_time_is_an_error(text: str) -> None:
    with pytest.raises(OptionError, match="option 'startingTimestamp' is not a time"):
        read_options(REQUIRED | {"startingTimestamp": text}, streaming=True)


def test_times_for_each_partition_go_before_the_time_for_all() -> None:
    found = read_options(
        REQUIRED | {"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"doors": {"1": 9}}'},
        streaming=True,
    ).starting
    assert found == Times(7, {"doors": {1: 9}})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot begin at latest"),
        ({"startingOffsets": '{"temps": {"0": -1}}'}, "a batch cannot begin at latest"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at earliest"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "5"},
            "'startingOffsets' and 'startingTimestamp' exclude each other",
        ),
        (
            {"endingOffsets": "latest", "endingOffsetsByTimestamp": "{}"},
            "'endingOffsets' and 'endingOffsetsByTimestamp' exclude each other",
        ),
        ({"password": "S3CRET"}, "a password is given, but no user"),
        (
            {"user": "u", "password": "S3CRET", "passwordFile": "f"},
            "'password' and 'passwordFile' exclude each other",
        ),
        ({"token": "S3CRET", "tokenFile": "f"}, "'token' and 'tokenFile' exclude each other"),
        ({"tlsKeyFile": "f"}, "'tlsKeyFile' is given, but not 'tlsCertificateFile'"),
        ({"startingOffsets": '{"windows": {"0": 5}}'}, "'windows' has starting offsets, but is not read"),
        ({"startingOffsets": '{"temps": {"0": "x"}}'}, "option 'startingOffsets', log 'temps', partition 0"),
    ],
)
def test_options_that_exclude_each_other_are_an_error(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConnectorError, match=words) as refused:
        read_options(REQUIRED | given, streaming=False)
    assert isinstance(refused.value, OptionError | OffsetError)
    assert "S3CRET" not in str(refused.value)


def test_settings_are_pickled_and_never_show_secrets() -> None:
    found = read_options(REQUIRED | {"user": "me", "password": "S3CRET"}, streaming=True)
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert again.connection.password == "S3CRET"
    assert "S3CRET" not in f"{found!r} {found.connection} {found.connection!r}"
    assert hash(again.connection) == hash(found.connection)


def test_compression_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_options(REQUIRED, streaming=False).connection.compression is None
    for name in ("zstd", "lz4"):
        found = write_options(TO_WRITE | {"compression": name}, streaming=False)
        assert found.connection.compression == name
    monkeypatch.setattr(compression, "_codec", lambda name: None)
    with pytest.raises(OptionError, match=r"Install amqp-event-streams\[compression\] on every machine"):
        read_options(REQUIRED | {"compression": "zstd"}, streaming=True)


def test_waits_grow_up_to_a_bound() -> None:
    options = ConnectionOptions(("amqp://h:5672",), retry_interval_ms=200)
    assert [options.wait_ms(attempt) for attempt in (0, 1, 2, 5, 6, 1000)] == [
        200,
        400,
        800,
        6400,
        10_000,
        10_000,
    ]
    assert ConnectionOptions(("amqp://h:5672",), retry_interval_ms=60_000).wait_ms(3) == 60_000


def test_a_write_has_one_stream_and_what_is_given() -> None:
    given = TO_WRITE | {
        "createPartitions": "4",
        "deduplicate": "false",
        "sortRows": "true",
        "transactionId": "2010",
    }
    found = write_options(given, streaming=False)
    assert (found.stream, found.create_partitions, found.deduplicate, found.sort_rows, found.transaction) == (
        "temps",
        4,
        False,
        True,
        "2010",
    )
    plain = write_options(TO_WRITE, streaming=True)
    assert (plain.create_partitions, plain.deduplicate, plain.sort_rows, plain.transaction) == (
        None,
        True,
        False,
        None,
    )
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        ({"stream": "temps,winds"}, False, "a write has exactly one log"),
        ({"transactionId": "x"}, True, "option 'transactionId' does not apply to writeStream"),
        ({"startingOffsets": "latest"}, False, "option 'startingOffsets' does not apply to write"),
        ({"createPartitions": "0"}, False, "Expected: a whole number, 1 to 1,024"),
    ],
)
def test_a_write_that_cannot_be_meant_is_an_error(given: dict[str, str], streaming: bool, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        write_options(TO_WRITE | given, streaming=streaming)


def test_a_write_says_how_to_name_its_log() -> None:
    for streaming in (False, True):
        with pytest.raises(OptionError, match="no log is given") as refused:
            write_options({"endpoint": "amqp://h"}, streaming=streaming)
        assert (".save(" in str(refused.value)) is not streaming
        assert ("a table keeps no options" in str(refused.value)) is not streaming
