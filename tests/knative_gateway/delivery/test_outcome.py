"""The meaning of answers: knative-eventing-test-spec, "Event Acknowledgement and Delivery Retry" and "Derived
(Reply) Events".
"""

import pytest

from knative_gateway.delivery.outcome import Verdict, overloaded, retryable, succeeded, verdict
from tests.knative_gateway.delivery.made import answer, event

NO_RETRY = [
    100,
    101,
    103,
    300,
    301,
    302,
    304,
    307,
    308,
    400,
    401,
    403,
    405,
    406,
    410,
    413,
    415,
    418,
    422,
    431,
    451,
    499,
]
RETRY = [404, 408, 409, 429, 500, 501, 502, 503, 504, 505, 511, 599, 600]


@pytest.mark.parametrize("status", [200, 201, 202, 203, 204, 205, 206, 207, 250, 299])
def test_any_2xx_completes_the_delivery(status: int) -> None:
    """Table: 200, 202 and other 2xx: no retry, delivery completed, no error; senders MUST handle these codes
    as success.
    """
    assert succeeded(status)
    assert verdict(answer(status), reply_wanted=True) is Verdict.ACCEPTED


@pytest.mark.parametrize("status", NO_RETRY)
def test_a_status_that_the_table_does_not_retry_is_a_permanent_failure(status: int) -> None:
    """Table: 1xx, 3xx, 400 and other 4xx: no retry, not completed, error; senders MUST handle these codes as
    errors.
    """
    assert not succeeded(status)
    assert not retryable(status)
    assert verdict(answer(status), reply_wanted=True) is Verdict.FAILED


@pytest.mark.parametrize("status", RETRY)
def test_the_statuses_of_the_table_are_retried(status: int) -> None:
    """Table: 404, 409, 429 and 5xx are retried; also 408; and a status above 599 counts as a failure of the
    other side.
    """
    assert not succeeded(status)
    assert verdict(answer(status), reply_wanted=True) is Verdict.RETRY


def test_no_answer_is_retried_unless_a_retry_cannot_help() -> None:
    """Data plane contract: senders SHOULD re-attempt where the HTTP request failed."""
    assert verdict(answer(None, reason="timeout"), reply_wanted=True) is Verdict.RETRY
    assert verdict(answer(None, reason="not allowed", final=True), reply_wanted=True) is Verdict.FAILED


def test_200_with_an_event_is_a_reply() -> None:
    assert verdict(answer(200, event=event()), reply_wanted=True) is Verdict.REPLIED


def test_200_with_a_body_that_is_not_an_event_is_accepted() -> None:
    assert verdict(answer(200, body=b"<html>"), reply_wanted=True) is Verdict.ACCEPTED


@pytest.mark.parametrize("status", [201, 202, 203, 206])
def test_only_200_is_a_reply(status: int) -> None:
    """Derived events: responses with 202 MUST NOT be processed as reply events, even if they can be
    interpreted as a CloudEvent.
    """
    assert verdict(answer(status, event=event()), reply_wanted=True) is Verdict.ACCEPTED


@pytest.mark.parametrize("status", [404, 500, 302])
def test_an_event_in_an_error_is_not_a_reply(status: int) -> None:
    assert verdict(answer(status, event=event()), reply_wanted=True) in (Verdict.RETRY, Verdict.FAILED)


def test_a_reply_that_was_not_asked_for_is_not_processed() -> None:
    """Data plane contract: the sender MUST NOT process the reply event if it did not advertise that, SHOULD
    treat it as accepted.
    """
    assert verdict(answer(200, event=event()), reply_wanted=False) is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, True),
        (408, True),
        (429, True),
        (500, True),
        (503, True),
        (404, False),
        (400, False),
        (200, False),
    ],
)
def test_a_subscriber_that_answers_429_slows_deliveries_down(status: int | None, expected: bool) -> None:
    assert overloaded(answer(status)) is expected


def test_a_destination_that_is_not_allowed_says_nothing_of_its_load() -> None:
    assert not overloaded(answer(None, final=True))


def test_a_header_is_found_in_any_case() -> None:
    found = answer(503, headers=((b"X", b"1"), (b"Retry-AFTER", b" 5 "), (b"retry-after", b"9")))
    assert found.header(b"retry-after") == "5"
    assert found.header(b"absent") is None
