"""The table of options: unknown ones are errors, each has one meaning, secrets stay secret, and the
documentation has them all.
"""

import re
from pathlib import Path

import pytest

from spark_connector.errors import OptionError
from spark_connector.options.given import known, parse, without_catalogue
from spark_connector.options.table import TABLE, Use

DOC = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
REQUIRED = {"endpoint": "amqp://localhost", "stream": "temps"}


@pytest.mark.parametrize(
    ("name", "use", "nearest"),
    [
        ("endpiont", Use.BATCH_READ, "endpoint"),
        ("startingOffset", Use.BATCH_READ, "startingOffsets"),
        ("startOffsets", Use.STREAM_READ, "startingOffsets"),
        ("maxOffsetPerTrigger", Use.STREAM_READ, "maxOffsetsPerTrigger"),
        ("failOnDataloss ", Use.STREAM_READ, "failOnDataLoss"),
        ("streams", Use.BATCH_READ, "stream"),
        ("amqpstreams.password", Use.BATCH_READ, "password"),
        ("maxEventsPerTrigger", Use.STREAM_READ, "maxOffsetsPerTrigger"),
        ("kafka.bootstrap.servers", Use.STREAM_READ, "endpoint"),
        ("includeHeaders", Use.BATCH_READ, "includeProperties"),
        ("eventhubs.startingPosition", Use.BATCH_READ, "startingOffsets"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_nearest(name: str, use: Use, nearest: str) -> None:
    with pytest.raises(OptionError, match=rf"unknown option '{name}' for .*'{nearest}'"):
        parse(REQUIRED | {name: "SECRET"}, use)
    with pytest.raises(OptionError, match=rf"unknown option '{name}'\. .*'{nearest}'"):
        known(REQUIRED | {name: "SECRET"}, Use.BATCH_READ)  # as long as the use is unknown


def test_a_setting_for_another_use_is_not_an_error_before_the_use_is_known() -> None:
    assert known(REQUIRED | {"maxOffsetsPerTrigger": "1"}, Use.BATCH_READ) == REQUIRED


def test_an_option_without_a_neighbour_is_an_error_that_lists_all() -> None:
    with pytest.raises(OptionError, match=r"Options: .*endpoint.*stream"):
        parse({"zzz": "1"}, Use.BATCH_READ)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kafka.group.id", "needs no consumer group: remove the option"),
        ("groupIdPrefix", "needs no consumer group: remove the option"),
        ("eventhubs.consumerGroup", "needs no consumer group: remove the option"),
        ("eventhubs.prefetchCount", "Remove the option: tasks prefetch automatically"),
        ("subscribePattern", "Patterns are not supported: name the logs in 'stream'"),
    ],
)
def test_an_option_that_is_not_needed_here_says_what_to_do(name: str, words: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option '{name}'.*{words}"):
        parse(REQUIRED | {name: "x"}, Use.STREAM_READ)


def test_a_table_of_the_catalogue_has_the_options_of_its_user() -> None:
    """Spark 4.3 passes them for CREATE TABLE … USING amqpstreams OPTIONS (…) COMMENT … LOCATION …
    TBLPROPERTIES (…).
    """
    added = {
        "provider": "amqpstreams",
        "owner": "root",
        "comment": "c",
        "location": "file:/t",
        "path": "file:/t",
        "x": "y",
    }
    given = added | REQUIRED | {f"option.{name}": value for name, value in REQUIRED.items()}
    assert without_catalogue(given) == REQUIRED
    assert without_catalogue(REQUIRED) == REQUIRED


def test_an_option_that_does_not_count_here_says_where_it_does() -> None:
    with pytest.raises(
        OptionError,
        match=r"'maxOffsetsPerTrigger' does not apply to spark.read. It applies to spark.readStream",
    ):
        parse(REQUIRED | {"maxoffsetspertrigger": "1"}, Use.BATCH_READ)


def test_names_count_in_any_case_and_under_the_names_that_others_have_for_them() -> None:
    assert parse({"ENDPOINT": "h", "subscribe": "a,b"}, Use.BATCH_READ).names("stream") == ("a", "b")
    assert parse({"endpoint": "h", "PATH": "a"}, Use.STREAM_READ).names("stream") == ("a",)


def test_log_is_a_name_of_the_option_stream() -> None:
    assert parse({"endpoint": "h", "log": "a,b"}, Use.BATCH_WRITE).names("stream") == ("a", "b")
    assert parse({"endpoint": "h", "LOG": "a", "stream": "a"}, Use.STREAM_READ).names("stream") == ("a",)
    with pytest.raises(
        OptionError, match=r"'stream' has two values .'stream' and 'log' are names of the same option"
    ):
        parse(REQUIRED | {"log": "other"}, Use.STREAM_READ)


def test_an_option_that_has_two_values_under_two_names_is_an_error() -> None:
    with pytest.raises(OptionError, match="'stream' has two values"):
        parse(REQUIRED | {"topic": "x"}, Use.BATCH_READ)


def test_options_that_spark_adds_are_ignored() -> None:
    parse(REQUIRED | {"checkpointLocation": "/tmp/x"}, Use.STREAM_READ)


@pytest.mark.parametrize(
    "option", [option for option in TABLE if option.secret], ids=lambda option: option.name
)
def test_secrets_are_never_shown(option: object) -> None:
    name = option.name  # type: ignore[attr-defined]
    values = parse(REQUIRED | {name: "S3CRET"}, Use.BATCH_READ)
    assert "S3CRET" not in f"{values!r} {values}"
    with pytest.raises(OptionError) as refused:
        parse(REQUIRED | {name: ""}, Use.BATCH_READ)
    assert name in str(refused.value)


def test_a_url_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(OptionError, match="use the options `user` and `password`") as refused:
        parse({"endpoint": "amqp://me:S3CRET@h", "stream": "t"}, Use.BATCH_READ)
    assert "S3CRET" not in str(refused.value)


def test_a_bad_value_is_shown_with_what_is_wanted() -> None:
    with pytest.raises(
        OptionError,
        match=r"the value 'many' of option 'minPartitions' is not valid. Expected: a whole number",
    ):
        parse(REQUIRED | {"minPartitions": "many"}, Use.BATCH_READ)


def test_defaults_are_values() -> None:
    for use in Use:
        parse({}, use)


def test_no_two_options_share_a_name() -> None:
    names = [name.lower() for option in TABLE for name in (option.name, *option.aliases)]
    assert len(names) == len(set(names))


def row(option: object) -> str:
    """An option as docs/spark.md has it."""
    default = "" if option.default is None else f"`{option.default}`"  # type: ignore[attr-defined]
    aliases = "".join(f", `{alias}`" for alias in option.aliases)  # type: ignore[attr-defined]
    uses = option.uses  # type: ignore[attr-defined]
    marks = "".join(mark for use, mark in zip(Use, ("r", "R", "w", "W"), strict=True) if use in uses)
    return f"| `{option.name}`{aliases} | {marks} | {option.kind.words} | {default} | {option.meaning} |"  # type: ignore[attr-defined]


def test_the_documentation_has_every_option_as_it_is_and_no_other() -> None:
    lines = set(DOC.splitlines())
    assert not [line for line in map(row, TABLE) if line not in lines]
    told = re.findall(r"^\| `(\w+)`(?:, `\w+`)* \| [rRwW]+ \|", DOC, re.MULTILINE)
    assert sorted(told) == sorted(option.name for option in TABLE)
