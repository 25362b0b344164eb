"""The page of one Trigger or Subscription over HTTP: rights and actions."""

import json
from typing import Any

import pytest

from examples.gateway import GatewayProcess
from tests.web_console.gateway.conftest import ADMIN, READER
from tests.web_console.http_client import Person
from web_console.gateway.api import Api, server_of

TRIGGER = "/map/trigger/weather/temps-kept"
SUBSCRIPTION = "/map/subscription/weather/temps-subscription"


async def annotations(gateway: GatewayProcess) -> dict[str, Any]:
    path = "/apis/eventing.knative.dev/v1/namespaces/weather/triggers/temps-kept"
    found = await Api(server_of(gateway.base_url), None, ADMIN).get(path)
    return dict(found["metadata"].get("annotations", {}))


def test_a_page_shows_conditions_settings_and_positions(reader: Person) -> None:
    page = reader.get(TRIGGER).text
    for words in ("SubscriberResolved", "http://127.0.0.1:9/temps", "http://127.0.0.1:9/dead", "measured"):
        assert words in page
    assert "The history has no failures." in page
    assert "Deliveries are paused" in reader.get(SUBSCRIPTION).text
    assert "BrokerDoesNotExist" in reader.get("/map/trigger/weather/temps-lost").text


async def test_deliveries_are_paused_and_resumed(admin: Person, guarded_gateway: GatewayProcess) -> None:
    admin.get(TRIGGER)
    assert "Deliveries are paused." in admin.post(f"{TRIGGER}/pause", {}).text
    assert (await annotations(guarded_gateway))["knative-gateway/paused"] == "true"
    assert "Deliveries continue." in admin.post(f"{TRIGGER}/resume", {}).text
    assert "knative-gateway/paused" not in await annotations(guarded_gateway)


def test_a_replay_needs_the_name_and_a_start(admin: Person) -> None:
    admin.get(TRIGGER)
    for fields, words in (
        ({"to": "earliest"}, "type the name to confirm"),
        ({"to": "earliest", "name": "other"}, "type the name to confirm"),
        ({"to": "time", "at": "<b>", "name": "temps-kept"}, "is not a time"),
        ({"to": "offset", "at": "1", "partition": "99", "name": "temps-kept"}, "99"),
    ):
        answer = admin.post(f"{TRIGGER}/replay", fields)
        assert answer.status == 400, answer.text
        assert words in answer.text
        assert "<b>" not in answer.text
    done = admin.post(f"{TRIGGER}/replay", {"to": "earliest", "name": "temps-kept"})
    assert done.status == 200
    assert "delivered again from there" in done.text
    assert "no event that can be delivered again" in admin.post(f"{TRIGGER}/redrive", {}).text


def test_actions_are_shown_to_those_who_may_use_them(admin: Person, guarded_console: Any) -> None:
    other = Person(guarded_console.address)
    assert other.log_in(token=READER).status == 303
    allowed, refused = admin.get(TRIGGER).text, other.get(TRIGGER).text
    for control in (">Pause</button>", ">Replay</button>", ">Try filters<"):
        assert control in allowed
        assert control not in refused
    assert "not change it" in refused
    assert "not change it" not in allowed


async def test_what_the_user_may_not_do_is_refused_by_the_gateway(
    reader: Person, guarded_gateway: GatewayProcess
) -> None:
    before = await annotations(guarded_gateway)
    reader.get(TRIGGER)
    for action in ("pause", "resume", "redrive", "replay"):
        answer = reader.post(f"{TRIGGER}/{action}", {"to": "earliest", "name": "temps-kept"})
        assert answer.status == 403
        assert "is forbidden" in answer.text
    assert await annotations(guarded_gateway) == before
    hidden = reader.get("/map/trigger/vault/secret-kept")
    assert hidden.status == 403
    assert "http://" not in hidden.text.partition("<main")[2]


def test_a_form_of_another_site_does_nothing(admin: Person) -> None:
    admin.get(TRIGGER)
    assert admin.post(f"{TRIGGER}/pause", b"csrf=guessed").status == 403
    assert admin.get(f"{TRIGGER}/pause").status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/map/trigger/weather/none",
        "/map/broker/weather/temps",
        "/map/trigger/weather/..",
        "/map/trigger/weather/temps-kept%3fx",
    ],
)
def test_what_does_not_exist_is_said_in_words(admin: Person, path: str) -> None:
    answer = admin.get(path)
    assert answer.status == 404
    assert 'role="alert"' in answer.text


def test_actions_that_do_not_exist_reach_no_path_of_the_api(admin: Person) -> None:
    admin.get(TRIGGER)
    for action in ("status", "deliveries", "..", "x"):
        assert admin.post(f"{TRIGGER}/{action}", {}).status in {404, 405}


def test_the_page_is_live(reader: Person, guarded_gateway: GatewayProcess) -> None:
    reader.get(TRIGGER)
    with reader.open_stream(f"{TRIGGER}/stream") as stream:
        assert stream.answer.status == 200
        assert stream.answer.readline() == b"event: html\n"
        part = json.loads(stream.answer.readline().removeprefix(b"data: "))
    assert "SubscriberResolved" in part
    assert f'action="{TRIGGER}/redrive"' not in part
    assert "<html" not in part
    assert reader.get("/map/broker/weather/temps/stream").status == 404
    with reader.open_stream("/map/trigger/vault/secret-kept/stream") as stream:
        assert stream.answer.readline() == b"event: away\n"
        assert b"forbidden" in stream.answer.readline()


def test_a_redrive_of_selected_events_needs_a_selection(admin: Person) -> None:
    admin.get(TRIGGER)
    answer = admin.post(f"{TRIGGER}/redrive", {"which": "selected", "event.x": "on"})
    assert answer.status == 400
    assert "select at least one event" in answer.text
    done = admin.post(f"{TRIGGER}/redrive", {"which": "selected", "event.0.99999": "on"})
    assert "no event that can be delivered again" in done.text
