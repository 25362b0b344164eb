"""[io] Connections to nodes, one for each process and set of options, and retries after failures.

Spark's worker processes run many tasks and then end without notice. So a connection is not closed at the end
of a task, but kept for the next one. Nothing in this module is pickled.
"""

import logging
import os
import random
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar

from amqp_streams.client import (
    NO_RETRY,
    AuthenticationError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    LinkError,
    ManagementError,
    SaslOptions,
    SessionError,
    TimedOutError,
    TlsOptions,
)
from amqp_streams.client.blocking import Client, connect
from amqp_streams.client.endpoints.rotation import Health
from spark_connector.errors import ConnectorError, NodeError, StreamNotFoundError
from spark_connector.options.settings import ConnectionOptions

_T = TypeVar("_T")
_logger: Final = logging.getLogger("spark_connector")

GONE: Final = frozenset({"amqp:not-found", "amqp:resource-deleted"})
"""Conditions of a log that does not exist, or was recreated."""
FAULT: Final = "amqp:internal-error"
FAULTS_MAX: Final = 2
"""How often an internal error of the node is retried. A full disk may recover; damaged records do not."""
PASSING: Final = frozenset(
    {
        FAULT,
        "amqp:connection:forced",
        "amqp:link:detach-forced",
        "amqp:resource-limit-exceeded",
        "amqp:resource-locked",
    }
)
"""Conditions that may be temporary, so that a retry can succeed."""

