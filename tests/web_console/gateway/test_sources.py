"""The events of a Broker and their paths over HTTP: rights, mistakes, and hostile events."""

import html
import http.client
import json
import shlex
from urllib.parse import quote, urlencode, urlsplit

import pytest

from examples.gateway import GatewayProcess
from tests.web_console.gateway.conftest import ADMIN
from tests.web_console.http_client import Person

SOURCE = "/sources/broker/weather/temps"
HOSTILE = "<script>document.title = 1</script>"


@pytest.fixture(scope="module")
def sent(guarded_gateway: GatewayProcess) -> None:
    """Events of the Broker, one of them hostile."""
    connection = http.client.HTTPConnection(guarded_gateway.http, timeout=60)
    for number in range(25):
        id_ = quote(HOSTILE) if number == 0 else f"source-{number}"
        headers = {"ce-specversion": "1.0", "ce-type": "measured", "ce-source": "/sources", "ce-id": id_}
        headers |= {"authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
        connection.request("POST", "/broker/weather/temps", b"{}", headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 202
    connection.close()


def test_events_are_listed_page_by_page(admin: Person, sent: None) -> None:
    first = admin.get(f"{SOURCE}?events=20")
    assert first.status == 200
    assert first.text.count("/event?at=") == 20
    assert ">Older</a>" in first.text
    assert "1 event found" in admin.get(f"{SOURCE}?id=source-7").text


def test_a_hostile_event_is_text_on_its_pages(admin: Person, sent: None) -> None:
    listed = admin.get(f"{SOURCE}?{urlencode({'id': HOSTILE})}")
    assert "1 event found" in listed.text
    place = listed.text.partition("/event?at=")[2].partition('"')[0]
    shown = admin.get(f"{SOURCE}/event?at={place}")
    assert shown.status == 200
    for page in (listed, shown):
        assert HOSTILE not in page.text
        assert "&lt;script&gt;" in page.text
    assert "temps-kept" in shown.text


def test_an_event_can_be_sent_again_with_the_command_of_its_page(
    admin: Person, guarded_gateway: GatewayProcess, sent: None
) -> None:
    """The command's words are sent as curl sends them: curl itself is not installed everywhere."""
    listed = admin.get(f"{SOURCE}?{urlencode({'id': HOSTILE})}")
    place = listed.text.partition("/event?at=")[2].partition('"')[0]
    shown = html.unescape(admin.get(f"{SOURCE}/event?at={place}").text)
    command = shown.partition('<pre id="curl" tabindex="0">')[2].partition("</pre>")[0]
    words = shlex.split(command.replace(" \\\n", " "))
    assert words[:4] == ["curl", "-X", "POST", "--globoff"]
    given = [words[at + 1] for at, word in enumerate(words) if word == "-H"]
    headers = dict(each.split(": ", 1) for each in given)
    assert headers.pop("authorization") == "Bearer $TOKEN"
    assert headers["content-type"] == "application/json"
    url = urlsplit(words[4])
    connection = http.client.HTTPConnection(guarded_gateway.http, timeout=60)
    data = words[words.index("--data-raw") + 1].encode()
    connection.request("POST", url.path, data, {**headers, "authorization": f"Bearer {ADMIN}"})
    assert connection.getresponse().status == 202
    connection.close()
    assert "2 events found" in admin.get(f"{SOURCE}?{urlencode({'id': HOSTILE})}").text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        (f"{SOURCE}?time=noon", 400, "is not a time"),
        (f"{SOURCE}?partition=99", 400, "does not have partition 99"),
        (f"{SOURCE}?before=x", 400, "begin with the latest events"),
        (f"{SOURCE}/event?at=0:99999", 404, "does not have the offset"),
        (f"{SOURCE}/event?at=x", 404, "PARTITION:OFFSET"),
        ("/sources/broker/weather/none", 404, "not found"),
        ("/sources/trigger/weather/temps-kept", 404, "does not exist"),
        ("/sources/trigger/weather/temps-kept/given", 404, "does not exist"),
    ],
)
def test_a_mistake_is_shown(admin: Person, path: str, status: int, words: str) -> None:
    answer = admin.get(path)
    assert (answer.status, words in answer.text) == (status, True)


def test_who_may_not_write_sees_no_event(reader: Person, sent: None) -> None:
    """With the right to read, a person sees objects, and not the events of a Broker."""
    for path in (SOURCE, f"{SOURCE}/event?at=0:0"):
        answer = reader.get(path)
        assert answer.status == 403
        assert "is forbidden" in answer.text
        assert "/sources</td>" not in answer.text


def test_an_event_that_is_given_is_matched(admin: Person, sent: None) -> None:
    given = {"specversion": "1.0", "id": "1", "source": "/s", "type": "measured"}
    assert admin.get(f"{SOURCE}/given").status == 200
    assert "1 of 1 get this event" in admin.post(f"{SOURCE}/given", {"event": json.dumps(given)}).text
    other = admin.post(f"{SOURCE}/given", {"event": json.dumps({**given, "type": "x"})})
    assert "0 of 1 get this event" in other.text
    assert "filter.attributes does not match" in other.text
    for text, words in (("{", "not valid JSON"), ('{"type": "<b>"}', "not a CloudEvent")):
        answer = admin.post(f"{SOURCE}/given", {"event": text})
        assert 400 <= answer.status < 500
        assert words in answer.text
        assert "<b>" not in answer.text


def test_a_form_of_another_site_tries_nothing(admin: Person) -> None:
    admin.get(f"{SOURCE}/given")
    assert admin.post(f"{SOURCE}/given", b"csrf=guessed&event={}").status == 403
