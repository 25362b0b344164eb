"""Which connection closes when there is one too many."""

import pytest

from knative_gateway.http.backlog import Backlog
from knative_gateway.http.exchange import Exchange, Handler
from knative_gateway.http.service import Service


class Client:
    """A connection that records that it was closed."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.held, self.held_since = 0, 0.0
        self.is_closed = False

    def shed(self) -> None:
        raise AssertionError

    def abort(self) -> None:
        assert not self.is_closed, "it was closed before"
        self.is_closed = True


def _no_handler(_: Exchange) -> Handler:
    raise AssertionError


@pytest.fixture
def service() -> Service[Client]:
    return Service[Client](_no_handler, lambda: 0.0, Backlog(lambda _: None), connections_max=3, held_max=100)


def clients(service: Service[Client], *networks: str) -> list[Client]:
    made = [Client(network) for network in networks]
    for each in made:
        service.waits(each)
    return made


def test_the_oldest_of_the_network_with_the_most_that_wait_closes(service: Service[Client]) -> None:
    other, first, second = clients(service, "b", "a", "a")
    new = Client("c")
    service.waits(new)
    service.make_room(new)
    assert [each.is_closed for each in (other, first, second, new)] == [False, True, False, False]


def test_a_connection_that_works_stays(service: Service[Client]) -> None:
    first, second = clients(service, "a", "a")
    service.works(first)
    service.make_room(second)
    assert (first.is_closed, second.is_closed) == (False, True)


def test_a_connection_that_waits_again_is_the_youngest(service: Service[Client]) -> None:
    first, second = clients(service, "a", "a")
    service.works(first)
    service.waits(first)
    service.make_room(first)
    assert (first.is_closed, second.is_closed) == (False, True)


def test_the_new_one_closes_if_all_others_work(service: Service[Client]) -> None:
    first, second = clients(service, "a", "a")
    service.works(first)
    service.works(second)
    new = Client("b")
    service.make_room(new)
    assert (first.is_closed, second.is_closed, new.is_closed) == (False, False, True)


def test_a_connection_is_closed_once(service: Service[Client]) -> None:
    """Its end is known later."""
    first, second, third = clients(service, "a", "a", "a")
    service.make_room(third)
    service.make_room(third)
    assert [each.is_closed for each in (first, second, third)] == [True, True, False]


def test_a_connection_that_has_ended_is_not_chosen(service: Service[Client]) -> None:
    first, second = clients(service, "a", "a")
    service.make_room(second)
    assert first.is_closed
    service.leave(second)
    new = Client("b")
    service.make_room(new)
    assert (second.is_closed, new.is_closed) == (False, True)
