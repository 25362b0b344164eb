"""The console with the keyboard, for screen readers, and in the dark."""

import re

from playwright.sync_api import Browser, Page, expect

from tests.web_console.browser.conftest import shoot
from tests.web_console.processes import ConsoleProcess


def test_the_keyboard_reaches_the_content_and_every_field(visitor: Page, console: ConsoleProcess) -> None:
    visitor.goto(f"{console.address}/logs")
    visitor.keyboard.press("Tab")
    expect(visitor.get_by_role("link", name="Skip to the content")).to_be_focused()
    visitor.keyboard.press("Enter")
    expect(visitor.locator("#main")).to_be_focused()
    visitor.keyboard.press("Tab")
    expect(visitor.get_by_role("link", name="New log")).to_be_focused()
    visitor.keyboard.press("Tab")
    expect(visitor.get_by_label("Find a log")).to_be_focused()


def test_every_page_has_landmarks_a_heading_and_names_for_its_fields(
    visitor: Page, console: ConsoleProcess
) -> None:
    for path in (
        "logs",
        "create",
        "logs/temps",
        "logs/temps/events",
        "logs/temps/tail",
        "logs/temps/send",
        "groups",
    ):
        visitor.goto(f"{console.address}/{path}")
        expect(visitor.get_by_role("main")).to_have_count(1)
        expect(visitor.get_by_role("banner")).to_have_count(1)
        expect(visitor.get_by_role("navigation", name="Main")).to_have_count(1)
        expect(visitor.get_by_role("heading", level=1)).to_have_count(1)
        assert visitor.title() not in {"", "Console"}
        nameless = visitor.locator("input:not([type=hidden]), select, textarea").evaluate_all(
            "fields => fields.filter(field => !field.labels.length).map(field => field.outerHTML)"
        )
        assert nameless == []
        assert visitor.locator("th:not([scope])").count() == 0


def test_the_console_follows_the_dark_mode_of_the_browser(browser: Browser, console: ConsoleProcess) -> None:
    with browser.new_context(color_scheme="dark", viewport={"width": 1180, "height": 760}) as context:
        page = context.new_page()
        page.goto(console.address)
        shoot(page, "login")
        page.get_by_role("button", name="Continue without a login").click()
        page.get_by_role("link", name="temps").click()
        expect(page.locator("[data-plot] canvas")).to_be_visible()
        red, green, blue = map(
            int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))
        )
        assert red + green + blue < 150
        shoot(page, "dark")
