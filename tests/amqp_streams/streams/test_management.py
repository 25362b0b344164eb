"""Requests to `$management` are read leniently and answered precisely."""

from typing import Any, cast

import proton
import pytest

from amqp_streams import names
from amqp_streams.config import LogSettings
from amqp_streams.errors import WireError
from amqp_streams.streams.management import (
    BAD_REQUEST,
    SECTIONS_MAX,
    VALUES_MAX,
    Answer,
    Extents,
    Request,
    RequestError,
    answer_message,
    described_settings,
    parse_request,
    requested_extents,
    requested_name,
    requested_settings,
)
from amqp_streams.wire.types import Array, Int, Symbol, Timestamp, ULong, Value
from tests.amqp_streams.decoded import mapping


def message(
    body: Any = None, *, correlation: Any = None, reply_to: str | None = "me", **properties: Any
) -> bytes:
    """Return a request as a client on Proton sends it."""
    written = proton.Message(body=body, id="request-1", properties=properties or None, reply_to=reply_to)
    if correlation is not None:
        written.correlation_id = correlation
    return bytes(written.encode())


def request(name: str = "temps", **body: Value) -> Request:
    return Request(
        "CREATE", "event-log", name, {key.replace("_", "-"): value for key, value in body.items()}, "me", 1
    )


def test_a_request_is_taken_apart() -> None:
    read = parse_request(message({"partitions": 4}, operation="CREATE", type="event-log", name="temps"))
    assert read == Request("CREATE", "event-log", "temps", {"partitions": 4}, "me", "request-1")


def test_the_answer_repeats_the_correlation_id_rather_than_the_message_id() -> None:
    assert parse_request(message(correlation="c-7", operation="READ")).correlation == "c-7"
    assert parse_request(message(operation="READ")).correlation == "request-1"


def test_operations_are_read_in_any_case() -> None:
    assert parse_request(message(operation="query")).operation == "QUERY"


def test_an_absent_field_is_empty_and_one_of_another_type_is_an_error() -> None:
    strange = parse_request(message("no map", reply_to=None, operation=7))
    assert strange == Request("7", "", "", {}, None, "request-1", well_formed=False)
    assert parse_request(b"\x00\x53\x75\xa0\x00") == Request("", "", "", {}, None, None)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"garbage", b"\x00\x53\x77", b"\x00\x53\x73\xc0\xff\x01", b"\x00\x53\x74\xc1\x04\x03\x40\x40\x40"],
)
def test_bytes_that_are_not_a_message_have_no_answer(garbage: bytes) -> None:
    with pytest.raises(WireError):
        parse_request(garbage)


@pytest.mark.parametrize("name", ["", ".", "a/b", "$management", "a b", "x" * 256, "-a"])
def test_a_name_that_is_not_valid_is_a_bad_request(name: str) -> None:
    with pytest.raises(RequestError, match="'name'") as refused:
        requested_name(request(name))
    assert refused.value.answer.status == BAD_REQUEST


def test_given_settings_replace_the_existing_ones() -> None:
    base = LogSettings(partitions=2, retention_ms=5000)
    assert requested_settings(request(), base) == base
    changed = requested_settings(
        request(partitions=Int(3), segment_bytes=ULong(1 << 20), retention_bytes=2 << 20), base
    )
    assert changed == LogSettings(
        partitions=3, retention_ms=5000, segment_bytes=1 << 20, retention_bytes=2 << 20
    )


def test_a_choice_may_be_a_string_or_a_symbol() -> None:
    for value in ("zstd", Symbol("zstd")):
        changed = requested_settings(request(compression=value), LogSettings())
        assert changed.compression == "zstd"
        assert type(described_settings(changed)["compression"]) is str


