"""Logins of the console of a gateway: tokens, and gateways without tokens."""

from pathlib import Path

import pytest

from examples.gateway import GatewayProcess
from tests.web_console.http_client import Person
from tests.web_console.processes import GatewayConsoleProcess

ELSEWHERE = {"x_forwarded_for": "192.0.2.1"}
MINE, OTHER = "a-token-of-mine-1", "a-token-of-yours-1"
ONLY_HERE = "on the machine of the console"


def test_a_person_logs_in_with_a_token_that_the_gateway_accepts(person: Person) -> None:
    page = person.get("/login").text
    assert "Bearer token" in page
    assert "Password" not in page
    assert person.log_in(token="reader-token-0001").status == 303
    page = person.get("/map?namespace=weather").text
    assert "reader <small>" in page
    assert "reader-token-0001" not in page


@pytest.mark.parametrize("token", ["wrong", "admin-token-0001 x", "ä", "x\r\nX-Y: z", "x" * 50_000])
def test_a_token_that_the_gateway_does_not_accept_is_refused(person: Person, token: str) -> None:
    answer = person.log_in(token=token)
    assert answer.status in {400, 401, 503}
    assert 'role="alert"' in answer.text
    assert "amqp_console" not in person.cookies


def test_no_token_is_refused_in_words(person: Person) -> None:
    assert "Give a token." in person.log_in().text
    nameless = person.log_in(how="anonymous")
    assert nameless.status == 401
    assert "The gateway needs a token." in nameless.text


def test_a_token_is_no_way_around_the_rule_for_a_gateway_without_tokens(tmp_path: Path) -> None:
    """Such a gateway accepts every token, and sees the console only."""
    with (
        GatewayProcess(tmp_path / "gateway") as gateway,
        GatewayConsoleProcess(tmp_path, gateway.base_url) as console,
    ):
        remote, local = Person(console.address), Person(console.address)
        remote.get("/login", **ELSEWHERE)
        for fields in ({"how": "anonymous"}, {"token": "any"}):
            refused = remote.post("/login", fields, **ELSEWHERE)
            assert refused.status == 403
            assert ONLY_HERE in refused.text
        assert local.log_in(how="anonymous").status == 303
        local = Person(console.address)
        assert local.log_in(token="any").status == 303
        assert "without a login" in local.get("/map").text


def test_a_session_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(f"{MINE},me,1\n{OTHER},you,2\n")
    tokens.chmod(0o600)
    with (
        GatewayProcess(tmp_path / "gateway", "--tokens", str(tokens)) as gateway,
        GatewayConsoleProcess(tmp_path, gateway.base_url) as console,
    ):
        person = Person(console.address)
        assert person.log_in(token=MINE).status == 303
        tokens.write_text(f"{OTHER},you,2\n")
        gateway.stop()
        gateway.start()
        answer = person.get("/map")
        assert (answer.status, answer.headers["location"]) == (303, "/login?reason=refused")
        assert "The gateway refuses the login" in person.get("/login?reason=refused").text
        gateway.kill()
        away = person.log_in(token=OTHER)
        assert away.status == 503
        assert "does not answer" in away.text


def test_tokens_go_to_other_machines_only_over_tls(tmp_path: Path) -> None:
    with GatewayConsoleProcess(tmp_path, "http://gateway.invalid:8080") as console:
        answer = Person(console.address).log_in(token="mine")
        assert answer.status == 400
        assert "has no TLS" in answer.text
