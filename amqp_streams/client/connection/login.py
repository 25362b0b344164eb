"""Who we are on one connection: put together anew for each, so that a token is as fresh as it can be."""

import inspect
import ipaddress

from amqp_streams.client.connection.address import Address
from amqp_streams.client.connection.mechanisms import Credentials
from amqp_streams.client.errors import ConnectError
from amqp_streams.client.options import SaslOptions, TlsOptions
from amqp_streams.wire.security.bearer import is_token


async def credentials_for(address: Address, tls: TlsOptions | None, sasl: SaslOptions) -> Credentials:
    """The credentials for a connection to `address`; asks for a token where there is somebody to ask.

    Raises:
        ConnectError: there is no token to be had just now; or it is none.
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
    """Whether a host of a URL is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(
            ".localhost"
        )  # RFC 6761: these are nowhere else


async def _token(sasl: SaslOptions) -> str | None:
    if sasl.token is None or isinstance(sasl.token, str):
        token = sasl.token
    else:
        try:
            asked = sasl.token()
            token = await asked if inspect.isawaitable(asked) else asked
        except Exception as error:
            message = f"no token: {type(error).__name__}: {error}"
            raise ConnectError(message) from error
    if token is not None and not (isinstance(token, str) and is_token(token)):
        message = "no token: what was given for one has characters that none has, is too long, or is not text"
        raise ConnectError(message)
    return token
