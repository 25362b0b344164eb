"""People log in with a provider, at the console of a node and of a gateway: real processes."""

import http.client
import itertools
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.web_console.http_client import Answer, Person
from tests.web_console.oidc.provider import SECRET, ProviderServer
from tests.web_console.processes import ConsoleProcess, GatewayConsoleProcess, until

_numbers = itertools.count(1)


class Someone(Person):
    """A person with an address of its own: failed logins of other tests do not make it wait."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        number = next(_numbers)
        self.at = f"198.51.{number // 250}.{number % 250 + 1}"

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        return super()._ask(method, path, body, {"x-forwarded-for": self.at, **headers})


def asked_of_provider(url: str) -> str:
    """Ask the provider as a browser would, and return where it sends the browser."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port or 80, timeout=60)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    connection.close()
    return answer.headers["location"] or ""


def come_back(person: Person) -> str:
    """Begin a login, log in at the provider, and return the path with the code."""
    begun = person.get("/login/provider")
    assert begun.status == 303, begun.text
    back = urlsplit(asked_of_provider(begun.headers["location"]))
    return f"{back.path}?{back.query}"


def log_in(person: Person) -> Answer:
    answer = person.get(come_back(person))
    if answer.status == 200:
        person.get("/")
    return answer


@pytest.fixture
def person(console: ConsoleProcess) -> Person:
    return Someone(console.address)


def test_a_person_logs_in_and_has_the_rights_of_the_node(person: Person, provider: ProviderServer) -> None:
    assert "Log in with localhost:" in person.get("/login").text
    answer = person.get(come_back(person))
    assert "You are logged in" in answer.text
    [cookie] = [line for line in person.set_cookies if line.startswith("amqp_console=")]
    assert "SameSite=strict" in cookie
    assert "HttpOnly" in cookie
    assert 'content="0; url=/logs"' in answer.text
    logs = person.get("/logs")
    assert person.get("/login/provider").headers["location"] == "/logs"
    assert "secret" in logs.text
    assert "alice" in logs.text
    provider.user = "bob"
    other = Someone(person._host)
    log_in(other)
    assert "secret" not in other.get("/logs").text


def test_the_request_to_the_provider_has_a_challenge_a_state_and_a_nonce(person: Person) -> None:
    first, second = (
        parse_qs(urlsplit(person.get("/login/provider").headers["location"]).query) for _ in range(2)
    )
    assert first["code_challenge_method"] == ["S256"]
    assert first["scope"] == ["openid profile"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name][0]) >= 43
        assert first[name] != second[name]
    [cookie] = [line for line in person.set_cookies if line.startswith("amqp_console_provider=")]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert SECRET not in str(first)


def test_a_code_is_of_use_only_to_the_browser_that_began_and_only_once(person: Person) -> None:
    path = come_back(person)
    thief = Someone(person._host)
    assert "has not begun this login" in thief.get(path).text
    cookie = person.cookies["amqp_console_provider"]
    assert person.get(path).status == 200
    person.cookies = {"amqp_console_provider": cookie}
    assert "invalid_grant" in person.get(path).text
    assert "amqp_console" not in person.cookies


def test_answers_that_do_not_belong_to_the_login_are_refused(person: Person) -> None:
    path = come_back(person)
    cookies = dict(person.cookies)
    for changed, words in (
        (re.sub("state=[^&]+", "state=x", path), "does not belong to this login"),
        (re.sub("iss=[^&]+", "iss=http%3A%2F%2Fother.example", path), "from another provider"),
        (re.sub("code=[^&]+", "code=", path), "has no code"),
        (f"{path}&error=access_denied&error_description=%3Cb%3Eno", "access_denied (&lt;b&gt;no)"),
    ):
        person.cookies = dict(cookies)
        answer = person.get(changed)
        assert (answer.status, words in answer.text) == (400, True), answer.text
        assert person.get("/logs").status == 303
    tampered = Someone(person._host)
    tampered.cookies = {"amqp_console_provider": cookies["amqp_console_provider"].replace(".", "x.", 1)}
    assert "has not begun this login" in tampered.get(path).text


