"""[io] Connections to nodes, one of each kind for a process, and what is tried again when they fail.

Spark's workers are processes that serve task after task and end without a word, so connections are kept in this module, by what they
were made with, and never closed in order. Nothing here is pickled.
"""

import logging
import os
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
from spark_connector.errors import ConnectorError, NodeError, StreamNotFoundError
from spark_connector.options.settings import ConnectionOptions

_T = TypeVar("_T")
_logger: Final = logging.getLogger("spark_connector")

GONE: Final = frozenset({"amqp:not-found", "amqp:resource-deleted"})
"""Conditions of a log that is not there, or not the one that was meant."""
FAULT: Final = "amqp:internal-error"
FAULTS_MAX: Final = 2
"""How often a fault of the node is tried again: a disk recovers, damaged records do not."""
PASSING: Final = frozenset(
    {
        FAULT,
        "amqp:connection:forced",
        "amqp:link:detach-forced",
        "amqp:resource-limit-exceeded",
        "amqp:resource-locked",
    }
)
"""Conditions that may be over when it is tried again."""

UNREADABLE: Final = frozenset({"amqp:invalid-field"})
"""Conditions of a filter that the node cannot read, or does not know."""
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
"""The same of answers to questions."""
FAILURES: Final = (ConnectError, SessionError, LinkError, ManagementError, ConnectionLostError, TimedOutError, ClosedError, OSError)
"""What may befall the use of a connection."""

_clients: Final[dict[tuple[int, ConnectionOptions], Client]] = {}
_preferred: Final[dict[ConnectionOptions, int]] = {}
"""By options, the index of the endpoint that was connected last: the next connection tries it first."""


def client(options: ConnectionOptions) -> Client:
    """The connection of this process, made if there is none. Raises what connecting raises."""
    key = (os.getpid(), options)  # a fork has its parent's objects, but neither its threads nor its sockets
    found = _clients.get(key)
    if found is None:
        found = _clients[key] = _connected(options)
    return found


def _connected(options: ConnectionOptions) -> Client:
    """A connection to the first endpoint that answers. Each has `connectTimeout`, so a silent one does not block the others."""
    first = _preferred.get(options, 0)
    failures: list[Exception] = []
    for step in range(len(options.endpoints)):
        index = (first + step) % len(options.endpoints)
        found = _client(options, options.endpoints[index])
        try:
            found.connect()
        except BaseException as error:
            found.close()
            if isinstance(error, AuthenticationError) or not isinstance(error, FAILURES):
                raise
            failures.append(error)
        else:
            _preferred[options] = index
            return found
    if len(failures) == 1:
        raise failures[0]
    raise ConnectError("; ".join(map(str, failures))) from (None if any(map(passes, failures)) else failures[0])


def drop(options: ConnectionOptions) -> None:
    """Forget the connection of this process: the next use makes a new one."""
    found = _clients.pop((os.getpid(), options), None)
    if found is not None:
        try:
            found.close()
        except FAILURES as error:
            _logger.debug("connection_close_failed endpoint=%s error=%s", options, error)


def retried(options: ConnectionOptions, what: str, work: Callable[[Client], _T], *, where: str = "") -> _T:
    """What `work` gives; tried again while the failure may pass. `what` is being done, `where`: for errors.

    Raises:
        StreamNotFoundError, NodeError: it cannot be done, or not in the tries that there are.
    """
    attempt = 0
    while True:
        try:
            return work(client(options))
        except ConnectorError:
            raise
        except FAILURES as error:
            pause(options, error, what, attempt, where=where)
            attempt += 1


