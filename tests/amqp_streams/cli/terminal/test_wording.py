"""Each error has one wording, with the remedy."""

import socket
import ssl

import pytest

from amqp_streams.cli.terminal.wording import condition, is_missing, missing_group, missing_log, sentence
from amqp_streams.client import (
    AuthenticationError,
    ConnectError,
    LinkRefusedError,
    ManagementError,
    TimedOutError,
)
from amqp_streams.client.reasons import unopened
from amqp_streams.errors import AmqpStreamsError

NODE = "amqp://h:5672"


def unreachable(cause: Exception) -> ConnectError:
    """Return the error as the client reports it."""
    return unopened(NODE, cause)


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] words of OpenSSL (_ssl.c:1006)")
    error.reason = reason
    return error


def distrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (
            ConnectionRefusedError(111, "Connection refused"),
            "nothing listens there. Is a node running ('amqp-streams serve')",
        ),
        (
            ConnectionResetError(104, "Connection reset by peer"),
            "the connection was closed at once. Is that an AMQP port?",
        ),
        (TimeoutError(110, "Connection timed out"), "no answer. Is the host up"),
        (socket.gaierror(-2, "Name or service not known"), "the name of the host cannot be resolved"),
        (
            distrusted(),
            (
                "the certificate of the node is not trusted (self-signed certificate). Give its authority"
                " with --ca"
            ),
        ),
        (tls("WRONG_VERSION_NUMBER"), "the server there does not speak TLS"),
        (
            tls("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
            "TLS failed (tlsv13 alert certificate required). See --ca, --cert and --key-file",
        ),
        (OSError(101, "Network is unreachable"), "network is unreachable"),
    ],
)
def test_a_node_that_cannot_be_reached_is_named_with_the_reason_and_the_remedy(
    cause: Exception, words: str
) -> None:
    told = sentence(unreachable(cause))
    assert told.startswith(f"{NODE}: {words}")
    assert "Errno" not in told
    assert "_ssl.c" not in told


def test_a_missing_login_names_the_options() -> None:
    missing = sentence(AuthenticationError("the peer offers PLAIN, and no user name was given"))
    assert missing.endswith(
        "Log in with --user and AMQP_STREAMS_PASSWORD, with --token-file, or with a context"
    )
    assert "allow it with --plain-without-tls" in sentence(
        AuthenticationError("PLAIN would send it: use amqps://, or allow it with plain_without_tls")
    )
    assert sentence(AuthenticationError("wrong user name or password")) == "wrong user name or password"


def test_the_same_fault_has_one_wording() -> None:
    assert sentence(LinkRefusedError("amqp:not-found", "no log named 'x'")) == "no log named 'x'"
    assert sentence(ManagementError(404, "no log named 'x'")) == "no log named 'x'"
    assert sentence(LinkRefusedError("amqp:not-found")) == "amqp:not-found"
    assert sentence(ManagementError(403, "")) == "the node refused the request with status 403"


def test_programs_get_the_condition() -> None:
    assert condition(LinkRefusedError("amqp:not-found", "x")) == "amqp:not-found"
    assert condition(ManagementError(404, "x")) == 404
    assert condition(missing_log("tmps", ["temps"])) == "amqp:not-found"
    assert condition(TimedOutError("x")) is None
    errors = (LinkRefusedError("amqp:not-found"), ManagementError(404, ""), ManagementError(409, ""))
    assert [is_missing(error) for error in errors] == [True, True, False]


def test_other_errors_keep_their_text() -> None:
    assert sentence(OSError(2, "No such file or directory", "x.csv")) == "x.csv: No such file or directory"
    assert sentence(OSError("odd")) == "odd"
    assert sentence(AmqpStreamsError("gone")) == "gone"
    assert sentence(ConnectError("no token: none")) == "no token: none"
    assert sentence(ConnectError(f"{NODE}: no answer within 10 s")).endswith("The admin listener speaks HTTP")


def test_a_name_is_not_made_up_where_none_is_near() -> None:
    assert str(missing_log("tmps", ["temps", "other"])) == "no log named 'tmps'; did you mean 'temps'?"
    assert "log create invoices" in str(missing_log("invoices", ["temps"]))
    assert (
        str(missing_group("g", "temps", []))
        == "log 'temps' has no consumer group 'g'; see 'amqp-streams group list temps'"
    )
