"""A caller of these parts raises its own error."""

import pytest

from service_parts.errors import SettingError, raised_as


class OwnError(Exception):
    """The error of a caller."""


def test_a_caller_raises_its_own_error_with_the_message_and_the_cause() -> None:
    cause = OSError("no such file")
    with (
        pytest.raises(OwnError, match=r"^tls\.key: cannot read k$") as raised,
        raised_as(OwnError, "tls.key"),
    ):
        raise SettingError("cannot read k") from cause
    assert raised.value.__cause__ is cause


def test_without_a_name_the_message_stays_and_without_a_cause_the_error_is_the_cause() -> None:
    with pytest.raises(OwnError, match=r"^it cannot be used$") as raised, raised_as(OwnError):
        raise SettingError("it cannot be used")
    assert isinstance(raised.value.__cause__, SettingError)


def test_other_errors_and_results_pass() -> None:
    with pytest.raises(KeyError), raised_as(OwnError):
        raise KeyError("x")
    with raised_as(OwnError):
        found = 1
    assert found == 1