_LIES: dict[str, tuple[str, Any, str]] = {
    "an answer without an ID token": ("/token", lambda found: {**found, "id_token": None}, "no ID token"),
    "an answer without a token": ("/token", lambda _: {}, "no bearer token"),
    "another type of token": ("/token", lambda found: {**found, "token_type": "mac"}, "no bearer token"),
    "a token with a line break": (
        "/token",
        lambda found: {**found, "access_token": "a\r\nX: y"},
        "no bearer token",
    ),
    "a token endpoint that redirects": (
        "/token",
        lambda _: (307, b"", {"location": "http://localhost:1/"}),
        "redirect",
    ),
    "a token endpoint with too much": ("/token", lambda _: (200, b"x" * (2 << 20), {}), "too large"),
    "a token endpoint that fails": ("/token", lambda _: (500, b"<html>", {}), "status 500"),
    "an ID token that is none": ("/token", lambda found: {**found, "id_token": "a.b.c"}, "not a valid JWT"),
}


@pytest.mark.parametrize("lie", _LIES)
def test_a_provider_that_lies_logs_nobody_in(
    console: ConsoleProcess, provider: ProviderServer, lie: str
) -> None:
    path, change, words = _LIES[lie]
    person = Someone(console.address)
    back = come_back(person)
    provider.lies[path] = change
    answer = person.get(back)
    assert words in answer.text, answer.text
    assert answer.status in {401, 503}
    assert person.get("/logs").status == 303


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"iss": "http://other.example"}, "another issuer issued it"),
        ({"aud": "another"}, "it is for another audience"),
        ({"aud": ["the-console", "another"]}, "issued to another client"),
        ({"azp": "another"}, "issued to another client"),
        ({"nonce": "another"}, "belongs to another login"),
        ({"nonce": None}, "belongs to another login"),
        ({"exp": 1000}, "it has expired"),
        ({"sub": ""}, "names no subject"),
    ],
)
def test_an_id_token_with_a_wrong_claim_logs_nobody_in(
    console: ConsoleProcess, provider: ProviderServer, claims: dict[str, Any], words: str
) -> None:
    provider.claims = claims
    person = Someone(console.address)
    answer = person.get(come_back(person))
    assert (answer.status, words in answer.text) == (401, True), answer.text
    assert person.get("/logs").status == 303


def test_a_token_is_renewed_before_it_expires(person: Person, provider: ProviderServer) -> None:
    provider.life_s = 2.0
    log_in(person)
    before = provider.asked.count("/token")
    # The node ends the connection with the first token, and the client logs in with a new one.
    until(lambda: person.get("/logs").status == 200 and provider.asked.count("/token") > before, "renewed")
    until(lambda: person.get("/logs").status == 200, "the page")


def test_a_session_that_the_provider_does_not_renew_ends(
    gateway_console: GatewayConsoleProcess, provider: ProviderServer
) -> None:
    person = Someone(gateway_console.address)
    provider.life_s = 2.0
    log_in(person)
    assert person.get("/map").status == 200
    provider.refuses_renewal = True
    until(lambda: person.get("/map").status == 303, "the session ends")
    assert person.get("/map").headers["location"].startswith("/login")


def test_a_person_logs_in_to_a_gateway_with_the_id_token(
    gateway_console: GatewayConsoleProcess, provider: ProviderServer
) -> None:
    person = Someone(gateway_console.address)
    log_in(person)
    assert "alice" in person.get("/map?namespace=vault").text
    provider.user = "bob"
    other = Someone(gateway_console.address)
    log_in(other)
    assert other.get("/map?namespace=vault").status == 403
    out = other.post("/logout", {})
    page = other.get(out.headers["location"])
    assert "You are logged out" in page.text
    assert f"{provider.issuer}/end_session?client_id=the-console" in page.text
    assert other.get("/map").status == 303


def test_pages_of_a_console_without_a_provider_do_not_exist(
    node: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ConsoleProcess(tmp_path_factory.mktemp("plain"), node.url) as console:
        person = Someone(console.address)
        assert person.get("/login/provider").status == 404
        assert person.get("/login/provider/callback?code=x").status == 404
