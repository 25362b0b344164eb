"""The health of a gateway in a browser: state, warnings, figures, changes and settings."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from examples.gateway import GatewayProcess
from tests.web_console.browser.conftest import anonymous_page, shoot
from tests.web_console.processes import GatewayConsoleProcess

BROKER = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {name: weather, namespace: default}
"""


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[GatewayProcess]:
    """A gateway with a setting that people should know of."""
    config = folder / "gateway.toml"
    config.write_text("[subscribers]\nverify = false\n")
    with GatewayProcess(folder / "gateway", "--config", str(config)) as gateway:
        yield gateway
        assert "Traceback" not in gateway.words, gateway.words


@pytest.fixture
def page(context: BrowserContext, gateway_console: GatewayConsoleProcess) -> Iterator[Page]:
    with anonymous_page(context, gateway_console.address, "Brokers and Channels") as page:
        page.get_by_role("link", name="Health").click()
        expect(page.get_by_role("heading", name="Health of the gateway")).to_be_visible()
        yield page


def test_state_warnings_and_changes_follow_the_gateway(page: Page, gateway: GatewayProcess) -> None:
    expect(page.get_by_text("ready", exact=True).first).to_be_visible()
    expect(page.locator(".warning")).to_contain_text("Certificates of subscribers are not checked")
    expect(page.locator(".warning")).to_contain_text("Remedy: set subscribers.ca")
    expect(page.get_by_text("No user has changed anything")).to_be_visible()
    # The page is not loaded again: the stream brings the change.
    gateway.apply(BROKER)
    expect(page.get_by_role("cell", name="APPLY Broker default/weather")).to_be_visible()
    memory = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="Memory of all"))
    expect(memory.locator("polyline")).to_have_attribute("points", re.compile(r" "))
    shoot(page, "gateway-health")


def test_settings_show_where_they_come_from(page: Page) -> None:
    page.locator("#settings-details summary").press("Enter")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="subscribers.verify"))
    expect(row).to_contain_text("false")
    expect(row).to_contain_text("gateway.toml")
    expect(page.get_by_role("row").filter(has_text="limits.batch_events")).to_contain_text("default")
