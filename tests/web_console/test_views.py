"""The views of a log over HTTP: rights, and odd requests."""

import html
import json
import re
from contextlib import ExitStack

import pytest

from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.conftest import PASSWORD
from tests.web_console.http_client import Person
from tests.web_console.processes import ConsoleProcess
from web_console.showing.browsing import PARTITIONS_MAX


@pytest.fixture
def reader(person: Person) -> Person:
    assert person.log_in("reader", PASSWORD).status == 303
    return person


@pytest.fixture
def admin(person: Person) -> Person:
    assert person.log_in("admin", PASSWORD).status == 303
    return person


VIEWS = (
    "",
    "/events",
    "/events/0/0",
    "/events/0/0/body",
    "/tail",
    "/send",
    "/settings",
    "/filter?where=a=1",
    "/try",
    "/try?where=a=1",
)


@pytest.mark.parametrize("view", VIEWS)
def test_a_log_that_the_user_may_not_see_is_refused_in_every_view(reader: Person, view: str) -> None:
    answer = reader.get(f"/logs/secret{view}")
    assert answer.status == 403
    assert "has no right" in answer.text


def test_what_the_user_may_not_change_is_refused_by_the_node(
    reader: Person, guarded_node: NodeProcess
) -> None:
    reader.get("/logs/temps/settings")
    for path, fields in (
        ("/create", {"name": "mine"}),
        ("/logs/temps/settings", {"retention_ms": "7d"}),
        ("/logs/temps/delete", {"name": "temps"}),
        ("/logs/temps/send", {"body": "x"}),
    ):
        answer = reader.post(path, fields)
        assert answer.status in {400, 403}, path
        assert "has no right" in answer.text, answer.text
    with connect(guarded_node.url, user="admin", password=PASSWORD) as client:
        assert client.info("temps").retention_ms is None
        assert [one.name for one in client.management.list_logs()] == ["secret", "temps"]


def test_what_does_not_exist_is_said_in_words(admin: Person) -> None:
    assert admin.get("/logs/missing").status == 404
    assert admin.get("/logs/missing/events").status == 404
    assert "has no event with the offset 7" in admin.get("/logs/temps/events/0/7").text
    assert admin.get("/logs/temps/events/99/7").status in {400, 404}
    assert "no partition" in admin.get("/logs/temps/events?partition=99").text
    assert admin.get("/group?log=temps&group=none").status == 404
    assert admin.get("/group").status == 404


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("from=offset&at=x", "is not an offset"),
        ("from=time&at=yesterday", "is not a time"),
        ("where=a+%3D", "Show"),
        ("from=nonsense&count=99999999&mark=x", "Show"),
        ("from=after&mark=0%3A99999999%2C1%3A0", "Show"),
    ],
)
def test_odd_queries_are_answered_in_words(admin: Person, query: str, words: str) -> None:
    answer = admin.get(f"/logs/temps/events?{query}")
    assert answer.status in {200, 400}
    assert words in answer.text


def test_events_are_found_from_a_time_and_by_an_offset(admin: Person, guarded_node: NodeProcess) -> None:
    with connect(guarded_node.url, user="admin", password=PASSWORD) as client:
        client.management.create_log("times")
        with client.producer("times") as producer:
            for body in (b"first", b"second", b"third"):
                producer.send(Event(body))
        assert "second" in admin.get("/logs/times/events?from=offset&at=1").text
        assert "first" not in admin.get("/logs/times/events?from=offset&at=1").text
        assert "first" in admin.get("/logs/times/events?from=time&at=-1h").text
        assert "0 events" in admin.get("/logs/times/events?from=time&at=2199-01-01").text
        client.management.delete_log("times")


def test_a_filter_is_checked_by_the_node(admin: Person) -> None:
    assert "valid" in admin.get("/logs/temps/filter?where=a+%3D+1").text
    refused = admin.get("/logs/temps/filter?where=a+%3D%3D+1").text
    assert "<pre" in refused
    assert "filter where" not in refused.lower()
    assert admin.get("/logs/temps/filter?where=").text.strip() == ""


@pytest.mark.parametrize("view", ["filter", "events", "try"])
def test_a_filter_that_is_too_long_is_not_cut(admin: Person, view: str) -> None:
    """The first 4,096 characters of a filter may be a filter with other results."""
    sql = "a=1" + "+AND+a=1" * 600
    assert "more than 4,096 characters" in admin.get(f"/logs/temps/{view}?where={sql}").text


