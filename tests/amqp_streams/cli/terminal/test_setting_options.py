"""The options of `log create` and `log update` follow the table of log settings."""

import click
import pytest
from click.testing import CliRunner

from amqp_streams.cli.terminal.parameters import Bound
from amqp_streams.cli.terminal.setting_options import setting_options, written
from amqp_streams.log_settings import BY_FIELD, LOG_SETTINGS


def command(*, create: bool) -> tuple[click.Command, dict[str, Bound | None]]:
    got: dict[str, Bound | None] = {}

    @click.command()
    @setting_options(create=create)
    def run(**given: Bound | None) -> None:
        got.update(given)

    return run, got


def call(*arguments: str, create: bool = True) -> dict[str, Bound | None]:
    run, got = command(create=create)
    result = CliRunner().invoke(run, arguments)
    assert result.exit_code == 0, result.output
    return got


def refused(*arguments: str, create: bool = True) -> str:
    run, _ = command(create=create)
    result = CliRunner().invoke(run, arguments)
    assert result.exit_code == 2
    return result.output


def test_creating_offers_every_setting_with_its_default() -> None:
    run, _ = command(create=True)
    text = " ".join(CliRunner().invoke(run, ["--help"]).output.split())
    for setting in LOG_SETTINGS:
        assert setting.flag in text
    assert "[default: 128MiB]" in text
    assert "[default: no" in text


def test_updating_offers_no_setting_that_is_fixed() -> None:
    assert call(create=False).keys() == {setting.field for setting in LOG_SETTINGS if not setting.fixed}


def test_values_are_parsed_with_their_units_and_absent_ones_are_none() -> None:
    got = call("--partitions", "4", "--retention", "7d", "--segment-bytes", "1MiB")
    assert got == {
        "partitions": Bound(4),
        "retention_ms": Bound(604_800_000),
        "retention_bytes": None,
        "segment_bytes": Bound(1 << 20),
        "segment_ms": None,
        "compression": None,
    }


def test_a_choice_is_one_of_its_words() -> None:
    assert call("--compression", "lz4")["compression"] == Bound("lz4")
    assert call("--compression", "none", create=False)["compression"] == Bound("none")
    assert "'brotli' is not one of none, zstd, lz4" in " ".join(refused("--compression", "brotli").split())


def test_none_takes_a_bound_away_only_where_there_may_be_no_bound() -> None:
    assert call("--retention", "none", create=False)["retention_ms"] == Bound(None)
    assert "none" in refused("--segment-bytes", "none", create=False)
    assert "none" in refused("--retention", "none")


@pytest.mark.parametrize(
    ("flag", "text", "complaint"),
    [
        ("--partitions", "many", "not a whole number"),
        ("--partitions", "1025", "not in the range 1 to 1024"),
        ("--retention", "7", "duration"),
        ("--retention-bytes", "1000", "not in the range 1MiB to"),
    ],
)
def test_a_value_outside_its_bounds_is_refused_with_the_bounds(flag: str, text: str, complaint: str) -> None:
    assert complaint in " ".join(refused(flag, text).split())


def test_values_are_written_as_they_are_read() -> None:
    numbers = [setting for setting in LOG_SETTINGS if not setting.choices]
    assert [written(setting, setting.least) for setting in numbers] == ["1", "1s", "1MiB", "64KiB", "1s"]
    assert written(BY_FIELD["compression"], "zstd") == "zstd"
    assert written(BY_FIELD["segment_ms"], 86_400_000) == "1d"
