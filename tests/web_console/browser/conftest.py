"""Real processes: a headless Chromium for all tests of this folder, and a node and a console for those of a
file.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect, sync_playwright

from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from examples.gateway import GatewayProcess
from examples.node import NodeProcess
from tests.web_console.processes import ConsoleProcess, GatewayConsoleProcess

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS_MAX: Final = 60.0
SHOTS: Final = os.environ.get("SCREENSHOTS")
"""The folder for screenshots; `make browser` sets it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time: the first one starts a browser and two processes."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.heavy)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    expect.set_options(timeout=SECONDS_MAX * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(folder / "node", log=["temps:4", "alarms:1"]) as node:
        with connect(node.url) as client, client.producer("temps") as producer:
            for number in range(40):
                producer.post(
                    Event(
                        b'{"celsius": %d}' % (20 + number % 7),
                        key=f"room-{number % 5}",
                        content_type="application/json",
                        properties={"celsius": 20 + number % 7, "site": "roof" if number % 2 else "cellar"},
                    )
                )
            producer.flush()
        yield node
        assert "Traceback" not in node.words, node.words


@pytest.fixture(scope="module")
def console(folder: Path, node: NodeProcess) -> Iterator[ConsoleProcess]:
    with ConsoleProcess(folder, node.url) as console:
        yield console


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1180, "height": 760}, locale="en-GB")
    context.set_default_timeout(SECONDS_MAX * 1000)
    yield context
    context.close()


@contextmanager
def anonymous_page(context: BrowserContext, address: str, heading: str) -> Iterator[Page]:
    """A page of a person who has continued without a login. Every script error and refused load fails."""
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console",
        lambda line: faults.append(line.text) if "Content Security Policy" in line.text else None,
    )
    page.goto(address)
    page.get_by_role("button", name="Continue without a login").click()
    expect(page.get_by_role("heading", name=heading)).to_be_visible()
    yield page
    assert not faults


@pytest.fixture
def visitor(context: BrowserContext, console: ConsoleProcess) -> Iterator[Page]:
    """A page of the console of a node."""
    with anonymous_page(context, console.address, "Logs") as page:
        yield page


def shoot(page: Page, name: str) -> None:
    """Take a screenshot for the documentation."""
    if SHOTS is not None:
        page.screenshot(path=Path(SHOTS) / f"{name}.png")


def type_before_scripts(page: Page, label: str, text: str) -> None:
    """Load the page again, and type into a field while its first script is still on the way."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/htmx.min.js", hold)
    page.reload(wait_until="commit")
    page.get_by_label(label).press_sequentially(text)
    while not held:
        page.wait_for_timeout(10)
    held[0].continue_()


@pytest.fixture(scope="module")
def gateway_console(folder: Path, gateway: GatewayProcess) -> Iterator[GatewayConsoleProcess]:
    """The console of the gateway that a module has."""
    (folder / "console-of-gateway").mkdir()
    with GatewayConsoleProcess(folder / "console-of-gateway", gateway.base_url) as console:
        yield console
