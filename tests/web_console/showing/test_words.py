"""Errors as sentences, and as positions in a text."""

from amqp_streams import names
from amqp_streams.client import (
    AuthenticationError,
    ClosedError,
    ConnectError,
    ConnectionLostError,
    LinkRefusedError,
    ManagementError,
    TimedOutError,
)
from web_console.showing.words import is_away, pointer, sentence, status


def test_a_node_that_cannot_be_reached_is_away_and_a_refused_login_is_not() -> None:
    for error in (ConnectError("refused"), ConnectionLostError("lost"), TimedOutError("slow")):
        assert is_away(error)
        assert status(error) == 503
        assert "n1:5672 does not answer" in sentence(error, "n1:5672")
    assert not is_away(AuthenticationError())
    assert status(AuthenticationError()) == status(ClosedError()) == 401


def test_the_words_of_the_node_are_shown_without_its_codes() -> None:
    refused = LinkRefusedError(names.UNAUTHORIZED_ACCESS, "anna may not read temps")
    assert (sentence(refused), status(refused)) == ("Anna may not read temps", 403)
    missing = ManagementError(404, "no log named 'temps'")
    assert (sentence(missing), status(missing)) == ("No log named 'temps'", 404)
    assert status(LinkRefusedError(names.NOT_FOUND, "no such log")) == 404
    assert status(ManagementError(700, "?")) == 502
    assert sentence(ManagementError(500, ""))


def test_the_position_of_an_error_is_shown_below_its_line() -> None:
    assert pointer("a >> 1", 4) == "a >> 1\n   ^"
    assert pointer("one\ntwo = \nthree", 11) == "two = \n      ^"
    assert pointer("ab", 999_999) == "ab\n  ^"
    assert pointer("", 0) == "\n^"
    assert pointer("x" * 500, 300) == f"{'x' * 80}\n{' ' * 40}^"
