"""Connections are found, looked at and closed in a browser; a group shows its lag over time."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from amqp_streams.client import Event
from amqp_streams.client.blocking import Client, Producer, connect
from examples.node import NodeProcess
from tests.web_console.browser.conftest import shoot
from tests.web_console.processes import ConsoleProcess


@pytest.fixture
def meter(node: NodeProcess) -> Iterator[tuple[Client, Producer]]:
    """A client with a producer and a consumer."""
    with (
        connect(node.url, container_id="meter-7") as client,
        client.producer("temps") as producer,
        client.consumer("temps"),
    ):
        yield client, producer


def test_a_connection_is_found_and_its_figures_follow_the_node(
    visitor: Page, meter: tuple[Client, Producer]
) -> None:
    visitor.get_by_role("link", name="Connections").click()
    expect(visitor.get_by_role("heading", name="Connections")).to_be_visible()
    visitor.get_by_label("Find a connection").fill("METER")
    expect(visitor.get_by_role("status").filter(has_text="1 to 1 of 1 connections")).to_be_visible()
    row = visitor.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("meter-7")
    meter[1].send(Event(b"x"))
    # The part of the page that was just exchanged follows the node as well.
    expect(row.locator("td").nth(6)).not_to_have_text("0/s")
    shoot(visitor, "connections")
    visitor.get_by_role("link", name="Events in").click()
    expect(visitor.get_by_role("columnheader", name="Events in")).to_have_attribute("aria-sort", "descending")
    expect(visitor).to_have_url(re.compile("find=METER.*sort=events-in-per-second"))
    row.get_by_role("link").click()
    expect(visitor.get_by_role("heading", name=re.compile("Connection "))).to_be_visible()
    for _ in range(10):
        meter[1].send(Event(b"x"))
    links = visitor.get_by_role("table", name="Links of the connection")
    expect(links.get_by_role("row")).to_have_count(3)
    expect(links).to_contain_text("producer")
    expect(visitor.locator("polyline").first).to_have_attribute("points", re.compile(r"\S+ \S+ \S+"))
    shoot(visitor, "connection")


def test_a_connection_is_closed_after_a_confirmation_and_its_page_shows_the_end(
    visitor: Page, node: NodeProcess, console: ConsoleProcess, meter: tuple[Client, Producer]
) -> None:
    with connect(node.url) as other:
        (one,) = other.management.list_connections(search="meter-7")
        visitor.goto(f"{console.address}/connections/{one.name}")
        visitor.get_by_role("button", name="Close…").click()
        expect(visitor.get_by_role("alert")).to_contain_text("Close the connection of an anonymous client")
        assert [each.name for each in other.management.list_connections(search="meter-7")] == [one.name]
        watching = visitor.context.new_page()
        watching.goto(f"{console.address}/connections/{one.name}")
        expect(watching.get_by_text("nothing")).to_be_visible()
        visitor.get_by_label("Reason").fill("a test")
        visitor.get_by_role("button", name="Close the connection").click()
        expect(visitor.get_by_role("heading", name="Connections")).to_be_visible()
        expect(visitor.get_by_role("status").filter(has_text=f"{one.name} was closed")).to_be_visible()
        visitor.reload()
        expect(visitor.get_by_role("status").filter(has_text="was closed")).to_have_count(0)
        expect(watching.get_by_role("status").filter(has_text="has ended")).to_be_visible()
        # Its client has connected again, under another name.
        meter[1].send(Event(b"x"))
        assert one.name not in {each.name for each in other.management.list_connections()}
        visitor.goto(f"{console.address}/connections/{one.name}")
        expect(visitor.get_by_text(f"No connection named '{one.name}'")).to_be_visible()
        changes = other.management.describe_node(parts=["changes"]).changes
        assert (changes[0].what, changes[0].name, changes[0].details["reason"]) == (
            "DELETE",
            one.name,
            "a test",
        )


def test_the_connection_of_the_console_cannot_be_closed_in_it(visitor: Page) -> None:
    visitor.get_by_role("link", name="Connections").click()
    visitor.get_by_role("row").filter(has_text="(this console)").get_by_role("link").first.click()
    expect(visitor.get_by_text("log out to close it")).to_be_visible()
    expect(visitor.get_by_role("button", name="Close…")).to_have_count(0)


def test_a_group_shows_its_lag_since_the_page_was_opened(visitor: Page, node: NodeProcess) -> None:
    with connect(node.url) as client:
        client.management.create_log("lagging", partitions=1)
        with client.group_consumer("lagging", "slow"), client.producer("lagging") as producer:
            visitor.get_by_role("link", name="Groups and cursors").click()
            visitor.get_by_role("link", name="slow").click()
            plot = visitor.get_by_role("img", name=re.compile("Lag since the page was opened"))
            expect(plot).to_be_visible()
            for lag in (2_000, 3_500, 4_000):
                while (found := client.management.describe_group("lagging", "slow").positions[0].lag) != lag:
                    producer.post_batch([Event(b"x")] * (lag - (found or 0)))
                    producer.flush()
                expect(visitor.get_by_role("img", name=re.compile(f"now {lag:,}"))).to_be_visible()
            expect(plot.locator("polyline")).to_have_attribute("points", re.compile(r"^0\.0,\S+ \S+ \S+"))
            shoot(visitor, "lag")


def test_the_new_pages_have_landmarks_a_heading_and_names_for_their_fields(
    visitor: Page, console: ConsoleProcess
) -> None:
    for path in ("connections", "connections?find=nothing", "health"):
        visitor.goto(f"{console.address}/{path}")
        expect(visitor.get_by_role("main")).to_have_count(1)
        expect(visitor.get_by_role("heading", level=1)).to_have_count(1)
        expect(visitor.locator("nav [aria-current=page]")).to_have_count(1)
        nameless = visitor.locator("input:not([type=hidden]), select, textarea").evaluate_all(
            "fields => fields.filter(field => !field.labels.length).map(field => field.outerHTML)"
        )
        assert nameless == []
        assert visitor.locator("th:not([scope])").count() == 0