def pause(options: ConnectionOptions, error: Exception, what: str, attempt: int, *, where: str = "") -> None:
    """Wait before try number `attempt` (from 0) is made again, or say that there is none.

    Raises:
        StreamNotFoundError, NodeError: trying again does not help, or was tried often enough.
    """
    place = f"{where}, node {options}" if where else f"node {options}"
    if not passes(error):
        raise refusal(error, what, place) from None  # its words are in ours: Spark prints every traceback of a chain
    tries = min(options.retries, FAULTS_MAX) if getattr(error, "condition", None) == FAULT else options.retries
    if attempt >= tries:
        raise NodeError(
            f"{what} failed {attempt + 1} times in a row, last: {error}",
            place,
            "See whether the node runs and can be reached from this machine; the options retries, retryInterval and operationTimeout say "
            "how long it is tried",
        ) from None
    wait_ms = options.wait_ms(attempt)
    _logger.warning("node_retry doing=%r attempt=%d wait_ms=%d error=%r %s", what, attempt + 1, wait_ms, str(error), place)
    drop(options)
    time.sleep(wait_ms / 1000)


def passes(error: Exception) -> bool:
    """The failure may be over when it is tried again."""
    if isinstance(error, AuthenticationError) or _distrust(error) is not None:
        return False
    if isinstance(error, LinkError | SessionError):
        return error.condition in PASSING
    if isinstance(error, ManagementError):
        return error.status in PASSING_STATUS
    return True


def _distrust(error: BaseException | None) -> ssl.SSLError | None:
    """What is wrong with the certificates, if that is why there is no connection. Ends of connections are SSLErrors, too: those pass."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
            return error
        error = error.__cause__
    return None


def refusal(error: Exception, what: str, place: str) -> ConnectorError:
    """In our words, what the node will not do however often it is asked."""
    gone = isinstance(error, LinkError) and error.condition in GONE
    if gone or (isinstance(error, ManagementError) and error.status == HTTPStatus.NOT_FOUND):
        return StreamNotFoundError(f"{what} failed: {error}", place, "See its name with `amqp-streams log list`")
    if getattr(error, "condition", None) in UNREADABLE:
        return NodeError(
            f"the filter cannot be used: {error}", place, "It is SQL of AMQP Filter Expressions 1.0, such as temp > 20 AND site = 'roof'"
        )
    if _distrust(error) is not None:
        return NodeError(
            f"no TLS with this node: {error}", place, "See the endpoint's scheme and port, and the options tlsCaFile, tlsServerName …"
        )
    if isinstance(error, AuthenticationError):
        return NodeError(f"logging in failed: {error}", place, "See the options user, password, token and tls…")
    return NodeError(f"{what} failed: {error}", place, "The node refuses it: see its log, and its access rules")


def _client(options: ConnectionOptions, endpoint: str) -> Client:
    tls = TlsOptions(
        ca_file=_path(options.tls_ca_file, "tlsCaFile"),
        certificate_file=_path(options.tls_certificate_file, "tlsCertificateFile"),
        key_file=_path(options.tls_key_file, "tlsKeyFile"),
        verify=options.tls_verify,
        server_hostname=options.tls_server_name,
    )
    token = options.token if options.token_file is None else _secret(options.token_file, "tokenFile")
    password = options.password if options.password_file is None else _secret(options.password_file, "passwordFile")
    return connect(
        endpoint,
        user=options.user,
        password=password,
        tls=tls,
        sasl=SaslOptions(token=token, mechanisms=options.sasl_mechanisms or None, plain_without_tls=options.plain_without_tls),
        retry=NO_RETRY,
        idle_timeout_ms=options.idle_timeout_ms,
        timeout=options.connect_timeout_ms / 1000,
    )


def _path(text: str | None, option: str) -> Path | None:
    if text is None:
        return None
    _content(text, option)
    return Path(text)


def _secret(path: str, option: str) -> str:
    try:
        return _content(path, option).decode().strip()
    except UnicodeDecodeError:
        raise NodeError(f"the file of option {option!r} is not UTF-8") from None


def _content(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise NodeError(
            f"the file of option {option!r} cannot be read: {error}", "", "It has to be on every machine, readable for Spark's user"
        ) from None
