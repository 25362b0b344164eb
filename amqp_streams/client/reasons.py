"""Why a connection failed or ended, in words: the operating system's reason without its number. Pure."""

import socket
import ssl
from typing import Final

from amqp_streams.client.errors import ConnectError
from amqp_streams.errors import AmqpStreamsError

CLOSED: Final = "closed by the peer"


def reason(error: BaseException | None) -> str:
    """Return why a stream failed or ended; None: the peer closed it."""
    match error:
        case None:
            return CLOSED
        case ssl.SSLCertVerificationError():
            return f"the certificate is not trusted ({error.verify_message})"
        case ssl.SSLError():
            return f"TLS failed ({(error.reason or str(error)).lower().replace('_', ' ')})"
        case socket.gaierror():
            return "the name of the host cannot be resolved"
        case OSError():
            if error.strerror:
                return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__


def unopened(address: object, error: Exception | None) -> ConnectError:
    """Return the error for a stream that ended before the connection was open; its cause is the error."""
    failure = ConnectError(f"{address}: {reason(error)}")
    failure.__cause__ = error or ConnectionResetError(CLOSED)
    return failure


def located(address: object, error: AmqpStreamsError) -> ConnectError:
    """Return an error of the handshake as a `ConnectError` that has the address.

    Subclasses, such as a refused login, stay as they are.
    """
    if isinstance(error, ConnectError) and (
        type(error) is not ConnectError or str(error).startswith(f"{address}:")
    ):
        return error
    named = ConnectError(f"{address}: {error}")
    named.__cause__ = error.__cause__
    return named


def unknown_protocol(answer: bytes) -> str:
    """Return what a peer is whose first bytes are not those of AMQP."""
    if answer.startswith(b"HTTP/"):
        return "the server there speaks HTTP, not AMQP"
    # An alert: the server could not read our header as a TLS handshake.
    if answer.startswith(b"\x15\x03"):
        return "the server there speaks TLS: the scheme is amqps:// or wss://"
    return f"the server there does not speak AMQP 1.0: it answered {answer[:8]!r}"
