"""A stored event as all who get it see it."""

from knative_gateway.amqp_binding import encode
from knative_gateway.dispatcher.arrival import Arrival
from knative_gateway.ports import Delivery, Stored
from tests.knative_gateway.dispatcher.rig import LOG, Rig, event, subscriber
from tests.knative_gateway.dispatcher.rig import until as until_
from tests.knative_gateway.dispatcher.subscriber import SubscriberServer


def test_what_is_no_event_says_why() -> None:
    arrival = Arrival(Stored(0, "0000000000000001", 5, b"nonsense"), "0000000000000000")
    assert arrival.event is None
    assert "no AMQP message" in arrival.problem
    assert arrival.passed_on == ()
    assert arrival.key is None


def test_a_request_is_made_once_for_all() -> None:
    arrival = Arrival(Stored(0, "0000000000000001", 5, encode(event(1, partitionkey="k", knativebrokerttl=3))), "")
    assert arrival.request(departs=True, structured=False) is arrival.request(departs=True, structured=False)
    assert "ce-knativebrokerttl" not in dict(arrival.request(departs=True, structured=False).headers)
    assert dict(arrival.request(departs=False, structured=False).headers)["ce-knativebrokerttl"] == "3"
    assert arrival.request(departs=True, structured=True) is arrival.request(departs=True, structured=True)
    assert b"knativebrokerttl" not in arrival.request(departs=True, structured=True).body
    assert b'"knativebrokerttl":3' in arrival.request(departs=False, structured=True).body
    assert arrival.key == "k"


async def test_headers_of_the_sender_s_request_go_with_its_event() -> None:
    """To the subscriber and to the dead letter sink; Knative's header policy."""
    async with Rig(partitions=1) as rig, SubscriberServer() as server:
        server.answers = [400]
        delivery = Delivery(dead_letter_url=server.url("/dead"))
        await rig.serve(subscriber("u", server.url("/live"), delivery=delivery))
        await rig.log.append(LOG, encode(event(1), {"x-request-id": "r", "knative-x": "y"}))
        await until_(lambda: len(server.got) == 2)
        assert [got.path for got in server.got] == ["/live", "/dead"]
        for got in server.got:
            headers = {name.lower(): value for name, value in got.headers.items()}
            assert (headers["x-request-id"], headers["knative-x"]) == ("r", "y")
