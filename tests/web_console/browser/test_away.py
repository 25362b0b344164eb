"""A node that goes away and comes back, in a browser."""

import os
import signal
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.browser.conftest import anonymous_page
from tests.web_console.processes import ConsoleProcess


def test_an_open_page_says_that_the_node_is_away_and_continues_when_it_is_back(
    visitor: Page, node: NodeProcess
) -> None:
    expect(visitor.locator("[data-figure=rate]").first).to_have_text("0/s")
    node.stop()
    expect(visitor.get_by_role("status").filter(has_text="does not answer")).to_be_visible()
    visitor.reload()
    expect(visitor.get_by_role("alert")).to_contain_text("does not answer")
    node.start()
    expect(visitor.get_by_role("link", name="temps")).to_be_visible()
    expect(visitor.locator("[data-figure=rate]").first).to_have_text("0/s")


@pytest.mark.parametrize("path", ["/logs", "/logs/temps", "/logs/temps/tail", "/connections", "/health"])
def test_an_open_page_says_that_the_console_is_gone_and_leads_to_the_login_when_it_is_back(
    context: BrowserContext, node: NodeProcess, tmp_path: Path, path: str
) -> None:
    with (
        ConsoleProcess(tmp_path, node.url) as console,
        anonymous_page(context, console.address, "Logs") as page,
    ):
        page.goto(console.address + path)
        expect(page.get_by_role("status").filter(has_text="does not answer")).to_have_count(0)
        os.kill(console.pid, signal.SIGKILL)
        expect(page.get_by_role("status").filter(has_text="The console does not answer")).to_be_visible()
        with ConsoleProcess(tmp_path, node.url, listen=console.address.removeprefix("http://")):
            expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            expect(page.get_by_role("status").filter(has_text="The session has ended")).to_be_visible()


def test_an_open_page_says_that_its_log_was_deleted(
    visitor: Page, console: ConsoleProcess, node: NodeProcess
) -> None:
    with connect(node.url) as client:
        client.management.create_log("short-lived", partitions=1)
        visitor.goto(f"{console.address}/logs/short-lived")
        expect(visitor.get_by_role("heading", name="short-lived")).to_be_visible()
        client.management.delete_log("short-lived")
    expect(visitor.get_by_role("alert")).to_contain_text("short-lived")
