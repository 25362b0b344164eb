"""The filter tester of a log over HTTP: results, rights, mistakes, and many trials at once."""

import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.conftest import PASSWORD
from tests.web_console.http_client import Person
from tests.web_console.processes import ConsoleProcess


@pytest.fixture
def admin(person: Person) -> Person:
    assert person.log_in("admin", PASSWORD).status == 303
    return person


def tried(page: str) -> list[str]:
    """Return the results of a page of the filter tester."""
    return re.findall(r'<td class="(?:good|dim)">([^<]*)</td>', page)


@pytest.fixture(scope="module")
def measured(guarded_node: NodeProcess) -> str:
    """A log with events of three kinds."""
    name = "tried"
    with connect(guarded_node.url, user="admin", password=PASSWORD) as client:
        client.management.create_log(name, partitions=2)
        with client.producer(name) as producer:
            for properties in ({"celsius": 20}, {"celsius": 30}, {"site": "<b>roof</b>"}):
                producer.send(Event(b"<i>", properties=properties))
    return name


def test_a_filter_is_tried_with_stored_events(admin: Person, measured: str) -> None:
    answer = admin.get(f"/logs/{measured}/try?where=celsius+%3E+25&from=earliest")
    assert sorted(tried(answer.text)) == ["false", "matches", "unknown"]
    assert "1 of 3 events match" in answer.text
    assert "<i>" not in answer.text
    assert "3 of 3 events match" in admin.get(f"/logs/{measured}/try?where=1%3D1").text
    # A condition that would be another one in parentheses, and one that is too deep for the negation.
    assert admin.get(f"/logs/{measured}/try?where=1%3D1)+OR+(1%3D1").status == 400
    deep = quote("(" * 32 + "celsius > 25" + ")" * 32)
    found = tried(admin.get(f"/logs/{measured}/try?where={deep}").text)
    assert sorted(found) == ["does not match", "does not match", "matches"]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("where=celsius+%3E%3E+25", 400, "Filter"),
        ("where=a%3D1&partition=9", 400, "no partition"),
        ("where=a%3D1&from=offset&at=x", 400, "is not an offset"),
        ("where=" + "a" * 4097, 400, "more than 4,096 characters"),
        ("where=a%3D1&from=offset&at=999", 200, "0 of 0 events match"),
        ("where=&count=x", 200, "Apply a filter"),
    ],
)
def test_a_trial_that_is_not_possible_is_said_in_words(
    admin: Person, measured: str, query: str, status: int, words: str
) -> None:
    answer = admin.get(f"/logs/{measured}/try?{query}")
    assert (answer.status, words in answer.text) == (status, True), answer.text
    part = admin.get(f"/logs/{measured}/try?{query}", hx_request="true", hx_target="results")
    assert part.status == 200
    assert "<html" not in part.text


def test_many_trials_of_a_costly_filter_leave_the_console_to_others(
    admin: Person, measured: str, guarded_console: ConsoleProcess
) -> None:
    """One session tries a slow filter again and again; another person sees pages meanwhile."""
    slow = quote(" OR ".join(["site LIKE '%a%b%c%d%e%'"] * 140))
    other = Person(guarded_console.address)
    assert other.log_in("reader", PASSWORD).status == 303
    with ThreadPoolExecutor(8) as many:
        asked = [many.submit(admin.get, f"/logs/{measured}/try?where={slow}&count=200") for _ in range(40)]
        assert other.get("/logs/temps/events").status == 200
        assert {each.result().status for each in asked} <= {200, 400, 429, 503}
