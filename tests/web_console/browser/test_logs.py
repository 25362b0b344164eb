"""The list of logs, in a browser."""

import re

from playwright.sync_api import Page, expect

from amqp_streams.client import EARLIEST, Event
from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.browser.conftest import shoot, type_before_scripts


def test_the_list_shows_the_logs_with_figures_that_follow_the_node(visitor: Page, node: NodeProcess) -> None:
    row = visitor.get_by_role("row").filter(has=visitor.get_by_role("link", name="temps"))
    expect(row.locator("[data-figure=events]")).to_have_text("40")
    expect(row.locator("[data-figure=consumers]")).to_have_text("0")
    expect(row.locator("[data-figure=groups]")).to_have_text("0")
    with connect(node.url) as client, client.producer("alarms") as producer:
        producer.send(Event(b"fire"))
    other = visitor.get_by_role("row").filter(has=visitor.get_by_role("link", name="alarms"))
    expect(other.locator("[data-figure=events]")).to_have_text("1")
    expect(other.locator("[data-figure=rate]")).to_have_text(re.compile(r"/s"))
    expect(other.locator("polyline")).to_have_attribute("points", re.compile(r"\d"))
    with connect(node.url) as client, client.group_consumer("temps", "heating", start=EARLIEST) as consumer:
        next(iter(consumer))
        expect(row.locator("[data-figure=consumers]")).to_have_text("4")
        expect(row.locator("[data-figure=groups]")).to_have_text("1")
        expect(row.locator("[data-figure=out]")).to_have_text(re.compile(r"[1-9].*/s"))
        shoot(visitor, "logs")
    expect(row.locator("[data-figure=consumers]")).to_have_text("0")
    expect(row.locator("[data-figure=groups]")).to_have_text("1")


def test_a_search_shows_the_logs_with_a_text_in_their_name_as_it_is_typed(visitor: Page) -> None:
    visitor.get_by_label("Find a log").fill("ala")
    expect(visitor.get_by_role("link", name="temps")).to_have_count(0)
    expect(visitor.get_by_role("link", name="alarms")).to_be_visible()
    expect(visitor).to_have_url(re.compile(r"find=ala"))


def test_a_search_that_is_typed_before_the_scripts_run_counts(visitor: Page) -> None:
    type_before_scripts(visitor, "Find a log", "ala")
    expect(visitor.get_by_role("link", name="temps")).to_have_count(0)
    expect(visitor.get_by_role("link", name="alarms")).to_be_visible()
