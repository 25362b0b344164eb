"""Converts an error to a sentence for people: what is wrong, where, and what to do. Pure.

Law: the same error has the same text, whichever layer of the client reported it.
"""

import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from http import HTTPStatus
from typing import Final

from amqp_streams import names
from amqp_streams.client import AuthenticationError, ConnectError
from amqp_streams.client.errors import EndpointError, ManagementError
from amqp_streams.client.reasons import reason as why
from amqp_streams.errors import AmqpStreamsError
from service_parts.command_line.wording import plain_sentence


class NotFoundError(AmqpStreamsError):
    """The named log or group does not exist."""


def sentence(error: BaseException) -> str:
    """Return the error as one sentence, without protocol or operating system codes."""
    if isinstance(error, EndpointError):
        return error.description or error.condition
    if isinstance(error, ManagementError):
        return error.description or f"the node refused the request with status {error.status}"
    # Before OSError: the client's error has the address.
    if isinstance(error, ConnectError):
        return _unreachable(error)
    return (
        str(error) or str(type(error).__doc__)
        if isinstance(error, AmqpStreamsError)
        else plain_sentence(error)
    )


def condition(error: BaseException) -> str | int | None:
    """Return the code that programs can compare: an AMQP condition, or the status of an answer.

    None: it has none.
    """
    if isinstance(error, EndpointError):
        return error.condition
    if isinstance(error, NotFoundError):
        return names.NOT_FOUND
    return error.status if isinstance(error, ManagementError) else None


def is_missing(error: BaseException) -> bool:
    """Whether the error means that a log or group does not exist, without naming it."""
    return not isinstance(error, NotFoundError) and condition(error) in {
        names.NOT_FOUND,
        HTTPStatus.NOT_FOUND.value,
    }


def missing_log(log: str, logs: Iterable[str]) -> NotFoundError:
    """Return the error for a log that is not among `logs`.

    It suggests the nearest name, or how to list and create logs.
    """
    # One name only: a list of guesses would not help.
    near = get_close_matches(log, list(logs), n=1)
    advice = (
        f"did you mean {near[0]!r}?"
        if near
        else f"see 'amqp-streams log list', or create it: amqp-streams log create {log}"
    )
    return NotFoundError(f"no log named {log!r}; {advice}")


def missing_group(group: str, log: str, groups: Iterable[str]) -> NotFoundError:
    """Return the error for a consumer group that is not among the groups of a log.

    It suggests the nearest name.
    """
    near = get_close_matches(group, list(groups), n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"see 'amqp-streams group list {log}'"
    return NotFoundError(f"log {log!r} has no consumer group {group!r}; {advice}")


def missing_connection(name: str, known: Iterable[str]) -> NotFoundError:
    """Return the error for a connection that the node does not have. It suggests the nearest name."""
    near = get_close_matches(name, list(known), n=1)
    advice = f"did you mean {near[0]!r}?" if near else "see 'amqp-streams connection list'"
    return NotFoundError(f"no connection named {name!r}: it may have ended; {advice}")


def _unreachable(error: ConnectError) -> str:
    """Return why the connection failed.

    The client's message is the address, then the operating system's text.
    """
    words = str(error) or str(type(error).__doc__)
    # The client's error has the operating system's error somewhere in its chain.
    cause = next(
        (
            each
            for each in _causes(error)
            if isinstance(each, OSError) and not isinstance(each, AmqpStreamsError)
        ),
        None,
    )
    if isinstance(error, AuthenticationError):
        # The names of the options: the client's text has those of its functions.
        return words.replace("plain_without_tls", "--plain-without-tls") + (
            ". Log in with --user and AMQP_STREAMS_PASSWORD, with --token-file, or with a context"
            if _NO_USER in words
            else ""
        )
    if cause is None:
        return (
            f"{words}. Is that an AMQP port? The admin listener speaks HTTP"
            if "no answer" in words
            else words
        )
    reason = _tls_reason(cause) if isinstance(cause, ssl.SSLError) else _REASONS.get(type(cause))
    return words if reason is None else f"{words.removesuffix(why(cause)).rstrip(': ')}: {reason}"


_NO_USER: Final = "no user name"
_REASONS: Final[Mapping[type[OSError], str]] = {
    ConnectionRefusedError: (
        "nothing listens there. Is a node running ('amqp-streams serve'), and is --url right?"
    ),
    ConnectionResetError: (
        "the connection was closed at once. Is that an AMQP port? With TLS it is amqps:// or wss://"
    ),
    TimeoutError: "no answer. Is the host up, and does a firewall let the port through?",
    socket.gaierror: "the name of the host cannot be resolved. Is --url right?",
}
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of the node is not trusted ({error.verify_message}). Give its authority with"
            " --ca"
        )
    if error.reason in _NOT_TLS:
        return (
            "the server there does not speak TLS. Use the port of the TLS listener, or amqp:// or ws:// in"
            " --url"
        )
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return f"TLS failed ({reason}). See --ca, --cert and --key-file"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__
    while cause is not None:
        yield cause
        cause = cause.__cause__
