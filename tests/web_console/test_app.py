"""The console over HTTP: sessions, rights, and what a hostile client or page may not do."""

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.types import Message
from structlog.testing import capture_logs

from amqp_streams.client import connect
from bench.connections import allow_files
from examples.node import NodeProcess
from tests.web_console.conftest import PASSWORD
from tests.web_console.http_client import Person
from tests.web_console.processes import ConsoleProcess
from web_console.app import application
from web_console.node import NODE
from web_console.sessions.logins import Login
from web_console.sessions.session import Session
from web_console.settings import ConsoleSettings

NOBODY = {"x_forwarded_for": "192.0.2.1"}


def test_a_person_sees_the_logs_that_the_node_lets_the_user_see(person: Person) -> None:
    assert person.log_in("reader", PASSWORD).status == 303
    listed = person.get("/logs").text
    assert "temps" in listed
    assert "secret" not in listed
    person.cookies.clear()
    assert person.log_in("admin", PASSWORD).status == 303
    assert "secret" in person.get("/logs").text


def test_a_wrong_password_and_no_login_are_refused_in_words(person: Person) -> None:
    wrong = person.log_in("reader", "wrong")
    assert wrong.status == 401
    assert "The node refused the login" in wrong.text
    assert 'value="reader"' in wrong.text
    nameless = person.log_in(how="anonymous")
    assert nameless.status == 401
    assert "The node needs a login" in nameless.text
    assert person.log_in().status == 400
    assert "amqp_console" not in person.cookies


def test_only_browsers_of_this_machine_continue_without_a_login(tmp_path: Path) -> None:
    """The node sees the console only, and would give every browser the rights of its machine."""
    button = 'value="anonymous"'
    with NodeProcess(tmp_path / "node") as node, ConsoleProcess(tmp_path, node.url) as console:
        remote, local = Person(console.address), Person(console.address)
        assert button not in remote.get("/login", **NOBODY).text
        refused = remote.post("/login", {"how": "anonymous"}, **NOBODY)
        assert refused.status == 403
        assert "on the machine of the console" in refused.text
        assert button in local.get("/login").text
        assert local.log_in(how="anonymous").status == 303


@pytest.mark.parametrize(("rule", "status"), [("always", 303), ("never", 403)])
def test_the_console_lets_all_browsers_continue_without_a_login_or_none(
    tmp_path: Path, rule: str, status: int
) -> None:
    rules = ("--anonymous", rule)
    with NodeProcess(tmp_path / "node") as node, ConsoleProcess(tmp_path, node.url, *rules) as console:
        person = Person(console.address)
        person.get("/login", **NOBODY)
        assert person.post("/login", {"how": "anonymous"}, **NOBODY).status == status


def test_too_many_wrong_passwords_wait(person: Person) -> None:
    person.get("/login")
    fields = {"user": "reader", "password": "wrong"}
    answers = [person.post("/login", fields, **NOBODY).status for _ in range(7)]
    assert answers == [401] * 5 + [429] * 2
    assert person.log_in("reader", PASSWORD).status == 303


def test_wrong_passwords_that_come_at_once_are_not_all_tried(guarded_console: ConsoleProcess) -> None:
    """The limit holds for logins that are not answered yet, too."""
    people = [Person(guarded_console.address) for _ in range(30)]
    for each in people:
        each.get("/login")
    began = time.monotonic()
    with ThreadPoolExecutor(len(people)) as workers:
        answers = Counter(workers.map(lambda each: wrong(each, f"u{id(each)}", "192.0.2.2"), people))
    again = int(time.monotonic() - began) // 10  # one failure is forgotten every ten seconds
    assert answers[401] <= 5 + again
    assert answers[401] + answers[429] == 30


def test_the_addresses_of_one_ipv6_site_count_as_one(person: Person) -> None:
    """A site has 2^64 of them."""
    person.get("/login")
    answers = [wrong(person, f"v{number}", f"2001:db8::{number}") for number in range(6)]
    assert answers == [401] * 5 + [429]
    assert wrong(person, "v6", "2001:db8:0:1::1") == 401


def wrong(person: Person, user: str, address: str) -> int:
    """Log in with a wrong password. The node counts the failures of each user as well."""
    return person.post("/login", {"user": user, "password": "wrong"}, x_forwarded_for=address).status


def test_the_form_of_a_login_is_small(person: Person) -> None:
    """500 connections could hold 2 GiB of forms."""
    person.get("/login")
    assert person.post("/login", {"user": "reader", "password": "x" * 100_000}).status == 413


def test_without_a_session_every_page_leads_to_the_login(person: Person) -> None:
    for path in ("/logs", "/figures?log=temps"):
        answer = person.get(path)
        assert (answer.status, answer.headers["location"]) == (303, "/login")
    part = person.get("/logs", hx_request="true")
    assert (part.status, part.headers["hx-redirect"]) == (401, "/login")


def test_the_cookie_of_a_session_is_for_this_site_and_not_for_scripts(person: Person) -> None:
    person.log_in("reader", PASSWORD)
    person.cookies.clear()
    person.get("/login", x_forwarded_proto="https")
    fields = {"user": "reader", "password": PASSWORD}
    answer = person.post("/login", fields, x_forwarded_proto="https", x_forwarded_prefix="/x")
    assert (answer.status, answer.headers["location"]) == (303, "/x/logs")
    cookie = person.set_cookies[0].lower()
    for attribute in ("httponly", "samesite=strict", "secure", "path=/x"):
        assert attribute in cookie