def test_a_session_has_a_bounded_number_of_streams(admin: Person) -> None:
    with ExitStack() as streams:
        for _ in range(12):
            assert streams.enter_context(admin.open_stream("/logs/temps/figures")).answer.status == 200
        assert admin.get("/logs/temps/figures").status == 429
        assert admin.get("/logs").status == 200
    status = 429
    while status == 429:
        with admin.open_stream("/logs/temps/figures") as stream:
            status = stream.answer.status
    assert status == 200


def test_a_long_list_has_pages_and_a_search(admin: Person, guarded_node: NodeProcess) -> None:
    names = [f"many.{number:03d}" for number in range(60)]
    with connect(guarded_node.url, user="admin", password=PASSWORD) as client:
        for name in names:
            client.management.create_log(name)
        first, second = admin.get("/logs?find=many").text, admin.get("/logs?find=many&page=2").text
        assert [name for name in names if f'data-row="{name}"' in first] == names[:50]
        assert [name for name in names if f'data-row="{name}"' in second] == names[50:]
        assert "51 to 60 of 60 logs" in second
        for name in names:
            client.management.delete_log(name)


def test_actions_on_a_log_are_shown_to_those_who_may_use_them(
    admin: Person, guarded_console: ConsoleProcess
) -> None:
    other = Person(guarded_console.address)
    assert other.log_in("reader", PASSWORD).status == 303
    for tab in ("", "/events", "/try", "/tail"):
        allowed, refused = admin.get(f"/logs/temps{tab}").text, other.get(f"/logs/temps{tab}").text
        for control in (">Send<", ">Settings<"):
            assert control in allowed, tab
            assert control not in refused, tab
    # Who follows a link to it sees where it is, and the node refuses what the form sends.
    assert ">Send<" in other.get("/logs/temps/send").text
    refused = other.post("/logs/temps/send", {"body": "x", "content_type": "text/plain"}).text
    assert "has no right &#39;send&#39;" in refused


def test_a_log_with_many_partitions_shows_those_with_the_latest_events(
    admin: Person, guarded_node: NodeProcess
) -> None:
    with connect(guarded_node.url, user="admin", password=PASSWORD) as client:
        client.management.create_log("wide", partitions=2 * PARTITIONS_MAX)
        with client.producer("wide") as producer:
            for partition in range(2 * PARTITIONS_MAX):
                producer.send(Event(b"x"), partition=partition)
        answer = admin.get("/logs/wide/events?from=latest&count=20")
        assert answer.status == 200
        assert f"has {2 * PARTITIONS_MAX} partitions" in answer.text
        assert "20 events" in answer.text
        older = re.search(r'href="([^"]+)">Older', answer.text)
        assert older is not None
        following = admin.get(html.unescape(older[1]))
        assert f"{PARTITIONS_MAX - 20} events" in following.text
        shown = re.findall(r"/logs/wide/events/(\d+)/0", answer.text + following.text)
        assert len(set(shown)) == PARTITIONS_MAX
        assert "has 64 partitions" not in admin.get("/logs/wide/events?partition=3").text
        assert admin.get("/logs/wide/events?from=before&mark=x:1").status == 400
        client.management.delete_log("wide")


def test_half_a_surrogate_pair_in_the_json_of_an_event_can_be_shown(
    admin: Person, guarded_node: NodeProcess
) -> None:
    """It is not a character, so it has no bytes in UTF-8, and the page was an error."""
    with connect(guarded_node.url, user="admin", password=PASSWORD) as client:
        client.management.create_log("odd")
        with client.producer("odd") as producer:
            producer.send(Event(b'{"\\ud800": "a\\udfff"}', content_type="application/json"))
        answer = admin.get("/logs/odd/events/0/0")
        client.management.delete_log("odd")
    assert answer.status == 200
    assert "\\ud800" in answer.text


@pytest.mark.parametrize(("user", "shown"), [("admin", r"\d+"), ("reader", "-")])
def test_who_reads_a_log_is_a_dash_without_the_right_to_manage_it(
    person: Person, user: str, shown: str
) -> None:
    person.log_in(user, PASSWORD)
    for figure in ("consumers", "groups"):
        assert re.search(rf'data-figure="{figure}">{shown}</td>', person.get("/logs?find=temps").text)
    with person.open_stream("/figures?log=temps") as stream:
        line = next(each for each in stream.answer if b'"temps"' in each)
    figures = json.loads(line.removeprefix(b"data: "))["temps"]
    assert all(re.fullmatch(shown, figures[figure]) for figure in ("consumers", "groups"))
    assert re.fullmatch(r"-|.*/s", figures["out"])
