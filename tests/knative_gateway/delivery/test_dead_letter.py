"""The event for the dead letter sink. knative-event-delivery, "deadLetterSink"; knative-delivery-design,
"CloudEvent extensions".
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from event_formats.http_binding import from_http, to_binary
from knative_gateway.delivery.dead_letter import (
    DATA_CHARACTERS_MAX,
    Attempt,
    as_text,
    dead_letter,
    without_login,
)
from tests.knative_gateway.delivery.made import AT_MS, SUBSCRIBER, event


def failed(
    *, code: int | None = 500, reason: str = "status 500", body: bytes = b"", url: str = SUBSCRIBER
) -> Attempt:
    return Attempt("subscriber", url, 3, AT_MS, code, reason, body, retryable=True)


def test_attributes_describe_the_failure_and_the_others_stay() -> None:
    """Delivery design: the error event is the original event annotated; deadlettersubscriberuri,
    deadletterreason, deadletterretry. Event delivery: knativeerrorcode is the status of the final attempt,
    knativeerrordata its body."""
    made = dead_letter(
        event(subject="x"),
        failed(code=422, reason="status 422", body=b'{"error": "no"}'),
        subscriber_url=SUBSCRIBER,
        attempts=3,
    )
    assert made.data == event().data
    assert made.attributes == {
        **event(subject="x").attributes,
        "knativeerrordest": SUBSCRIBER,
        "knativeerrorcode": 422,
        "knativeerrordata": '{"error": "no"}',
        "deadlettersubscriberuri": SUBSCRIBER,
        "deadletterreason": "status 422",
        "deadletterretry": 3,
    }


def test_credentials_in_a_url_are_not_shown() -> None:
    """The sink belongs to another user, and so may the reader of the history."""
    url = "https://user:secret@x.example:8443/a?b=c@d"
    made = dead_letter(event(), failed(url=url), subscriber_url=url, attempts=1)
    assert (
        made.attributes["knativeerrordest"]
        == made.attributes["deadlettersubscriberuri"]
        == "https://x.example:8443/a?b=c@d"
    )
    assert without_login("http://[::1/") == ""


def test_the_code_is_there_also_when_no_answer_came() -> None:
    made = dead_letter(event(), failed(code=None, reason="timeout"), subscriber_url=SUBSCRIBER, attempts=1)
    assert made.attributes["knativeerrorcode"] == 500
    assert made.attributes["deadletterreason"] == "timeout"
    assert made.attributes["knativeerrordata"] == ""


def test_a_failure_may_be_of_another_destination_than_the_subscriber() -> None:
    made = dead_letter(event(), failed(url="http://reply.example/"), subscriber_url=SUBSCRIBER, attempts=1)
    assert made.attributes["knativeerrordest"] == "http://reply.example/"
    assert made.attributes["deadlettersubscriberuri"] == SUBSCRIBER


def test_an_earlier_dead_letter_s_attributes_are_replaced() -> None:
    made = dead_letter(
        event(knativeerrorcode=404, deadletterretry=9), failed(), subscriber_url=SUBSCRIBER, attempts=2
    )
    assert (made.attributes["knativeerrorcode"], made.attributes["deadletterretry"]) == (500, 2)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", ""),
        ("größer".encode(), "größer"),
        (b"a\r\nb\tc\x00d\x7f", "a  b c d "),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("a\u0085b\ufffeb\U0001fffec".encode(), "a b b c"),
        ("\ufdcf\ufdd0\ufdef\ufdf0".encode(), "\ufdcf  \ufdf0"),
        ("\x1f \x7f\x9f\xa0".encode(), "    \xa0"),
        (b"x" * 5000, "x" * DATA_CHARACTERS_MAX),
        ("€".encode() * 5000, "€" * DATA_CHARACTERS_MAX),
        ("\U0001f600".encode() * 5000, "\U0001f600" * DATA_CHARACTERS_MAX),
    ],
)
def test_the_body_becomes_a_valid_string_of_at_most_1024_characters(body: bytes, text: str) -> None:
    """Event delivery: the data might be truncated if its length is excessive. CloudEvents 1.0, 3: a String
    has no control characters.
    """
    assert as_text(body) == text


@given(st.binary(max_size=3000), st.text(max_size=2000))
def test_the_event_goes_through_http_unchanged_after_any_answer(body: bytes, reason: str) -> None:
    made = dead_letter(event(), failed(body=body, reason=reason), subscriber_url=SUBSCRIBER, attempts=1)
    message = to_binary(made)
    read = from_http(
        [(name.encode("ascii"), value.encode("ascii")) for name, value in message.headers], message.body
    )
    assert {name: str(value) for name, value in made.attributes.items()} == read.attributes
    assert read.data == made.data
