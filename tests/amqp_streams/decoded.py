"""Typed access to decoded values and to the errors of a peer. A value of an unexpected type fails the
test.
"""

from typing import Any

import proton

from amqp_streams.wire.codec import Described


def described(value: object) -> Described:
    assert isinstance(value, Described), value
    return value


def mapping(value: object) -> dict[Any, Any]:
    assert isinstance(value, dict), value
    return value


def items(value: object) -> list[Any]:
    assert isinstance(value, list), value
    return value


def binary(value: object) -> bytes:
    """Proton gives binary as a view or as bytes."""
    assert isinstance(value, bytes | bytearray | memoryview), value
    return bytes(value)


def condition(endpoint: proton.Endpoint) -> proton.Condition:
    """The error with which the peer closed a connection, a session or a link."""
    found = endpoint.remote_condition
    assert found is not None
    return found


def description(error: proton.Condition | None) -> str:
    assert error is not None
    assert isinstance(error.description, str), error
    return error.description


def condition_info(endpoint: proton.Endpoint) -> dict[str, Any]:
    """The further information of that error."""
    return {str(key): value for key, value in mapping(condition(endpoint).info).items()}
