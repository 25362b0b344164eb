"""The view Health of a gateway: for people who may read everything."""

import json

from tests.web_console.gateway.conftest import ADMIN, READER
from tests.web_console.http_client import Person
from tests.web_console.processes import until


def test_it_shows_state_warnings_figures_changes_and_settings(admin: Person) -> None:
    page = admin.get("/health").text
    for words in ("Health of the gateway", "State database", "Connections to subscribers", "Log node",
                  "gateway.toml", "No warning."):  # fmt: skip
        assert words in page, words
    assert not any(token in page for token in (ADMIN, READER))
    with admin.open_stream("/health/stream") as stream:
        assert stream.answer.readline() == b"event: html\n"
        part = json.loads(stream.answer.readline().removeprefix(b"data: "))
    assert "Since positions were stored" in part
    assert "<html" not in part


def test_a_change_is_shown_with_its_user(admin: Person) -> None:
    admin.get("/map/trigger/weather/temps-kept")
    for action in ("pause", "resume"):
        assert admin.post(f"/map/trigger/weather/temps-kept/{action}", {}).status == 200
    # All who ask within a second get the same answer.
    change = "PAUSE Trigger weather/temps-kept"
    until(lambda: change in admin.get("/health").text, change)


def test_it_is_hidden_from_others_and_refused_to_them(reader: Person) -> None:
    assert ">Health<" not in reader.get("/map?namespace=weather").text
    refused = reader.get("/health")
    assert refused.status == 403
    assert "forbidden" in refused.text
    with reader.open_stream("/health/stream") as stream:
        assert stream.answer.readline() == b"event: away\n"
