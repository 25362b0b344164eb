"""Logs are created, changed and deleted, and cursors moved, in a browser."""

from playwright.sync_api import Page, expect

from amqp_streams.client import Event
from amqp_streams.client.blocking import connect
from examples.node import NodeProcess
from tests.web_console.browser.conftest import shoot
from tests.web_console.processes import ConsoleProcess


def test_a_log_is_created_changed_and_deleted(visitor: Page, console: ConsoleProcess) -> None:
    visitor.get_by_role("link", name="New log").click()
    visitor.get_by_label("Name").fill("orders")
    visitor.get_by_label("Partitions").fill("0")
    visitor.get_by_role("button", name="Create").click()
    expect(visitor.get_by_role("alert")).to_contain_text("must be from 1 to 1024")
    shoot(visitor, "create")
    visitor.get_by_label("Partitions").fill("3")
    visitor.get_by_label("Retention as a time").fill("7d")
    visitor.get_by_role("button", name="Create").click()
    expect(visitor.get_by_role("heading", name="orders")).to_be_visible()
    expect(visitor.locator("tbody tr")).to_have_count(3)
    visitor.get_by_role("link", name="Settings").click()
    expect(visitor.get_by_label("Retention as a time")).to_have_value("7d")
    visitor.get_by_label("Retention as a time").fill("")
    visitor.get_by_label("Retention in bytes").fill("1GiB")
    expect(visitor.get_by_label("Compression")).to_have_value("none")
    visitor.get_by_label("Compression").select_option("zstd")
    visitor.get_by_role("button", name="Change").click()
    expect(visitor.get_by_role("status").filter(has_text="changed")).to_be_visible()
    expect(visitor.get_by_label("Retention as a time")).to_have_value("")
    expect(visitor.get_by_label("Retention in bytes")).to_have_value("1GiB")
    expect(visitor.get_by_label("Compression")).to_have_value("zstd")
    visitor.get_by_role("button", name="Delete the log").click()
    expect(visitor.get_by_role("alert")).to_contain_text("Nothing was deleted")
    shoot(visitor, "settings")
    visitor.get_by_label("to confirm").fill("orders")
    visitor.get_by_role("button", name="Delete the log").click()
    expect(visitor.get_by_role("heading", name="Logs")).to_be_visible()
    expect(visitor.get_by_role("link", name="orders")).to_have_count(0)


def test_two_people_change_different_settings(
    visitor: Page, console: ConsoleProcess, node: NodeProcess
) -> None:
    with connect(node.url) as client:
        client.management.create_log("shared", partitions=1)
    other = visitor.context.new_page()
    for page in (visitor, other):
        page.goto(f"{console.address}/logs/shared/settings")
    visitor.get_by_label("Retention as a time").fill("3d")
    visitor.get_by_role("button", name="Change").click()
    expect(visitor.get_by_role("status").filter(has_text="changed")).to_be_visible()
    other.get_by_label("Retention in bytes").fill("nonsense")
    other.get_by_role("button", name="Change").click()
    expect(other.get_by_role("alert")).to_contain_text("is not a valid size")
    other.get_by_label("Retention in bytes").fill("1GiB")
    other.get_by_role("button", name="Change").click()
    expect(other.get_by_role("status").filter(has_text="changed")).to_be_visible()
    expect(other.get_by_label("Retention as a time")).to_have_value("3d")
    expect(other.get_by_label("Retention in bytes")).to_have_value("1GiB")
    other.get_by_role("button", name="Change").click()
    expect(other.get_by_role("status").filter(has_text="You changed no setting")).to_be_visible()
    other.get_by_label("Retention as a time").fill("")
    other.get_by_role("button", name="Change").click()
    expect(other.get_by_role("status").filter(has_text="The settings are changed")).to_be_visible()
    with connect(node.url) as client:
        details = client.management.describe_log("shared").details
    assert (details.get("retention-ms"), details["retention-bytes"]) == (None, 1 << 30)


def test_a_group_shows_its_lag_and_moves_after_a_preview(
    visitor: Page, node: NodeProcess, console: ConsoleProcess
) -> None:
    with connect(node.url) as client:
        client.management.create_log("jobs", partitions=1)
        with client.producer("jobs") as producer:
            for _ in range(10):
                producer.send(Event(b"x"))
        with client.group_consumer("jobs", "workers") as member:
            assert len(member.receive(10, timeout=60)) >= 1
            visitor.get_by_role("link", name="Groups and cursors").click()
            visitor.get_by_role("link", name="workers").click()
            expect(visitor.get_by_role("heading", name="workers")).to_be_visible()
            visitor.get_by_label("Continue").select_option("earliest")
            visitor.get_by_role("button", name="Preview").click()
            visitor.get_by_role("button", name="Move", exact=True).click()
            expect(visitor.get_by_role("alert")).to_be_visible()
        client.management.reset_group("jobs", "workers", "latest")
        expect(visitor.locator("tbody[data-html] td").nth(0)).to_have_text("10")
        expect(visitor.locator("tbody[data-html] td").nth(1)).to_have_text("0")
        visitor.get_by_label("Continue").select_option("offset")
        visitor.get_by_label("Offset or time").fill("4")
        visitor.get_by_role("button", name="Preview").click()
        preview = visitor.get_by_role("table", name="What the move does").get_by_role("row").last
        expect(preview.locator("th, td")).to_have_text(["0", "10", "4", "0", "6"])
        shoot(visitor, "group")
        visitor.get_by_role("button", name="Move", exact=True).click()
        expect(visitor.get_by_role("status").filter(has_text="is moved")).to_be_visible()
        assert client.management.describe_group("jobs", "workers").positions[0].next_number == 4
        visitor.get_by_label("to remove its position").fill("workers")
        visitor.get_by_role("button", name="Remove", exact=True).click()
        expect(visitor.get_by_role("heading", name="Groups and cursors")).to_be_visible()
        assert client.management.list_groups("jobs") == []
