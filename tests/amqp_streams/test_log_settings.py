"""One table has the settings of a log; all other texts and checks derive from it."""

from typing import get_type_hints

import pytest

from amqp_streams.client.management.calls import on_the_wire
from amqp_streams.config import LogSettings
from amqp_streams.log_settings import BY_FIELD, LOG_SETTINGS, LogSettingValues, log_name
from amqp_streams.streams.management import described_settings


def test_configuration_and_keyword_arguments_have_the_fields_of_the_table() -> None:
    assert list(LogSettings.model_fields) == list(BY_FIELD)
    assert list(get_type_hints(LogSettingValues)) == list(BY_FIELD)


def test_defaults_and_bounds_are_those_of_the_table() -> None:
    for setting in LOG_SETTINGS:
        assert getattr(LogSettings(), setting.field) == setting.default
        if setting.choices:
            continue
        for value in (setting.least, setting.most):
            assert getattr(LogSettings.model_validate({setting.field: value}), setting.field) == value
        for value in (setting.least - 1, setting.most + 1):
            with pytest.raises(ValueError, match=setting.field):
                LogSettings.model_validate({setting.field: value})


def test_a_choice_is_one_of_the_words_of_the_table() -> None:
    for setting in LOG_SETTINGS:
        for value in setting.choices:
            assert getattr(LogSettings.model_validate({setting.field: value}), setting.field) == value
        if setting.choices:
            assert setting.default in setting.choices
            for wrong in ("brotli", "", 1, None):
                with pytest.raises(ValueError, match=setting.field):
                    LogSettings.model_validate({setting.field: wrong})


def test_names_without_a_unit_are_understood_by_the_configuration() -> None:
    for setting in LOG_SETTINGS:
        if setting.short:
            read = LogSettings.model_validate({setting.short.replace("-", "_"): setting.least})
            assert getattr(read, setting.field) == setting.least


def test_management_describes_every_setting_by_its_name_on_the_wire() -> None:
    assert list(described_settings(LogSettings())) == [setting.name for setting in LOG_SETTINGS]


def test_the_client_sends_what_has_a_value_and_refuses_unknown_settings() -> None:
    assert on_the_wire({"partitions": 3, "retention_ms": None, "segment_ms": 5000}) == {
        "partitions": 3,
        "segment-ms": 5000,
    }
    with pytest.raises(
        TypeError, match="'retention' is not a setting of a log; the settings are partitions, retention_ms"
    ):
        on_the_wire({"retention": 5})  # type: ignore[typeddict-unknown-key]  # what an untyped program may do


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a-", "$info", "é", "a b", "x" * 256])
def test_a_name_that_could_leave_the_data_directory_or_clash_with_an_address_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid log name"):
        log_name(name)


@pytest.mark.parametrize("name", ["a", "temps", "broker.default.my-broker", "A_1.b-2", "x" * 255])
def test_names_of_logs_may_have_dots_hyphens_and_underscores(name: str) -> None:
    assert log_name(name) == name
