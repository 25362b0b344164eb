"""Settings are refused with words when they cannot be."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from amqp_streams.config import Limits, Listener, LogSettings, NodeSettings, Sync, SyncMode


@pytest.mark.parametrize("text", ["always", "never", "interval:250"])
def test_a_sync_mode_prints_as_it_is_written(text: str) -> None:
    assert str(Sync.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "sometimes", "interval", "interval:", "interval:0", "interval:-5", "always:5", "interval:60001"],
)
def test_a_wrong_sync_mode_is_refused_with_the_right_ones_named(text: str) -> None:
    with pytest.raises(ValueError, match="interval:MS"):
        Sync.parse(text)


def test_events_are_synced_before_they_are_accepted_by_default() -> None:
    assert Sync().mode is SyncMode.ALWAYS


def test_a_tls_listener_without_a_certificate_is_refused(tmp_path: object) -> None:
    with pytest.raises(ValidationError, match="--tls-certificate"):
        # As TOML gives it.
        NodeSettings(data_dir=str(tmp_path), listen=(Listener(host="::", port=5671, tls=True),))  # type: ignore[arg-type]


def test_settings_of_a_log_are_read_from_text_as_people_write_it() -> None:
    written = {
        "partitions": 4,
        "retention": "7d",
        "retention_bytes": "10GiB",
        "segment_bytes": "1GiB",
        "segment_age": "1h",
    }
    read = LogSettings.model_validate(written)
    assert read == LogSettings(
        partitions=4,
        retention_ms=604_800_000,
        retention_bytes=10 << 30,
        segment_bytes=1 << 30,
        segment_ms=3_600_000,
    )


def test_durations_and_sizes_may_be_plain_numbers_under_the_name_with_the_unit() -> None:
    assert Limits.model_validate({"idle_timeout_ms": 5000, "frame_bytes": 4096}) == Limits.model_validate(
        {"idle_timeout": "5s", "frame_bytes": "4KiB"}
    )


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match="retentoin"):
        LogSettings.model_validate({"retentoin": "7d"})


def test_listeners_and_the_sync_mode_are_read_from_text(tmp_path: Path) -> None:
    settings = NodeSettings.model_validate(
        {"data_dir": tmp_path, "listen": ["[::1]:0"], "admin_listen": "localhost:8672", "sync": "interval:50"}
    )
    assert settings.listen == (Listener(host="::1", port=0),)
    assert settings.admin_listen == Listener(host="localhost", port=8672)
    assert settings.sync == Sync(mode=SyncMode.INTERVAL, interval_ms=50)
