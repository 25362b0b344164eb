"""One log, its events and one event, in a browser."""

import re

from playwright.sync_api import Page, expect

from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.browser.conftest import shoot
from tests.web_console.processes import ConsoleProcess

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title="owned"</script>'


def test_a_log_shows_its_partitions_with_live_figures(visitor: Page, node: NodeProcess) -> None:
    visitor.get_by_role("link", name="temps").click()
    expect(visitor.get_by_role("heading", name="temps")).to_be_visible()
    expect(visitor.locator("dd[data-figure=events]")).to_have_text("40")
    before = visitor.locator("tr[data-row='0'] [data-figure=end]").inner_text()
    with connect(node.url) as client, client.producer("temps", partition="0") as producer:
        producer.send(Event(b"x"))
    expect(visitor.locator("tr[data-row='0'] [data-figure=end]")).to_have_text(str(int(before) + 1))
    expect(visitor.locator("[data-plot] canvas")).to_be_visible()
    shoot(visitor, "log")


def test_events_are_browsed_with_a_filter_that_is_checked_as_it_is_typed(
    visitor: Page, console: ConsoleProcess
) -> None:
    visitor.goto(f"{console.address}/logs/temps/events?count=10")
    expect(visitor.locator("tbody tr")).to_have_count(10)
    visitor.get_by_label("Filter (SQL)").press_sequentially("celsius >> 25")
    checked = visitor.locator("#checked")
    expect(checked.locator("pre")).to_contain_text("celsius >> 25")
    expect(checked.locator("pre")).to_contain_text(re.compile(r"\n {9}\^"))
    shoot(visitor, "filter")
    visitor.get_by_label("Filter (SQL)").fill("celsius > 25 AND site = 'roof'")
    expect(checked).to_have_text("The filter is valid.")
    visitor.get_by_label("From").select_option("earliest")
    visitor.get_by_role("button", name="Show").click()
    expect(visitor.locator(".summary")).to_contain_text("events match, of")
    expect(visitor).to_have_url(re.compile("where=celsius"))
    assert all('"celsius": 26' in text for text in visitor.locator("td.body").all_inner_texts())
    shoot(visitor, "events")


def test_a_filter_is_tried_with_stored_events(visitor: Page, console: ConsoleProcess) -> None:
    visitor.goto(f"{console.address}/logs/temps")
    visitor.get_by_role("link", name="Try a filter").click()
    visitor.get_by_label("Filter (SQL)").press_sequentially("celsius >> 25")
    expect(visitor.locator("#checked pre")).to_contain_text(re.compile(r"\n {9}\^"))
    visitor.get_by_label("Filter (SQL)").fill("celsius > 25 AND site = 'roof'")
    visitor.get_by_role("button", name="Try").click()
    expect(visitor.locator(".summary")).to_contain_text(re.compile(r"[1-9]\d* of \d+ events match"))
    matching = visitor.locator("tr", has=visitor.get_by_role("cell", name="matches", exact=True))
    assert all('"celsius": 26' in text for text in matching.locator("td.body").all_inner_texts())
    expect(visitor.get_by_role("cell", name="false", exact=True).first).to_be_visible()
    expect(visitor).to_have_url(re.compile("/try\\?.*where=celsius"))
    # The node has checked the new filter as well: the former error is gone.
    expect(visitor.locator("#checked")).to_have_text("The filter is valid.")
    shoot(visitor, "try")


def test_pages_of_events_lead_back_and_on(visitor: Page, console: ConsoleProcess) -> None:
    visitor.goto(f"{console.address}/logs/temps/events?count=10&from=latest")
    newest = visitor.locator("tbody th").all_inner_texts()
    visitor.get_by_role("link", name="Older").click()
    expect(visitor.locator("tbody th").first).not_to_have_text(newest[0])
    older = visitor.locator("tbody th").all_inner_texts()
    assert len(older) == 10
    assert not set(older) & set(newest)
    visitor.get_by_role("link", name="Newer").click()
    expect(visitor.locator("tbody th").first).to_have_text(newest[0])


