"""A log is compressed only where the library is installed."""

import pytest

from amqp_streams.config import LogSettings
from amqp_streams.errors import SettingRefusedError
from amqp_streams.log_settings import Compression
from amqp_streams.storage.compression.codecs import load, require_codec
from amqp_streams.wire.batched import compression


def test_each_compression_of_the_table_has_a_codec() -> None:
    assert set(Compression) == {Compression.NONE, *compression.CODECS}
    for name in Compression:
        load(LogSettings(compression=name))
        require_codec(LogSettings(compression=name))


def test_a_missing_library_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_codec", lambda _name: None)
    require_codec(LogSettings())
    with pytest.raises(SettingRefusedError, match=r"compression = 'lz4' needs .*\[compression\]"):
        require_codec(LogSettings(compression=Compression.LZ4))
