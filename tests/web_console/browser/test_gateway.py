"""The console of a gateway in a browser: the map, and one Trigger."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from examples.gateway import GatewayProcess, Sender
from examples.subscriber import SubscriberServer
from tests.web_console.browser.conftest import (
    SECONDS_MAX,
    anonymous_page,
    shoot,
    type_before_scripts,
)
from tests.web_console.processes import GatewayConsoleProcess

RESOURCES = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: weather, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: measured, namespace: default}}
spec:
  broker: weather
  filter: {{attributes: {{type: measured}}}}
  subscriber: {{uri: "{good}"}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: alarms, namespace: default}}
spec:
  broker: weather
  filters:
    - cesql: "celsius > 30"
  subscriber: {{uri: "{bad}"}}
  delivery:
    retry: 1
    backoffPolicy: linear
    backoffDelay: PT0.1S
    deadLetterSink: {{uri: "{good}dead"}}
---
apiVersion: messaging.knative.dev/v1
kind: InMemoryChannel
metadata: {{name: orders, namespace: default}}
---
apiVersion: messaging.knative.dev/v1
kind: Subscription
metadata:
  name: billing
  namespace: default
  annotations: {{knative-gateway/paused: "true"}}
spec:
  channel: {{apiVersion: messaging.knative.dev/v1, kind: InMemoryChannel, name: orders}}
  subscriber: {{uri: "{good}billing"}}
"""


@pytest.fixture(scope="module")
def good() -> Iterator[SubscriberServer]:
    with SubscriberServer() as server:
        yield server


@pytest.fixture(scope="module")
def bad() -> Iterator[SubscriberServer]:
    with SubscriberServer(decide=lambda _: 503) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(folder: Path, good: SubscriberServer, bad: SubscriberServer) -> Iterator[GatewayProcess]:
    with GatewayProcess(folder / "gateway") as gateway:
        gateway.apply(RESOURCES.format(good=good.url, bad=bad.url))
        sender = Sender(gateway.http, "/broker/default/weather")
        for number in range(12):
            event = {
                "type": "measured",
                "source": "/kitchen",
                "id": str(number),
                "celsius": str(25 + number % 8),
            }
            assert sender.send(event, b'{"celsius": %d}' % (25 + number % 8)) == 202
        sender.close()
        yield gateway
        assert "Traceback" not in gateway.words, gateway.words


@pytest.fixture
def operator(context: BrowserContext, gateway_console: GatewayConsoleProcess) -> Iterator[Page]:
    """A page of the console of a gateway."""
    with anonymous_page(context, gateway_console.address, "Brokers and Channels") as page:
        yield page


def test_the_map_shows_where_events_go_and_what_failed(operator: Page, bad: SubscriberServer) -> None:
    alarms = operator.locator("tr", has=operator.get_by_role("rowheader", name="alarms"))
    measured = operator.locator("tr", has=operator.get_by_role("rowheader", name="measured"))
    expect(alarms).to_contain_text(bad.url)
    # The page is not loaded again: the gateway counts, and the stream brings the figures.
    # The page rests a hundred times as long as a reading takes, which is long on a busy machine.
    expect(measured.locator("[data-figure=delivered]")).to_have_text("12", timeout=200_000)
    expect(alarms.locator("[data-figure=dead]")).to_have_text("2")
    expect(alarms.locator("[data-figure=failed]")).to_have_text("4")
    expect(operator.locator("tr", has_text="billing").locator("[data-figure=state]")).to_have_text("paused")
    shoot(operator, "map")


def test_the_map_is_searched_while_a_name_is_typed(operator: Page) -> None:
    operator.get_by_label("Find a name or URL").press_sequentially("bill")
    expect(operator.get_by_role("rowheader", name="alarms")).to_have_count(0)
    expect(operator.get_by_role("rowheader", name="billing")).to_be_visible()
    operator.get_by_label("Find a name or URL").fill("")
    operator.get_by_label("Show").select_option("paused")
    expect(operator.get_by_role("rowheader", name="alarms")).to_have_count(0)
    expect(operator.get_by_role("rowheader", name="billing")).to_be_visible()


def test_a_name_that_is_typed_before_the_scripts_run_is_searched(operator: Page) -> None:
    type_before_scripts(operator, "Find a name or URL", "bill")
    expect(operator.get_by_role("rowheader", name="alarms")).to_have_count(0)
    expect(operator.get_by_role("rowheader", name="billing")).to_be_visible()


def test_the_failures_of_a_trigger_are_shown_as_text_and_delivered_again(
    operator: Page, gateway: GatewayProcess, bad: SubscriberServer
) -> None:
    hostile = "<script>document.title = 'run'</script>"
    sender = Sender(gateway.http, "/broker/default/weather")
    event = {"type": "odd", "source": "/cellar", "id": quote(hostile), "celsius": "99"}
    assert sender.send(event, b"{}") == 202
    sender.close()
    operator.get_by_role("link", name="alarms").click()
    expect(operator.get_by_role("heading", name="Trigger alarms")).to_be_visible()
    row = operator.locator("tr", has_text="document.title")
    expect(row.first).to_contain_text("503")
    assert operator.title() != "run"
    operator.get_by_role("heading", name="Replay").scroll_into_view_if_needed()
    shoot(operator, "trigger")
    before = len(bad.requests)
    operator.get_by_role("button", name="Redrive all").click()
    expect(operator.get_by_role("status").filter(has_text="delivered again")).to_be_visible()
    assert bad.wait(lambda server: len(server.requests) > before, SECONDS_MAX)


