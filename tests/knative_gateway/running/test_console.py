"""The web console as a child process of the gateway: `serve --console-listen`."""

import http.client
import os
import signal
from pathlib import Path

import pytest

from examples.gateway import GatewayProcess
from knative_gateway.config import GatewaySettings
from knative_gateway.errors import ConfigError
from knative_gateway.running.console import GatewayConsole, check_console, gateway_url, running_console
from service_parts import console_child
from tests.web_console.http_client import Person
from tests.web_console.processes import console_pids, runs, until

WAIT_S = 60.0


def led_to(gateway: GatewayProcess, host: str | None = None) -> tuple[int, str | None]:
    """Return the status and the location of `/console`."""
    connection = http.client.HTTPConnection(gateway.http, timeout=WAIT_S)
    try:
        connection.request("GET", "/console", headers={} if host is None else {"host": host})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers["location"]
    finally:
        connection.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gateway_serves_one_console_and_starts_it_again(tmp_path: Path, workers: int) -> None:
    """The address stays, so a browser only waits; the gateway is not affected; both end together."""
    options = ("--console-listen", "127.0.0.1:0", "--workers", str(workers))
    with GatewayProcess(tmp_path / "gateway", *options) as gateway:
        [address] = gateway.addresses["console"]
        person = Person(address)
        assert person.log_in(how="anonymous").status == 303
        assert "Brokers and Channels" in person.get("/map").text
        assert led_to(gateway) == (307, f"http://{address}/")
        # Neither the gateway nor the console answers a page under a name of its own.
        assert led_to(gateway, "evil.example") == (421, None)
        assert Person(address).get("/healthz", host="evil.example").status == 421
        [first] = console_pids(gateway.words)
        os.kill(first, signal.SIGKILL)
        # The socket is the gateway's: this request waits for the next console.
        assert Person(address).get("/healthz").status == 200
        gateway.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]  # it runs
        until(lambda: "gateway_reloaded" in gateway.words, gateway.words)
        assert "restart_needed" not in gateway.words
        pids = console_pids(gateway.words)
        assert len(pids) == 2
        assert runs(pids[1])
        assert gateway.stop() == 0, gateway.words
        assert not runs(pids[1])
    assert "Traceback" not in gateway.words


def test_a_console_ends_with_a_gateway_that_is_killed_and_the_next_one_gets_its_address(
    tmp_path: Path,
) -> None:
    options = ("--console-listen", "127.0.0.1:0", "--workers", "2")
    with GatewayProcess(tmp_path / "gateway", *options) as gateway:
        [address] = gateway.addresses["console"]
        assert Person(address).get("/healthz").status == 200
        [pid] = console_pids(gateway.words)
        gateway.kill()
        with GatewayProcess(tmp_path / "gateway", "--console-listen", address) as second:
            assert Person(address).get("/healthz").status == 200
            until(lambda: not runs(pid), "the console of the killed gateway still runs")
            assert second.stop() == 0


def test_a_gateway_without_a_console_leads_nowhere(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path / "gateway") as gateway:
        assert led_to(gateway)[0] == 404
        assert "console" not in gateway.addresses


def settings(folder: Path, **console: object) -> GatewaySettings:
    return GatewaySettings.model_validate(
        {"state_dir": folder, "console": {"listen": "127.0.0.1:0", **console}}
    )


def test_what_a_console_needs_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(tmp_path, ca=tmp_path / "none.pem").console
    assert given is not None
    with pytest.raises(ConfigError, match=r"console\.ca: cannot read"):
        check_console(given)
    monkeypatch.setattr(console_child, "_NEEDED", "no_such_library")
    with pytest.raises(ConfigError, match=r"amqp-event-streams\[console\]"):
        check_console(given)


async def test_a_missing_extra_is_an_error_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_child, "_NEEDED", "no_such_library")
    given = settings(tmp_path)
    assert given.console is not None
    with pytest.raises(ConfigError, match=r"amqp-event-streams\[console\]"):
        async with running_console(given.console, given, "127.0.0.1:1"):
            pass


def test_a_worker_knows_the_address_that_its_parent_has_bound(tmp_path: Path) -> None:
    given = settings(tmp_path, listen="0.0.0.0:8081")
    assert GatewayConsole(given, several=True).location("events.example") == "http://events.example:8081/"
    assert GatewayConsole(given, several=False).location("events.example") is None


@pytest.mark.parametrize(
    ("bound", "url"),
    [
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("10.0.0.1:80", "http://10.0.0.1:80"),
    ],
)
def test_the_console_connects_to_this_machine(bound: str, url: str) -> None:
    assert gateway_url(bound) == url
