"""Connections and health over HTTP: people without the right see neither tab nor page."""

import pytest

from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.conftest import PASSWORD
from tests.web_console.http_client import Person

PATHS = ("/connections", "/health")


def test_people_without_the_right_see_no_tab_and_get_403(person: Person, guarded_node: NodeProcess) -> None:
    assert person.log_in("reader", PASSWORD).status == 303
    logs = person.get("/logs").text
    assert "/groups" in logs
    # The console asks for the rights of a person: a login is no refusal in the log of the node.
    assert "access_refused" not in guarded_node.words
    for path in PATHS:
        assert path not in logs
        answer = person.get(path)
        assert answer.status == 403
        assert "has no right &#39;manage&#39; on &#39;*&#39;" in answer.text
    with connect(guarded_node.url, user="admin", password=PASSWORD) as client:
        (other,) = [one for one in client.management.list_connections() if one.user == "admin"]
        assert person.get(f"/connections/{other.name}").status == 403
        for step in ("ask", "close"):
            refused = person.post(f"/connections/{other.name}/close", {"step": step})
            assert refused.status == 403
        assert client.management.describe_connection(other.name).name == other.name


def test_administrators_see_and_search_connections(person: Person, guarded_node: NodeProcess) -> None:
    assert person.log_in("admin", PASSWORD).status == 303
    logs = person.get("/logs").text
    assert all(path in logs for path in PATHS)
    with connect(guarded_node.url, user="reader", password=PASSWORD, container_id="<b>meter</b>"):
        found = person.get("/connections?find=%3Cb%3Emeter").text
        assert "1 to 1 of 1 connections" in found
        assert "&lt;b&gt;meter&lt;/b&gt;" in found
        assert "<b>meter</b>" not in found
    assert person.get("/health").status == 200


@pytest.mark.parametrize(
    "query", ["sort=colour", "page=0", "page=99999", "page=x", "find=%00%0a", "find=" + "x" * 5000]
)
def test_odd_queries_show_a_page(person: Person, query: str) -> None:
    assert person.log_in("admin", PASSWORD).status == 303
    assert person.get(f"/connections?{query}").status == 200


def test_a_connection_that_does_not_exist_is_said_in_words(person: Person) -> None:
    assert person.log_in("admin", PASSWORD).status == 303
    answer = person.get("/connections/none-1")
    assert answer.status == 404
    assert "it may have ended" in answer.text
    person.get("/connections")
    assert person.post("/connections/none-1/close", {"step": "close"}).status == 404


def test_streams_need_the_right_and_a_name(person: Person) -> None:
    assert person.log_in("reader", PASSWORD).status == 303
    assert person.get("/connections/stream").status == 403
    assert person.get("/group/stream?log=temps").status == 404
