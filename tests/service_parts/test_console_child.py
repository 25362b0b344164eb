"""The console of a service as a child process. With nodes and gateways:
tests/amqp_streams/server/test_console.py, tests/knative_gateway/running/test_console.py.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service_parts import console_child
from service_parts.binding import close_all
from service_parts.console_child import ConsoleChild, check_console, location, options
from service_parts.errors import SettingError
from service_parts.settings.choices import LogFormat
from service_parts.settings.consoles import ConsoleSettings
from service_parts.settings.listeners import Listener
from tests.service_parts.test_children import runs

PROGRAM = """
import os, pathlib, sys
folder = pathlib.Path(__file__).parent
with (folder / "runs").open("a") as runs:
    runs.write(f"{os.environ.get('NOTIFY_SOCKET')} {' '.join(sys.argv[1:])}\\n")
sys.exit(3)
"""


STUBBORN = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
(pathlib.Path(__file__).parent / "hangs").touch()
time.sleep(600)
"""
SERVICE = """
import asyncio, sys
from service_parts.console_child import ConsoleChild
from service_parts.settings.consoles import ConsoleSettings

async def serve():
    child = ConsoleChild(ConsoleSettings.model_validate({"listen": "127.0.0.1:0"}), "stubborn", [])
    await child.start()
    while child.pid is None:
        await asyncio.sleep(0.01)
    print(child.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(serve())
"""


def settings(**more: object) -> ConsoleSettings:
    return ConsoleSettings.model_validate({"listen": "127.0.0.1:0", **more})


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not met():  # noqa: ASYNC110  the child is another process
            await asyncio.sleep(0.02)


async def test_a_console_that_ends_is_started_again_at_the_same_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systemd must not take the start of the console for the start of the service."""
    (tmp_path / "ends.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setattr(console_child, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)  # a real file for the child
    child = ConsoleChild(settings(), "ends", ["--url", "amqp://h"])
    await child.start()
    runs = tmp_path / "runs"
    try:
        address = child.address
        # A child writes its line before its start is counted.
        await until(lambda: child.starts >= 3 and len(runs.read_text().splitlines()) >= 3)
        assert child.address == address
        assert child.addresses == [str(address)]
    finally:
        await child.stop()
        await child.stop()
    number = runs.read_text().split("fd:")[1].split()[0]
    assert set(runs.read_text().splitlines()) == {f"None console --url amqp://h --listen fd:{number}"}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(int(number))


async def test_a_console_that_hangs_does_not_outlive_a_service_that_was_killed(tmp_path: Path) -> None:
    """It would keep the address, and the service could not start again."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVICE),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert service.stdout is not None
    while not (line := (await service.stdout.readline()).strip()).isdigit():
        assert line, "the service ended"
    child = int(line)
    await until((tmp_path / "hangs").exists)
    service.kill()
    await service.wait()
    await until(lambda: not runs(child))


async def test_a_program_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/program")
    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    child = ConsoleChild(settings(), "any", [])
    await child.start()
    try:
        await asyncio.sleep(0)
        assert child.pid is None
        assert child._task is not None
        assert not child._task.done()
    finally:
        await child.stop()


async def test_the_console_of_a_service_that_was_killed_gets_a_moment_to_leave_the_address() -> None:
    former = socket.create_server(("127.0.0.1", 0))
    child = ConsoleChild(settings(listen=f"127.0.0.1:{former.getsockname()[1]}"), "any", [])
    asyncio.get_running_loop().call_later(0.2, former.close)
    try:
        close_all(await child._bind())
    finally:
        former.close()


async def test_an_address_that_stays_in_use_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_child, "BIND_S_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        child = ConsoleChild(settings(listen=f"127.0.0.1:{port}"), "any", [])
        with pytest.raises(SettingError, match=f"cannot listen on 127.0.0.1:{port}"):
            await child.start()
        await child.stop()


def test_a_file_of_authorities_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"console\.ca: cannot read .*none\.pem: No such file"):
        check_console(settings(ca=tmp_path / "none.pem"))


def test_the_command_gets_what_the_settings_say() -> None:
    given = settings(ca="ca.pem", hosts=["a.example", "b.example"], anonymous="never")
    assert list(options(given, ["10.0.0.0/8"], LogFormat.JSON, plain_without_tls=True)) == [
        *("--ca", "ca.pem", "--allow-host", "a.example", "--allow-host", "b.example"),
        *("--trusted-proxy", "10.0.0.0/8", "--anonymous", "never", "--plain-without-tls"),
        *("--log-format", "json"),
    ]
    assert list(options(settings(), (), LogFormat.TEXT, plain_without_tls=False)) == [
        *("--anonymous", "loopback", "--log-format", "text")
    ]


@pytest.mark.parametrize(
    ("listen", "host", "url"),
    [
        ("127.0.0.1:8081", "node.example", "http://127.0.0.1:8081/"),
        ("0.0.0.0:8081", "node.example", "http://node.example:8081/"),
        ("[::]:8081", "fe80::1", "http://[fe80::1]:8081/"),
    ],
)
def test_a_browser_is_led_to_the_host_that_it_knows(listen: str, host: str, url: str) -> None:
    assert location(Listener.parse(listen), host) == url


def test_the_options_of_a_provider_are_passed_on(tmp_path: Path) -> None:
    given = settings(
        oidc_issuer="https://id.example",
        oidc_client_id="console",
        oidc_client_secret=tmp_path / "secret",
        oidc_hosts=["more.example"],
        oidc_token="id",
    )
    assert list(options(given, (), LogFormat.TEXT, plain_without_tls=False))[-14:] == [
        *("--oidc-issuer", "https://id.example", "--oidc-client-id", "console"),
        *("--oidc-client-secret", str(tmp_path / "secret"), "--oidc-token", "id"),
        *("--oidc-scope", "openid", "--oidc-scope", "profile", "--oidc-host", "more.example"),
    ]
    with pytest.raises(ValueError, match="must be given together"):
        settings(oidc_issuer="https://id.example")


def test_a_secret_that_others_can_read_and_authorities_that_are_none_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    given = {"oidc_issuer": "https://id.example", "oidc_client_id": "console"}
    with pytest.raises(SettingError, match="only its owner can read"):
        check_console(settings(**given, oidc_client_secret=secret))
    secret.write_text("x")
    secret.chmod(0o644)
    with pytest.raises(SettingError, match="only its owner can read"):
        check_console(settings(**given, oidc_client_secret=secret))
    secret.chmod(0o600)
    check_console(settings(**given, oidc_client_secret=secret))
    with pytest.raises(SettingError, match="oidc_ca: cannot read"):
        check_console(settings(**given, oidc_ca=secret))
