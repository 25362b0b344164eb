"""A node that goes away and comes back, in a browser."""

from playwright.sync_api import Page, expect

from examples.node import NodeProcess


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
