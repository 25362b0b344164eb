"""Requests carried out by their types and operations."""

from dataclasses import replace

import pytest

from amqp_streams import names
from amqp_streams.errors import PeerError, StorageError
from amqp_streams.node.requests import carry_out
from amqp_streams.streams.management import CONFLICT, Answer, Request, RequestError


def request(operation: str = "READ", type_: str = "t") -> Request:
    return Request(operation, type_, "name", {}, None, None)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError(CONFLICT, "words"), 409),
        (PeerError(names.UNAUTHORIZED_ACCESS, "words"), 403),
        (StorageError("words"), 500),
    ],
)
def test_what_goes_wrong_is_answered_with_a_status_and_its_words(error: Exception, status: int) -> None:
    def fail(_request: Request) -> Answer:
        raise error

    assert carry_out({"t": {"READ": fail}}, request()) == Answer(status, "words")


def test_unknown_types_and_operations_are_told_which_are_known() -> None:
    types = {names.LOG_TYPE: {"READ": lambda _request: Answer(200, "log")}, "t": {"READ": lambda _request: Answer(200, "t")}}
    assert carry_out(types, request()).description == "t"
    assert carry_out(types, request(type_="")).description == "log"
    assert carry_out(types, request("DANCE")) == Answer(501, "operation 'DANCE' is unknown: READ")
    unknown = carry_out(types, request(type_="queue" * 50))
    assert unknown.status == 501
    assert unknown.description.endswith(f"is unknown: '{names.LOG_TYPE}', 't'")


def test_a_body_that_is_no_map_is_not_taken_for_an_empty_one() -> None:
    """Whoever sends settings as a list is not to be told that they are in force."""
    types = {"t": {"UPDATE": lambda _request: Answer(200, "updated")}}
    assert carry_out(types, replace(request("UPDATE"), well_formed=False)).status == 400
    assert carry_out(types, request("UPDATE")).status == 200
