"""The credentials of one connection. They are created for each connection, so that a token is fresh."""

import inspect
import ipaddress

from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.endpoints.address import Address
from amqp_streams.client.errors import ConnectError
from amqp_streams.client.options import SaslOptions, TlsOptions
from amqp_streams.errors import AmqpStreamsError
from amqp_streams.wire.security.bearer import is_token


async def credentials_for(address: Address, tls: TlsOptions | None, sasl: SaslOptions) -> Credentials:
    """Return the credentials for a connection to `address`. Calls the token function if the options have one.

    Raises:
        ConnectError: the token function failed, or its result is not a valid token.
    """
    return Credentials(
        address.user,
        address.password,
        external=tls is not None and tls.certificate_file is not None and address.secure,
        token=await _token(sasl),
        private=address.secure or sasl.plain_without_tls or is_loopback(address.host),
        only=sasl.mechanisms,
    )


def is_loopback(host: str) -> bool:
    """Whether the host of a URL is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # RFC 6761: these names always mean this machine.
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


async def _token(sasl: SaslOptions) -> str | None:
    if sasl.token is None or isinstance(sasl.token, str):
        token = sasl.token
    else:
        try:
            asked = sasl.token()
            token = await asked if inspect.isawaitable(asked) else asked
        except Exception as error:
            # Errors of this package are sentences.
            own = isinstance(error, AmqpStreamsError)
            message = f"the token function failed: {'' if own else f'{type(error).__name__}: '}{error}"
            raise ConnectError(message) from error
    if token is not None and not (isinstance(token, str) and is_token(token)):
        message = (
            "the token is not valid: it is not text, is too long, or contains characters that a token must"
            " not have"
        )
        raise ConnectError(message)
    return token
