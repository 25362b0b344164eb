"""Settings are refused with words when they cannot be."""

import pytest
from pydantic import ValidationError

from amqp_streams.config import Listener, NodeSettings, Sync, SyncMode, log_name


@pytest.mark.parametrize("text", ["always", "never", "interval:250"])
def test_a_sync_mode_prints_as_it_is_written(text: str) -> None:
    assert str(Sync.parse(text)) == text


@pytest.mark.parametrize("text", ["", "sometimes", "interval", "interval:", "interval:0", "interval:-5", "always:5", "interval:60001"])
def test_a_wrong_sync_mode_is_refused_with_the_right_ones_named(text: str) -> None:
    with pytest.raises(ValueError, match="interval:MS"):
        Sync.parse(text)


def test_events_are_synced_before_they_are_accepted_by_default() -> None:
    assert Sync().mode is SyncMode.ALWAYS


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a-", "$info", "é", "a b", "x" * 256])
def test_a_name_that_could_leave_the_data_directory_or_clash_with_an_address_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a log"):
        log_name(name)


@pytest.mark.parametrize("name", ["a", "temps", "broker.default.my-broker", "A_1.b-2", "x" * 255])
def test_names_of_logs_may_have_dots_hyphens_and_underscores(name: str) -> None:
    assert log_name(name) == name


def test_a_tls_listener_without_a_certificate_is_refused(tmp_path: object) -> None:
    with pytest.raises(ValidationError, match="--tls-certificate"):
        NodeSettings(data_dir=str(tmp_path), listen=(Listener(host="::", port=5671, tls=True),))  # type: ignore[arg-type]  # as TOML gives it
