"""The node as a child process: it listens, restarts on its port, and ends with the gateway."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
import uvloop

from amqp_streams.client import RetryPolicy, connect
from knative_gateway.engine import embedded
from knative_gateway.engine.embedded import EmbeddedNode
from knative_gateway.errors import ConfigError, UnavailableError
from service_parts.settings.choices import LogLevel


def runs(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


async def gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while runs(pid):  # noqa: ASYNC110  no event reports it
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("real_commands")
async def test_it_listens_and_comes_back_where_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with EmbeddedNode(tmp_path / "log", message_bytes=17 << 20, log_level=LogLevel.INFO) as node:
        retry = RetryPolicy(first_ms=10, first_connect=True)
        async with connect(node.url, retry=retry, timeout=60) as client:
            assert await client.management.list_logs() == []
        url, first = node.url, node.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await gone(first)
        async with connect(node.url, retry=retry, timeout=60) as client:
            assert await client.management.list_logs() == []
        assert node.url == url
        last = node.pid
    assert last is not None
    await gone(last)
    assert "store=" in capfd.readouterr().err


async def test_a_failure_to_notify_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ended with status 2"):
        async with EmbeddedNode(tmp_path, message_bytes=1):
            pass


async def test_a_node_that_does_not_start_is_retried_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "FIRST_TRIES", 2)
    monkeypatch.setattr(embedded, "FIRST_WAIT_S", 0.0)
    node = EmbeddedNode(tmp_path, command=(sys.executable, "-c", "raise SystemExit(1)"))
    with pytest.raises(UnavailableError, match="ended with status 1"):
        async with node:
            pass
    assert node.starts == 2


async def test_one_that_says_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "START_S_MAX", 0.1)
    monkeypatch.setattr(embedded, "FIRST_TRIES", 1)
    node = EmbeddedNode(tmp_path, command=(sys.executable, "-c", "import time; time.sleep(60)"))
    with pytest.raises(UnavailableError, match="does not listen"):
        async with node:
            pass
    assert node.pid is not None
    await gone(node.pid)


def test_reading_the_report_of_the_node_closes_no_descriptor_of_another_part() -> None:
    """The loop of the gateway closed the descriptor a second time, when it was one of another part."""

    async def check() -> None:
        reading, writing = os.pipe()
        os.write(writing, b'{"amqp": ')
        process = await asyncio.create_subprocess_exec("true")
        asyncio.get_running_loop().call_later(0.01, os.write, writing, b'["127.0.0.1:1"]}\n')
        # Not in a task: what another part opens must be opened before the loop does anything else.
        assert await embedded._ready(reading, process) == {"amqp": ["127.0.0.1:1"]}
        # The system gives the lowest free number, and other tests may have left lower ones free.
        others = [os.open(os.devnull, os.O_RDONLY)]
        while reading not in others:
            others.append(os.open(os.devnull, os.O_RDONLY))
            assert len(others) <= reading + 1
        await asyncio.sleep(0.01)
        for other in others:
            os.fstat(other)
            os.close(other)
        os.close(writing)
        await process.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check())


async def test_one_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "STOP_S_MAX", 0.1)
    stubborn = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        'os.write(int(sys.argv[-1]), b\'{"amqp": ["127.0.0.1:1"]}\\n\'); time.sleep(60)'
    )
    async with EmbeddedNode(tmp_path, command=(sys.executable, "-c", stubborn)) as node:
        assert node.url == "amqp://127.0.0.1:1"
        assert node.pid is not None
    await gone(node.pid)


async def test_it_goes_when_we_are_killed(tmp_path: Path) -> None:
    """The kernel ends it, because its parent is dead."""
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom knative_gateway.engine.embedded import"
        " EmbeddedNode\nasync def main():\n    async with EmbeddedNode(Path(sys.argv[1])) as node:\n       "
        " print('pid', node.pid, flush=True)\n        await asyncio.sleep(60)\nasyncio.run(main())"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        str(tmp_path / "log"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    while not (line := await parent.stdout.readline()).startswith(b"pid "):
        assert line, "it ended"
    pid = int(line.split()[1])
    parent.kill()
    await parent.wait()
    await gone(pid)