def test_a_setting_may_be_unset() -> None:
    assert requested_settings(request(retention_ms=None), LogSettings(retention_ms=5000)).retention_ms is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"partitions": 0}, "'partitions'"),
        ({"partitions": 1025}, "'partitions'"),
        ({"partitions": "many"}, "'partitions'"),
        ({"partitions": True}, "'partitions'"),
        ({"partitions": [1]}, "'partitions'"),
        ({"retention_ms": 1}, "'retention-ms'"),
        ({"retention_ms": "yesterday"}, "'retention-ms'"),
        ({"retention_ms": 1 << 63}, "'retention-ms' must be at most 31536000000000 .got 9223372036854775808"),
        ({"retention_ms": "9" * 400 + "d"}, "1000 years"),
        ({"retention_bytes": 1 << 63}, "'retention-bytes' must be at most"),
        ({"retention_bytes": "9" * 400 + ".0TiB"}, "largest size"),
        ({"retention_bytes": 1000}, "'retention-bytes' must be at least 1MiB .got 1000"),
        ({"segment_ms": 1 << 63}, "'segment-ms' must be at most"),
        ({"segment_bytes": -1}, "'segment-bytes'"),
        ({"compression": "brotli"}, r"'compression' must be 'none', 'zstd' or 'lz4' .got 'brotli'"),
        ({"compression": 1}, r"'compression' must be 'none', 'zstd' or 'lz4'"),
        ({"compression": None}, r"'compression' must be 'none', 'zstd' or 'lz4'"),
        ({"colour": "blue"}, r"unknown setting 'colour': known are compression, partitions, retention-bytes"),
    ],
)
def test_a_setting_that_cannot_be_is_named(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as refused:
        requested_settings(request(**body), LogSettings())
    assert refused.value.answer.status == BAD_REQUEST


def test_settings_are_described_by_the_names_that_requests_use() -> None:
    settings = LogSettings(partitions=3, retention_ms=5000)
    described = described_settings(settings)
    assert described["retention-ms"] == 5000
    assert requested_settings(Request("", "", "", described, None, None), LogSettings()) == settings


@pytest.mark.parametrize("correlation", ["text", ULong(7), b"binary", None])
def test_an_answer_says_its_status_under_both_spellings(correlation: Value) -> None:
    """Some clients read one spelling, some the other."""
    answer = answer_message(
        Request("READ", "", "", {}, "me", correlation), Answer(404, "no such log", {"a": Symbol("b")})
    )
    read = proton.Message()
    read.decode(answer)
    assert read.properties == {
        "status-code": 404,
        "statusCode": 404,
        "status-description": "no such log",
        "statusDescription": "no such log",
    }
    assert isinstance(mapping(read.properties)["status-code"], proton.int32)
    given = read.correlation_id
    assert (bytes(given) if isinstance(given, memoryview) else given) == correlation
    assert read.body == {"a": "b"}


def extents(body: dict[Value, Value], name: str = "temps") -> Extents:
    return requested_extents(Request(names.EXTENTS, "", name, body, None, None))


def test_extents_are_asked_of_the_log_named_or_of_those_listed() -> None:
    assert extents({}) == Extents(("temps",), None, None)
    listed = {
        "logs": ["a", "b"],
        "partitions": Array(Symbol, (Symbol("0"), Symbol("7"))),
        "timestamp": Timestamp(5),
    }
    assert extents(cast("dict[Value, Value]", listed)) == Extents(("a", "b"), ("0", "7"), 4)
    assert extents({"missing-ok": True}) == Extents(("temps",), None, None, missing_ok=True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"logs": "temps"}, "must be a list"),
        ({"logs": [5]}, "must be a list"),
        ({"logs": ["no name"]}, "'logs'"),
        ({"partitions": ["0"] * (names.EXTENT_NAMES_MAX + 1)}, "1000"),
        ({"timestamp": "noon"}, "timestamp"),
        ({"timestamp": True}, "timestamp"),
    ],
)
def test_errors_in_a_request_for_extents_are_named(body: dict[Value, Value], reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        extents(body)
    assert caught.value.answer.status == 400


@pytest.mark.parametrize("section", [b"\x00\x53\x75\xa0\x00", b"\x00\x53\x76\x45"])
def test_a_request_of_many_sections_is_refused_after_a_few(section: bytes) -> None:
    """A mebibyte of empty ones takes half a second to walk."""
    with pytest.raises(WireError, match=f"more than {SECTIONS_MAX} sections"):
        parse_request(message(operation="QUERY").split(b"\x00\x53\x77")[0] + section * 200_000)


def test_a_request_of_very_many_values_is_refused_before_it_is_decoded() -> None:
    count = VALUES_MAX + 1
    body = b"\x00\x53\x77\xd0" + (4 + count).to_bytes(4) + count.to_bytes(4) + b"\x45" * count
    with pytest.raises(WireError, match=f"more than {VALUES_MAX} values"):
        parse_request(body)


def test_the_longest_lists_that_a_request_may_have_are_decoded() -> None:
    body = {
        "logs": [f"log-{number}" for number in range(names.EXTENT_NAMES_MAX)],
        "partitions": [str(number) for number in range(names.EXTENT_NAMES_MAX)],
    }
    assert parse_request(message(body, operation="EXTENTS", type="event-log")).body == body
