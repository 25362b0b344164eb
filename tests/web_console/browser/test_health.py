"""The health of a node in a browser: figures, warnings, settings and changes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.browser.conftest import anonymous_page, shoot
from tests.web_console.processes import ConsoleProcess

PARTITIONS_MAX = 10


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[NodeProcess]:
    """A node that has nearly reached one of its limits."""
    config = folder / "node.toml"
    config.write_text(f"[limits]\npartitions = {PARTITIONS_MAX}\n")
    with NodeProcess(folder / "node", "--config", str(config), log=["temps:8"]) as node:
        yield node
        assert "Traceback" not in node.words, node.words


@pytest.fixture
def page(context: BrowserContext, console: ConsoleProcess) -> Iterator[Page]:
    with anonymous_page(context, console.address, "Logs") as page:
        page.get_by_role("link", name="Health").click()
        expect(page.get_by_role("heading", name="Health of the node")).to_be_visible()
        yield page


def test_figures_warnings_and_changes_follow_the_node(page: Page, node: NodeProcess) -> None:
    expect(page.get_by_text("ready", exact=True)).to_be_visible()
    partitions = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Partitions"))
    expect(partitions.locator("td").nth(0)).to_have_text("8")
    expect(page.locator(".warning")).to_contain_text("partitions: 8 of 10 are in use.")
    expect(page.locator(".warning")).to_contain_text("Remedy: delete logs, or raise limits.partitions")
    with connect(node.url) as client:
        client.management.create_log("orders", partitions=2)
        expect(partitions.locator("td").nth(0)).to_have_text("10")
        expect(page.locator(".problem")).to_contain_text("Error: partitions: 10 of 10")
        expect(page.get_by_role("cell", name="CREATE event-log orders")).to_be_visible()
        client.management.delete_log("orders")
        client.management.delete_log("temps")
    expect(page.get_by_text("No warning.")).to_be_visible()
    expect(partitions.locator("polyline")).to_have_attribute("points", re.compile(r"\d"))
    with connect(node.url) as client:
        client.management.create_log("temps", partitions=8)
    expect(page.locator(".warning")).to_be_visible()
    shoot(page, "health")


def test_settings_show_where_they_come_from(page: Page) -> None:
    page.locator("#settings-details summary").press("Enter")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="limits.partitions"))
    expect(row).to_contain_text(str(PARTITIONS_MAX))
    expect(row).to_contain_text("node.toml")
    expect(page.get_by_role("row").filter(has_text="limits.cursors")).to_contain_text("default")
