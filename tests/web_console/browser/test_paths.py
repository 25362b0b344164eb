"""The path of an event in a browser: from the map to the event, to its dead letter, and back."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from examples.gateway import GatewayProcess, Sender
from examples.subscriber import SubscriberServer
from tests.weather import RESOURCES
from tests.web_console.browser.conftest import anonymous_page, shoot
from tests.web_console.processes import GatewayConsoleProcess

EVENT = '{"specversion": "1.0", "id": "1", "source": "/kitchen", "type": "measured", "celsius": 40}'


SLOW = """
apiVersion: eventing.knative.dev/v1
kind: Broker
metadata: {{name: slow, namespace: default}}
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata:
  name: slow
  namespace: default
  annotations: {{knative-gateway/in-flight-max: "1"}}
spec:
  broker: slow
  subscriber: {{uri: "{slow}"}}
"""


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[GatewayProcess]:
    with (
        SubscriberServer() as good,
        SubscriberServer(decide=lambda _: 503) as bad,
        GatewayProcess(folder / "gateway") as gateway,
    ):
        gateway.apply(RESOURCES.format(good=good.url, bad=bad.url, dead="lost"))
        sender = Sender(gateway.http, "/broker/default/weather")
        for number in range(24):
            celsius = str(25 + number % 8)
            event = {"type": "measured", "source": "/kitchen", "id": f"k-{number}", "celsius": celsius}
            assert sender.send(event, b'{"celsius": %s}' % celsius.encode()) == 202
        sender.close()
        assert good.wait(lambda server: len(server.requests) >= 24)
        assert bad.wait(lambda server: len(server.requests) >= 12)
        yield gateway
        assert "Traceback" not in gateway.words, gateway.words


@pytest.fixture
def operator(context: BrowserContext, gateway_console: GatewayConsoleProcess) -> Iterator[Page]:
    with anonymous_page(context, gateway_console.address, "Brokers and Channels") as page:
        yield page


def test_an_event_leads_to_its_dead_letter_and_back(operator: Page) -> None:
    operator.get_by_role("link", name="weather").click()
    expect(operator.get_by_role("heading", name="Broker weather")).to_be_visible()
    expect(operator.locator("tbody tr")).to_have_count(20)
    shoot(operator, "source")
    operator.get_by_role("link", name="Older").click()
    expect(operator.locator("tbody tr")).to_have_count(4)
    operator.get_by_label("Id of an event").fill("k-7")
    operator.get_by_role("button", name="Show").click()
    expect(operator.get_by_role("status").filter(has_text="1 event found")).to_be_visible()
    operator.get_by_role("rowheader").get_by_role("link").click()
    alarms = operator.locator("tr", has=operator.get_by_role("rowheader", name="alarms"))
    expect(alarms).to_contain_text("dead-lettered")
    expect(alarms).to_contain_text("attempt 2, status 503")
    expect(operator.locator("tr", has_text="measured").last).to_contain_text("delivered")
    expect(operator.locator("#curl")).to_contain_text("-H 'ce-id: k-7'")
    expect(operator.locator("#curl")).to_contain_text("/broker/default/weather")
    shoot(operator, "path")
    alarms.get_by_role("link", name="Broker lost").click()
    expect(operator.get_by_role("definition").filter(has_text="k-7").first).to_be_visible()
    expect(operator.get_by_text("knativeerrorcode", exact=True)).to_be_visible()
    operator.get_by_role("link", name="Find the original in Broker weather").click()
    expect(operator.get_by_role("status").filter(has_text="1 event found")).to_be_visible()


def test_a_failure_of_a_trigger_leads_to_the_path_of_its_event(operator: Page) -> None:
    operator.get_by_role("link", name="alarms").click()
    failures = operator.get_by_role("table", name="The latest failed attempts")
    failures.locator("tbody tr").first.get_by_role("link").click()
    expect(operator.get_by_role("heading", level=1)).to_contain_text("Event")
    alarms = operator.locator("tr", has=operator.get_by_role("rowheader", name="alarms"))
    expect(alarms).to_contain_text("dead-lettered")


def test_an_event_that_is_pasted_shows_who_would_get_it(operator: Page) -> None:
    operator.get_by_role("link", name="weather").click()
    operator.get_by_role("link", name="Try an event").click()
    field = operator.get_by_label("A CloudEvent as JSON")
    field.fill(EVENT)
    operator.get_by_role("button", name="Try").click()
    expect(operator.get_by_role("status").filter(has_text="2 of 2 get this event")).to_be_visible()
    field.fill(EVENT.replace("40", "20"))
    operator.get_by_role("button", name="Try").click()
    expect(operator.get_by_role("status").filter(has_text="1 of 2 get this event")).to_be_visible()
    expect(operator.get_by_role("cell", name="filters[0].cesql is false")).to_be_visible()
    shoot(operator, "given")
    field.fill("{")
    operator.get_by_role("button", name="Try").click()
    expect(operator.get_by_role("alert")).to_contain_text("not valid JSON")


def test_the_pages_have_landmarks_and_names_for_their_fields(
    operator: Page, gateway_console: GatewayConsoleProcess
) -> None:
    for path in ("", "/given", "/event?at=0:0"):
        operator.goto(f"{gateway_console.address}/sources/broker/default/weather{path}")
        expect(operator.get_by_role("main")).to_have_count(1)
        expect(operator.get_by_role("heading", level=1)).to_have_count(1)
        nameless = operator.locator("input:not([type=hidden]), select, textarea").evaluate_all(
            "fields => fields.filter(field => !field.labels.length).map(field => field.outerHTML)"
        )
        assert nameless == []
        assert operator.locator("th:not([scope])").count() == 0


def test_a_redrive_shows_its_progress_and_is_cancelled(operator: Page, gateway: GatewayProcess) -> None:
    answers = threading.Event()
    refused: list[object] = []

    def decide(request: object) -> int:
        # Each event is refused once, and then gets no answer until the end of the test.
        if len(refused) < 6:
            refused.append(request)
            return 400
        answers.wait(120)
        return 202

    with SubscriberServer(decide=decide) as slow:
        try:
            gateway.apply(SLOW.format(slow=slow.url))
            sender = Sender(gateway.http, "/broker/default/slow")
            for number in range(6):
                event = {"type": "t", "source": "/s", "id": str(number)}
                assert sender.send(event, b"{}") == 202
            sender.close()
            assert slow.wait(lambda server: len(server.requests) >= 6)
            operator.goto(operator.url.replace("/map", "/map/trigger/default/slow"))
            expect(operator.get_by_role("cell", name="dropped")).to_have_count(6)
            operator.get_by_role("button", name="Redrive all").click()
            expect(operator.get_by_text("0 of 6 events of the redrive have ended")).to_be_visible()
            operator.get_by_role("button", name="Cancel the redrive").click()
            expect(
                operator.get_by_role("status").filter(has_text="5 events are not delivered again")
            ).to_be_visible()
            expect(operator.get_by_text("5 of 6 events of the redrive have ended")).to_be_visible()
        finally:
            answers.set()
        expect(operator.get_by_role("button", name="Cancel the redrive")).to_have_count(0)