def test_a_form_without_the_token_of_its_session_changes_nothing(person: Person) -> None:
    person.log_in("reader", PASSWORD)
    assert person.post("/logout", b"csrf=guessed").status == 403
    assert person.post("/logout", b"").status == 403
    assert person.get("/logs").status == 200
    assert person.post("/login", b"user=reader&password=x&csrf=guessed").status == 403


def test_a_session_ends_at_the_logout(person: Person) -> None:
    person.log_in("reader", PASSWORD)
    cookies = dict(person.cookies)
    assert person.post("/logout", {}).status == 303
    person.cookies = cookies
    assert person.get("/logs").status == 303


def test_a_page_cannot_load_frame_or_run_anything_foreign(person: Person) -> None:
    person.log_in("reader", PASSWORD)
    for path in ("/logs", "/login", "/missing", "/static/console.js"):
        headers = person.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
    page = person.get("/logs").text
    assert "<script>" not in page
    assert " style=" not in page


def test_a_host_name_that_is_not_ours_is_refused(person: Person) -> None:
    refused = person.get("/login", host="evil.example")
    assert (refused.status, "the host name evil.example is not one of" in refused.text) == (421, True)
    assert person.get("/login", host="localhost:1").status == 200


def test_a_form_that_is_too_large_or_broken_is_refused(person: Person) -> None:
    person.log_in("reader", PASSWORD)
    assert person.post("/logout", b"x=" + b"a" * (5 << 20)).status == 413
    assert person.post("/logout", b"x=%ff").status == 400
    assert person.get("/logs").status == 200


def test_names_that_do_not_exist_and_odd_queries_are_answered(person: Person) -> None:
    person.log_in("reader", PASSWORD)
    assert person.get("/missing").status == 404
    assert person.get("/static/../app.py").status == 404
    assert "No log has" in person.get("/logs?find=%3Cb%3E&page=999999999999").text
    assert "<b>" not in person.get("/logs?find=%3Cb%3E").text


def test_sessions_are_bounded_and_a_used_one_is_not_ended_for_another(
    guarded_node: NodeProcess, tmp_path: Path
) -> None:
    with ConsoleProcess(tmp_path, guarded_node.url, "--sessions", "2") as console:
        people = [Person(console.address) for _ in range(3)]
        assert [each.log_in("reader", PASSWORD).status for each in people] == [303, 303, 503]
        assert people[0].get("/logs").status == 200


def test_connections_that_send_nothing_do_not_keep_people_out(
    guarded_node: NodeProcess, tmp_path: Path
) -> None:
    allow_files(4096)
    with ConsoleProcess(tmp_path, guarded_node.url, "--sessions", "1") as console, ExitStack() as sockets:
        host, port = console.address.removeprefix("http://").split(":")
        for _ in range(600):
            sockets.enter_context(socket.create_connection((host, int(port))))
        assert Person(console.address).log_in("reader", PASSWORD).status == 303


class Stubborn(Session):
    """A session whose end is an error."""

    async def end(self) -> None:
        await super().end()
        raise OSError


async def test_a_session_that_cannot_be_ended_does_not_keep_the_others_alive() -> None:
    url = "amqp://127.0.0.1:1"
    app = application(ConsoleSettings(url), NODE)
    sessions = [Stubborn(connect(url), Login(), "x"), Session(connect(url), Login(), "x")]
    for number, session in enumerate(sessions):
        app.console.book.add(str(number), session, address="a", now_s=0.0)
    messages: asyncio.Queue[Message] = asyncio.Queue()
    messages.put_nowait({"type": "lifespan.startup"})
    messages.put_nowait({"type": "lifespan.shutdown"})
    sent: list[str] = []

    async def send(message: Message) -> None:
        sent.append(message["type"])

    with capture_logs() as lines:
        await app({"type": "lifespan", "app": app, "state": {}}, messages.get, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert [each["event"] for each in lines] == ["session_not_ended"]
    assert not any(each.has_room for each in sessions)


def test_an_idle_session_ends(guarded_node: NodeProcess, tmp_path: Path) -> None:
    with ConsoleProcess(tmp_path, guarded_node.url, "--idle", "1", "--sessions", "1") as console:
        first, second = Person(console.address), Person(console.address)
        assert first.log_in("reader", PASSWORD).status == 303
        while (status := second.log_in("reader", PASSWORD).status) != 303:
            assert status == 503
        # A stream of the open page is the first to notice. Its answer leaves the cookie to the page, which
        # then leads to the reason.
        stream = first.get("/figures?log=temps", accept="text/event-stream")
        assert (stream.status, first.set_cookies) == (401, [])
        answer = first.get("/logs")
        assert (answer.status, answer.headers["location"]) == (303, "/login?reason=ended")
        assert "The session has ended. Log in again." in first.get(answer.headers["location"]).text
        assert first.get("/logs").headers["location"] == "/login"


def test_the_address_of_the_node_must_not_have_a_user(tmp_path: Path) -> None:
    """Everyone who opens the console would be that user."""
    program = str(Path(sys.executable).parent / "amqp-streams")
    command = [program, "console", "--url", "amqp://admin:secret@127.0.0.1:1", "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "without a user" in done.stderr
    assert "secret" not in done.stderr


def test_behind_a_prefix_every_link_has_it_whether_or_not_the_proxy_removes_it(person: Person) -> None:
    person.log_in("reader", PASSWORD)
    for path in ("/logs", "/logs/temps", "/logs/temps/events", "/logs/temps/send", "/groups"):
        for asked in (path, f"/node/console{path}"):
            page = person.get(asked, x_forwarded_prefix="/node/console").text
            links = re.findall(r'(?:href|src|action|hx-get|data-figures)="([^"#]+)"', page)
            assert len(links) > 5
            assert all(link.startswith("/node/console/") for link in links), links