def test_an_event_shows_all_its_sections_and_how_to_read_it(visitor: Page, console: ConsoleProcess) -> None:
    visitor.goto(f"{console.address}/logs/temps/events?from=earliest&count=1")
    visitor.locator("tbody th a").click()
    expect(visitor.get_by_role("heading", name=re.compile("Event ."))).to_be_visible()
    expect(visitor.locator(".tree").first).to_contain_text("celsius")
    expect(visitor.get_by_role("heading", name="application-properties")).to_be_visible()
    expect(visitor.locator("#command")).to_contain_text("amqp-streams receive temps")
    visitor.get_by_role("button", name="Copy the command").click()
    expect(visitor.locator("#notice")).to_contain_text(re.compile("Copied|selected"))
    with visitor.expect_download() as download:
        visitor.get_by_role("link", name="download").last.click()
    assert download.value.path().read_bytes().startswith(b'{"celsius"')
    shoot(visitor, "event")
    # "{" is the length -62: the bodies of this log are not Avro.
    visitor.get_by_text("Decode the bodies of this log").click()
    visitor.get_by_label("Avro schema as JSON").fill('"string"')
    visitor.get_by_role("button", name="Decode").click()
    expect(visitor.get_by_role("alert")).to_contain_text("the length -62 is negative (at byte 1)")
    # The first bytes as they are: a schema for any body of this size.
    visitor.get_by_label("Avro schema as JSON").fill('{"type": "fixed", "name": "Raw", "size": 15}')
    visitor.get_by_role("button", name="Decode").click()
    expect(visitor.locator("[aria-labelledby=avro]")).to_contain_text("7b 22 63")
    shoot(visitor, "avro")


def test_hostile_contents_of_an_event_are_text(
    visitor: Page, node: NodeProcess, console: ConsoleProcess
) -> None:
    with connect(node.url) as client:
        client.management.create_log("hostile")
        with client.producer("hostile") as producer:
            producer.send(
                Event(
                    HOSTILE.encode(),
                    key=HOSTILE,
                    subject=HOSTILE,
                    content_type="text/html",
                    properties={HOSTILE: HOSTILE, "cloudEvents:" + HOSTILE: HOSTILE},
                )
            )
            producer.send(Event(b'{"</pre><script>alert(1)</script>": [1]}', content_type="application/json"))
    for path in ("events", "events/0/0", "events/0/1", "events?where=" + HOSTILE, "tail?where=" + HOSTILE):
        visitor.goto(f"{console.address}/logs/hostile/{path}")
        expect(visitor.get_by_role("heading", name="hostile")).to_be_visible()
        assert visitor.title() == "hostile - Console"
        assert visitor.locator("main img, main script").count() == 0
    answer = visitor.context.request.get(f"{console.address}/logs/hostile/events/0/0/body")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


def test_the_tail_shows_new_events_and_an_event_can_be_sent(visitor: Page, console: ConsoleProcess) -> None:
    visitor.goto(f"{console.address}/logs/alarms/tail")
    expect(visitor.locator("[data-tail-state]")).to_have_text("Waiting for new events")
    sending = visitor.context.new_page()
    sending.goto(f"{console.address}/logs/alarms/send")
    sending.get_by_label("Content type").fill("application/json")
    sending.get_by_label("Body").fill('{"open": "door"')
    sending.get_by_role("button", name="Send").click()
    expect(sending.get_by_role("alert")).to_contain_text("not valid JSON")
    sending.get_by_label("Body").fill('{"open": "door"}')
    sending.get_by_label("Application properties").fill("floor=3")
    sending.get_by_role("button", name="Send").click()
    expect(sending.get_by_role("status").filter(has_text="has stored the event")).to_be_visible()
    shoot(sending, "send")
    sending.close()
    expect(visitor.locator("tbody tr").first).to_contain_text('{"open": "door"}')
    shoot(visitor, "tail")
