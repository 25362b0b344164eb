"""The values of the settings that every service has."""

import logging

from service_parts.settings.choices import LogFormat, LogLevel


def test_every_level_is_one_of_the_standard_library() -> None:
    assert {level.upper() for level in LogLevel} <= logging.getLevelNamesMapping().keys()


def test_formats_are_for_people_or_for_programs() -> None:
    assert list(LogFormat) == ["text", "json"]
