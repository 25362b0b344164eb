"""Login with an OpenID Connect provider in a browser: with one from PyPI, and with one that ends sessions."""

import importlib.util
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from examples.node import NodeProcess
from tests.web_console.browser.conftest import shoot
from tests.web_console.oidc.provider import CLIENT, NODE, SECRET, ProviderServer
from tests.web_console.processes import ConsoleProcess, until


@contextmanager
def served(folder: Path, issuer: str, keys: object) -> Iterator[ConsoleProcess]:
    """A node that accepts the tokens of an issuer, and a console for it."""
    folder.mkdir()
    (folder / "keys.json").write_text(json.dumps(keys))
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    (folder / "node.toml").write_text(NODE.format(issuer=issuer, client=CLIENT, keys=folder / "keys.json"))
    settings = ("--config", str(folder / "node.toml"), "--anonymous", "never")
    given = ["--oidc-issuer", issuer, "--oidc-client-id", CLIENT, "--oidc-token", "id"]
    given += ["--oidc-client-secret", str(folder / "secret")]
    with (
        NodeProcess(folder / "node", *settings, log=["temps:1"]) as node,
        ConsoleProcess(folder, node.url, *given) as console,
    ):
        yield console


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """A provider of others. It runs on another site than the console: `localhost`, not `127.0.0.1`."""
    if importlib.util.find_spec("oidc_provider_mock") is None:
        pytest.skip("needs oidc-provider-mock: pip install oidc-provider-mock")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce"]
    process = subprocess.Popen(
        [*command, "true", "--user", "alice", "--user", "mallory"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    found = f"http://localhost:{port}"

    def answers() -> bool:
        assert process.poll() is None
        try:
            with urllib.request.urlopen(f"{found}/jwks", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        until(answers, "the provider")
        yield found
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def console(folder: Path, issuer: str) -> Iterator[ConsoleProcess]:
    with urllib.request.urlopen(f"{issuer}/jwks", timeout=10) as answer:
        keys = json.load(answer)
    with served(folder / "of-others", issuer, keys) as running:
        yield running
        assert SECRET not in running.words


@pytest.fixture
def person(context: BrowserContext, console: ConsoleProcess) -> Page:
    page = context.new_page()
    page.goto(console.address)
    return page


def log_in(page: Page, user: str) -> None:
    page.get_by_role("link", name="Log in with localhost").click()
    page.get_by_role("button", name=user).first.click()


def test_a_person_logs_in_with_the_provider_and_logs_out(person: Page) -> None:
    expect(person.get_by_role("link", name="Log in with localhost")).to_be_visible()
    shoot(person, "provider")
    log_in(person, "alice")
    expect(person.get_by_role("heading", name="Logs")).to_be_visible()
    expect(person.get_by_role("link", name="temps")).to_be_visible()
    expect(person.get_by_text("alice")).to_be_visible()
    person.get_by_role("button", name="Log out").click()
    expect(person.get_by_role("status").filter(has_text="You are logged out")).to_be_visible()
    expect(person.get_by_role("link", name="Log out of localhost")).to_be_visible()
    person.go_back()
    person.reload()
    expect(person.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_person_without_rights_sees_nothing(person: Page) -> None:
    log_in(person, "mallory")
    expect(person.get_by_text("mallory")).to_be_visible()
    expect(person.get_by_role("link", name="temps")).to_have_count(0)


def test_a_person_who_refuses_at_the_provider_is_not_logged_in(person: Page) -> None:
    """This provider leaves out the state of a refusal, so the console does not trust its words."""
    person.get_by_role("link", name="Log in with localhost").click()
    person.get_by_role("button", name="Deny").click()
    expect(person.get_by_role("alert")).to_contain_text("does not belong to this login")


def test_a_session_that_the_provider_does_not_renew_ends(context: BrowserContext, folder: Path) -> None:
    with (
        ProviderServer() as provider,
        served(folder / "ending", provider.issuer, {"keys": provider.jwks()["keys"][1:]}) as console,
    ):
        provider.life_s = 6.0
        page = context.new_page()
        page.goto(console.address)
        page.get_by_role("link", name="Log in with localhost").click()
        expect(page.get_by_role("heading", name="Logs")).to_be_visible()
        provider.refuses_renewal = True
        # The page leads there by itself. A test that loads it again could end the load that says why.
        expect(page.get_by_role("heading", name="Log in")).to_be_visible(timeout=60_000)
        expect(page.get_by_role("status").filter(has_text="Log in again")).to_be_visible()
