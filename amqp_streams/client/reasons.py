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