UNREADABLE: Final = frozenset({"amqp:invalid-field"})
"""Conditions of a filter that is not valid, or that the node does not support."""
PASSING_STATUS: Final = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses of management answers that may be temporary."""
FAILURES: Final = (
    ConnectError,
    SessionError,
    LinkError,
    ManagementError,
    ConnectionLostError,
    TimedOutError,
    ClosedError,
    OSError,
)
"""Errors that the use of a connection can raise."""

_clients: Final[dict[tuple[int, ConnectionOptions], Client]] = {}
_health: Final[dict[ConnectionOptions, Health]] = {}
"""What is known about the endpoints of each set of options. The next connection tries bad ones last."""


def client(options: ConnectionOptions) -> Client:
    """Return the client of this process for these options. The first call connects.

    Raises:
        FAILURES: the connection failed.
    """
    # A forked process inherits this dictionary, but not the threads of its clients.
    key = (os.getpid(), options)
    found = _clients.get(key)
    if found is None:
        found = _clients[key] = _connected(options)
    return found


def _connected(options: ConnectionOptions) -> Client:
    """Connect to the first endpoint that answers within `connectTimeout`."""
    found = _client(options)
    try:
        found.connect()
    # Also after Ctrl-C: the client has a thread.
    except BaseException:
        found.close()
        raise
    return found


def drop(options: ConnectionOptions) -> None:
    """Close the connection of this process. The next use connects again."""
    found = _clients.pop((os.getpid(), options), None)
    if found is not None:
        try:
            found.close()
        except FAILURES as error:
            _logger.debug("connection_close_failed endpoint=%s error=%s", options, error)


def retried(options: ConnectionOptions, what: str, work: Callable[[Client], _T], *, where: str = "") -> _T:
    """Return the result of `work`. Temporary failures are retried.

    `what` and `where`: for error messages.

    Raises:
        StreamNotFoundError, NodeError: the failure is permanent, or all retries failed.
    """
    attempt = 0
    while True:
        try:
            return work(client(options))
        # These errors already have a remedy: a retry does not help.
        except ConnectorError:
            raise
        except FAILURES as error:
            pause(options, error, what, attempt, where=where)
            attempt += 1


def pause(options: ConnectionOptions, error: Exception, what: str, attempt: int, *, where: str = "") -> None:
    """Wait before the retry after attempt number `attempt` (from 0).

    Raises:
        StreamNotFoundError, NodeError: the failure is permanent, or no retries are left.
    """
    location = f"{where}, node {options}" if where else f"node {options}"
    if not passes(error):
        # `from None`: the message contains the text of `error`, and Spark prints the traceback of every
        # chained error.
        raise refusal(error, what, location) from None
    tries = (
        min(options.retries, FAULTS_MAX) if getattr(error, "condition", None) == FAULT else options.retries
    )
    if attempt >= tries:
        raise NodeError(
            f"{what} failed {attempt + 1} times in a row, last: {error}",
            location,
            "Check that the node runs and that this machine can reach it; the options retries, retryInterval"
            " and operationTimeout set how long it is retried",
        ) from None
    wait_ms = options.wait_ms(attempt)
    _logger.warning(
        "node_retry operation=%r attempt=%d wait_ms=%d error=%r %s",
        what,
        attempt + 1,
        wait_ms,
        str(error),
        location,
    )
    # The failure may be that of the connection: the retry opens a new one.
    drop(options)
    time.sleep(wait_ms / 1000)


def passes(error: Exception) -> bool:
    """Return whether the failure may be temporary, so that a retry can succeed."""
    if isinstance(error, AuthenticationError) or _distrust(error) is not None:
        return False
    if isinstance(error, LinkError | SessionError):
        return error.condition in PASSING
    if isinstance(error, ManagementError):
        return error.status in PASSING_STATUS
    return True


def _distrust(error: BaseException | None) -> ssl.SSLError | None:
    """Return the certificate error that caused `error`, or None.

    The end of a connection is an SSLError, too, but a temporary one: it is not returned. With several
    endpoints, all of them must have failed with a certificate error.
    """
    if isinstance(error, ConnectError) and error.failures:
        found = [_distrust(one) for one in error.failures]
        return found[0] if all(found) else None
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(
            error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError
        ):
            return error
        # The client wraps the error of the TLS library.
        error = error.__cause__
    return None


def refusal(error: Exception, what: str, location: str) -> ConnectorError:
    """Return the error for a permanent failure, with a remedy."""
    gone = isinstance(error, LinkError) and error.condition in GONE
    if gone or (isinstance(error, ManagementError) and error.status == HTTPStatus.NOT_FOUND):
        return StreamNotFoundError(
            f"{what} failed: {error}", location, "List the logs with `amqp-streams log list`"
        )
    if getattr(error, "condition", None) in UNREADABLE:
        return NodeError(
            f"the filter is not valid: {error}",
            location,
            "Write SQL of AMQP Filter Expressions 1.0, for example temp > 20 AND site = 'roof'",
        )
    if _distrust(error) is not None:
        return NodeError(
            f"TLS with this node failed: {error}",
            location,
            "Check the scheme and the port of the endpoint, and the options tlsCaFile and tlsServerName",
        )
    if isinstance(error, AuthenticationError):
        return NodeError(
            f"login failed: {error}", location, "Check the options user, password, token and tls…"
        )
    return NodeError(
        f"{what} failed: {error}", location, "The node refused it: check its log and its access rules"
    )


def _client(options: ConnectionOptions) -> Client:
    tls = TlsOptions(
        ca_file=_path(options.tls_ca_file, "tlsCaFile"),
        certificate_file=_path(options.tls_certificate_file, "tlsCertificateFile"),
        key_file=_path(options.tls_key_file, "tlsKeyFile"),
        verify=options.tls_verify,
        server_hostname=options.tls_server_name,
    )
    # Read at each connection: the file may have a new token.
    token = options.token if options.token_file is None else _secret(options.token_file, "tokenFile")
    password = (
        options.password if options.password_file is None else _secret(options.password_file, "passwordFile")
    )
    return connect(
        options.endpoints,
        user=options.user,
        password=password,
        tls=tls,
        sasl=SaslOptions(
            token=token,
            mechanisms=options.sasl_mechanisms or None,
            plain_without_tls=options.plain_without_tls,
        ),
        # `retried` and `pause` retry, with the options of the user.
        retry=NO_RETRY,
        idle_timeout_ms=options.idle_timeout_ms,
        timeout=options.connect_timeout_ms / 1000,
        health=_health.setdefault(options, Health(random.random)),
    )


def _path(text: str | None, option: str) -> Path | None:
    if text is None:
        return None
    # Read here for an error that names the option: the TLS library would report only "no such file".
    _content(text, option)
    return Path(text)


def _secret(path: str, option: str) -> str:
    try:
        return _content(path, option).decode().strip()
    except UnicodeDecodeError:
        raise NodeError(f"the file of option {option!r} is not valid UTF-8") from None


def _content(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise NodeError(
            f"the file of option {option!r} cannot be read: {error}",
            "",
            "It must be readable for Spark's user on every machine",
        ) from None