def test_selected_failures_are_delivered_again_and_the_selection_outlives_an_update(
    operator: Page, gateway: GatewayProcess, bad: SubscriberServer
) -> None:
    operator.get_by_role("link", name="alarms").click()
    operator.get_by_role("button", name="Redrive selected").click()
    expect(operator.get_by_role("alert")).to_contain_text("select at least one event")
    box = operator.get_by_role("checkbox").first
    box.check()
    chosen = box.get_attribute("id")
    assert chosen is not None
    # The page is not loaded again: the stream brings the failure of this event, with its lag.
    sender = Sender(gateway.http, "/broker/default/weather")
    assert sender.send({"type": "odd", "source": "/s", "id": "newest", "celsius": "50"}, b"{}") == 202
    sender.close()
    expect(operator.get_by_role("cell", name="/s newest").first).to_be_visible()
    expect(operator.locator(f"[id='{chosen}']")).to_be_checked()
    expect(operator.get_by_role("table", name="The last completed event").locator("tbody tr")).to_have_count(
        4
    )
    before = len(bad.requests)
    operator.get_by_role("button", name="Redrive selected").click()
    expect(operator.get_by_role("status").filter(has_text="1 event is delivered again")).to_be_visible()
    assert bad.wait(lambda server: len(server.requests) > before, SECONDS_MAX)
    expect(operator.get_by_role("status").filter(has_text="(1 event) has ended")).to_be_visible()


def test_a_replay_asks_for_the_name_and_delivers_again(operator: Page, good: SubscriberServer) -> None:
    operator.get_by_role("link", name="measured").click()
    operator.get_by_label("Begin").select_option("earliest")
    operator.get_by_role("button", name="Replay").click()
    expect(operator.get_by_role("alert")).to_contain_text("type the name to confirm")
    before = len(good.requests)
    operator.get_by_label("to confirm").fill("measured")
    operator.get_by_role("button", name="Replay").click()
    expect(operator.get_by_role("status").filter(has_text="delivered again")).to_be_visible()
    assert good.wait(lambda server: len(server.requests) >= before + 12, SECONDS_MAX)
    operator.get_by_role("button", name="Pause").click()
    expect(operator.get_by_role("button", name="Resume")).to_be_visible()
    operator.get_by_role("button", name="Resume").click()
    expect(operator.get_by_role("button", name="Pause")).to_be_visible()


def test_filters_of_a_trigger_are_tried_with_stored_events(operator: Page) -> None:
    operator.get_by_role("link", name="alarms").click()
    operator.get_by_role("link", name="Try filters").click()
    filters = operator.get_by_label("A CESQL expression")
    expect(filters).to_have_value("celsius > 30")
    filters.fill("celsius >> 30")
    operator.get_by_role("button", name="Try").click()
    expect(operator.get_by_role("alert").locator("pre")).to_have_text(re.compile(r"celsius >> 30\n {9}\^"))
    filters.fill("type = 'measured' AND celsius > 28")
    operator.get_by_role("button", name="Try").click()
    expect(operator.get_by_role("status").filter(has_text="events match")).to_be_visible()
    expect(operator.get_by_role("cell", name="matches", exact=True).first).to_be_visible()
    expect(operator.get_by_role("cell", name="filters[0].cesql is false").first).to_be_visible()
    shoot(operator, "trial")
    filters.fill('[{"exact": {"type": "odd"}}]')
    operator.get_by_role("button", name="Try").click()
    # The id of this event is HTML. It is text here, too.
    odd = operator.locator("tr", has=operator.get_by_role("cell", name="matches", exact=True))
    expect(odd.filter(has_text="/cellar")).to_contain_text("<script>document.title")
    assert operator.title() != "run"


def test_pages_of_the_gateway_have_landmarks_and_names_for_their_fields(
    operator: Page, gateway_console: GatewayConsoleProcess
) -> None:
    for path in (
        "map",
        "map/trigger/default/alarms",
        "map/trigger/default/alarms/filters",
        "map/subscription/default/billing",
    ):
        operator.goto(f"{gateway_console.address}/{path}")
        expect(operator.get_by_role("main")).to_have_count(1)
        expect(operator.get_by_role("navigation", name="Main")).to_have_count(1)
        expect(operator.get_by_role("heading", level=1)).to_have_count(1)
        nameless = operator.locator("input:not([type=hidden]), select, textarea").evaluate_all(
            "fields => fields.filter(field => !field.labels.length).map(field => field.outerHTML)"
        )
        assert nameless == []
        assert operator.locator("th:not([scope])").count() == 0
