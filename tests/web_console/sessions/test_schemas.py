"""Avro schemas that a session keeps, over HTTP: for its logs only, bounded, and hostile ones."""

import html
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.conftest import PASSWORD
from tests.web_console.http_client import Person
from web_console.sessions.schemas import SCHEMAS_MAX

SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "room", "type": "string"}]})
HOSTILE = "<script>document.title = 1</script>"


@pytest.fixture(scope="module")
def logs(guarded_node: NodeProcess) -> Iterator[list[str]]:
    names = [f"avro.{number}" for number in range(SCHEMAS_MAX + 1)]
    with connect(guarded_node.url, user="admin", password=PASSWORD) as client:
        for name in names:
            client.management.create_log(name)
            with client.producer(name) as producer:
                producer.send(Event(bytes([2 * len(HOSTILE)]) + HOSTILE.encode()))
        yield names
        for name in names:
            client.management.delete_log(name)


@pytest.fixture
def admin(person: Person) -> Person:
    person.log_in("admin", PASSWORD)
    return person


def test_a_session_keeps_a_schema_for_each_log_up_to_a_limit(admin: Person, logs: list[str]) -> None:
    pages = [f"/logs/{log}/events/0/0" for log in logs]
    admin.get(pages[0])
    for page in pages:
        answer = admin.post(page, {"schema": SCHEMA, "form": "plain"})
        assert (answer.status, "binary Avro</p>" in answer.text) == (200, True)
        assert HOSTILE not in answer.text
        assert html.escape(HOSTILE) in answer.text
    assert ["binary Avro</p>" in admin.get(page).text for page in pages] == [False] + [True] * SCHEMAS_MAX
    assert admin.post(pages[1], {"schema": " "}).status == 200
    assert "binary Avro</p>" not in admin.get(pages[1]).text


def test_a_schema_in_the_address_is_not_kept(admin: Person, logs: list[str]) -> None:
    page = f"/logs/{logs[0]}/events/0/0"
    assert "binary Avro</p>" in admin.get(f"{page}?{urlencode({'schema': SCHEMA})}").text
    assert "binary Avro</p>" not in admin.get(page).text


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 60_000, "too many levels"),
        ('"' + "x" * 70_000 + '"', "at most 64 KiB"),
        (f'"{HOSTILE}"', "is not defined before this place"),
        ('"int"', "does not fit the schema"),
    ],
)
def test_a_schema_that_does_not_fit_is_answered_in_words(
    admin: Person, logs: list[str], schema: str, words: str
) -> None:
    page = f"/logs/{logs[0]}/events/0/0"
    admin.get(page)
    answer = admin.post(page, {"schema": schema})
    assert (answer.status, words in html.unescape(answer.text)) == (400, True)
    assert HOSTILE not in answer.text


def test_a_form_of_another_site_keeps_no_schema(admin: Person, logs: list[str]) -> None:
    page = f"/logs/{logs[0]}/events/0/0"
    assert admin.post(page, f"csrf=guessed&{urlencode({'schema': SCHEMA})}".encode()).status == 403
    assert "binary Avro</p>" not in admin.get(page).text
