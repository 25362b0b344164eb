"""Each error is one answer."""

import pytest

from knative_gateway.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    GatewayError,
    OverloadedError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedMediaError,
)
from knative_gateway.ingress import answers


def headers(answer: answers.Answer) -> dict[bytes, bytes]:
    return dict(answer.start["headers"])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("error", "status", "header"),
    [
        (BadRequestError("id is missing"), 400, None),
        (UnauthenticatedError("who?"), 401, (b"www-authenticate", b"Bearer")),
        (ForbiddenError("no"), 403, None),
        (TooLargeError("much"), 413, None),
        (UnsupportedMediaError("xml"), 415, None),
        (OverloadedError("later", retry_after_s=7), 429, (b"retry-after", b"7")),
        (UnavailableError("away"), 503, (b"retry-after", b"1")),
        (ConflictError("odd"), 500, None),
    ],
)
def test_each_error_has_its_status_and_a_reason(
    error: GatewayError, status: int, header: tuple[bytes, bytes] | None
) -> None:
    answer = answers.refusal(error)
    assert answer.status == answer.start["status"] == status
    assert answer.body["body"] == f"{error}\n".encode()
    assert header is None or headers(answer)[header[0]] == header[1]
    assert (b"connection", b"close") in headers(answers.refusal(error, close=True)).items()


@pytest.mark.parametrize(
    "answer", [answers.ACCEPTED, answers.OPTIONS, answers.NOT_FOUND, answers.NOT_ALLOWED, answers.TOO_SLOW]
)
def test_every_answer_says_what_is_taken_and_how_long_it_is(answer: answers.Answer) -> None:
    assert headers(answer)[b"allow"] == b"POST, OPTIONS"
    assert int(headers(answer)[b"content-length"]) == len(answer.body["body"])  # type: ignore[arg-type]


def test_long_words_are_cut() -> None:
    assert len(answers.answer(400, "x" * 9999).body["body"]) == 1025  # type: ignore[arg-type]
