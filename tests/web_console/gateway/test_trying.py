"""The filter tester of a Trigger over HTTP: rights, mistakes, and hostile contents."""

import http.client
from urllib.parse import quote

import pytest

from examples.gateway import GatewayProcess
from tests.web_console.gateway.conftest import ADMIN
from tests.web_console.http_client import Person

FILTERS = "/map/trigger/weather/temps-kept/filters"
HOSTILE = "<script>document.title = 1</script>"


@pytest.fixture(scope="module")
def sent(guarded_gateway: GatewayProcess) -> None:
    """Three events of the Broker, one of them hostile."""
    connection = http.client.HTTPConnection(guarded_gateway.http, timeout=60)
    for type_, room in (("measured", "roof"), ("other", "cellar"), ("odd", quote(HOSTILE))):
        attributes = {"specversion": "1.0", "type": type_, "source": "/s", "id": type_, "room": room}
        headers = {f"ce-{name}": value for name, value in attributes.items()}
        headers |= {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
        connection.request("POST", "/broker/weather/temps", b"{}", headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 202
    connection.close()


def test_filters_are_tried(admin: Person, sent: None) -> None:
    assert admin.get(FILTERS).status == 200
    own = admin.post(FILTERS, {"filters": ""})
    assert "1 of 3 events match" in own.text
    assert "filter.attributes does not match" in own.text
    tried = admin.post(FILTERS, {"filters": "room LIKE '%o%'", "events": "3"})
    assert "2 of 3 events match" in tried.text
    assert HOSTILE not in tried.text
    assert "&lt;script&gt;" in tried.text
    nothing = admin.post(FILTERS, {"filters": '[{"exact": {"type": "none"}}]'})
    assert "0 of 3 events match" in nothing.text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"filters": "room >> 1"}, "at character 7"),
        ({"filters": "[{]"}, "not valid JSON"),
        ({"filters": '[{"exact": {"Room": "<b>"}}]'}, "filters[0].exact[Room]"),
        ({"filters": "TRUE", "partition": "99"}, "does not have partition 99"),
        ({"filters": "x" * 20_000}, "at most 16,384 characters"),
        ({"filters": "room = '<b>"}, "filters[0].cesql"),
    ],
)
def test_a_mistake_is_shown_with_what_was_typed(
    admin: Person, sent: None, fields: dict[str, str], words: str
) -> None:
    admin.get(FILTERS)
    answer = admin.post(FILTERS, fields)
    assert 400 <= answer.status < 500
    assert words in answer.text
    assert "<b>" not in answer.text
    assert 'role="alert"' in answer.text


def test_who_may_not_write_gets_no_event(reader: Person, sent: None) -> None:
    """With the right to read, a person sees objects, and not the events of a Broker."""
    assert reader.get(FILTERS).status == 200
    answer = reader.post(FILTERS, {"filters": "TRUE"})
    assert answer.status == 403
    assert "is forbidden" in answer.text
    assert "roof" not in answer.text
    assert reader.get("/map/trigger/vault/secret-kept/filters").status == 403


def test_a_form_of_another_site_tries_nothing(admin: Person) -> None:
    admin.get(FILTERS)
    assert admin.post(FILTERS, b"csrf=guessed&filters=TRUE").status == 403


@pytest.mark.parametrize(
    "path", ["/map/trigger/weather/none/filters", "/map/subscription/weather/temps-subscription/filters"]
)
def test_only_triggers_have_filters(admin: Person, path: str) -> None:
    assert admin.get(path).status in {404, 405}
