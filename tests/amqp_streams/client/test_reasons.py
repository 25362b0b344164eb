"""Reasons have no numbers and no names of libraries."""

import errno
import os
import socket
import ssl

import pytest

from amqp_streams.client.errors import AuthenticationError, ConnectError
from amqp_streams.client.reasons import located, reason, unopened
from amqp_streams.errors import AmqpStreamsError


def certificate_error() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] text (_ssl.c:1006)")
    error.verify_message = "self-signed certificate"
    return error


def tls_error() -> ssl.SSLError:
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "closed by the peer"),
        (ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), "connection refused"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "connection reset by peer"),
        (ConnectionResetError(), "ConnectionResetError"),
        (socket.gaierror(-2, "Name or service not known"), "the name of the host cannot be resolved"),
        (certificate_error(), "the certificate is not trusted (self-signed certificate)"),
        (tls_error(), "TLS failed (wrong version number)"),
        (ValueError("label too long"), "label too long"),
    ],
)
def test_a_reason_is_in_words(error: Exception | None, words: str) -> None:
    assert reason(error) == words


def test_a_stream_that_ended_too_early_has_its_cause() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    assert str(unopened("amqp://a:1", refused)) == "amqp://a:1: connection refused"
    assert unopened("amqp://a:1", refused).__cause__ is refused
    assert isinstance(unopened("amqp://a:1", None).__cause__, ConnectionResetError)


def test_an_error_of_the_handshake_has_the_address_once() -> None:
    cause = ValueError("x")
    without = ConnectError("no AMQP")
    without.__cause__ = cause
    named = located("amqp://a:1", without)
    assert str(named) == "amqp://a:1: no AMQP"
    assert named.__cause__ is cause
    assert located("amqp://a:1", named) is named
    assert str(located("amqp://a:1", AmqpStreamsError("other"))) == "amqp://a:1: other"
    refused = AuthenticationError("login refused")
    assert located("amqp://a:1", refused) is refused
