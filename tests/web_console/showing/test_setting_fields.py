"""The settings of a log as fields of a form."""

import pytest

from amqp_streams.log_settings import LOG_SETTINGS
from web_console.showing.setting_fields import fields_of, texts_of, to_create, values_of


def test_a_form_has_every_setting_and_that_of_a_log_only_those_that_can_be_changed() -> None:
    assert [field.name for field in fields_of({}, create=True)] == [each.field for each in LOG_SETTINGS]
    assert "partitions" not in [field.name for field in fields_of({}, create=False)]
    assert len({field.label for field in fields_of({}, create=True)}) == len(LOG_SETTINGS)


def test_the_values_of_a_log_are_typed_again_as_they_are() -> None:
    values: dict[str, object] = {
        "partitions": 4,
        "retention-ms": 604_800_000,
        "retention-bytes": 1_500_000,
        "segment-bytes": 128 << 20,
        "segment-ms": 90_000,
        "compression": "zstd",
    }
    texts = texts_of(values)
    assert texts["retention_ms"] == "7d"
    assert values_of(texts, create=True) == {name.replace("-", "_"): value for name, value in values.items()}
    assert to_create({"partitions": 2, "retention_ms": None}) == {"partitions": 2, "retention_ms": None}


def test_an_empty_field_is_the_default() -> None:
    assert values_of({}, create=True)["partitions"] is None
    changed = values_of({"retention_ms": " "}, create=False)
    assert changed["retention_ms"] is None
    assert changed["segment_bytes"] == 128 << 20


def test_a_choice_shows_its_words_and_which_one_is_in_use() -> None:
    (field,) = [field for field in fields_of({}, create=True) if field.choices]
    assert (field.name, field.label, field.value) == ("compression", "Compression", "none")
    assert field.choices == ("none", "zstd", "lz4")
    (shown,) = [field for field in fields_of({"compression": "lz4"}, create=False) if field.choices]
    assert shown.value == "lz4"
    assert values_of({"compression": ""}, create=False)["compression"] == "none"


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("partitions", "0", "partitions: must be from 1 to 1024"),
        ("retention_ms", "7", "retention-ms"),
        ("partitions", "x", "partitions"),
        ("retention_bytes", "1KiB", "from 1MiB"),
        ("compression", "brotli", "compression: must be one of none, zstd, lz4 .got brotli"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_with_its_setting(field: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        values_of({field: text}, create=True)
