"""A node that compresses closed segments: its clients read every event, also after a kill."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from amqp_streams.client import Event, connect
from amqp_streams.client.received import ReceivedEvent
from examples.node import NodeProcess
from tests.acceptance.conftest import Cli, StartNode

EVENTS = 9000
CONFIGURATION = """
[logs.temps]
partitions = 1
segment_bytes = "64KiB"
compression = "{codec}"
"""


def bodies(first: int, count: int) -> list[str]:
    numbers = range(first, first + count)
    return [json.dumps({"date": f"2026-11-{number % 30}", "temp": number / 7}) for number in numbers]


async def send(node: NodeProcess, texts: list[str]) -> None:
    async with connect(node.url) as client, client.producer("temps") as producer:
        for first in range(0, len(texts), 500):
            await producer.post_batch([Event(text) for text in texts[first : first + 500]])
        await producer.flush()


async def received(node: NodeProcess) -> list[str]:
    async with connect(node.url) as client:
        return [
            str(ReceivedEvent(message).body)
            async for run in client.read_range("temps", 0)
            for message in run.messages
        ]


def _suffixes(folder: Path) -> list[str]:
    return [path.suffix for path in folder.iterdir()]


async def compressed(folder: Path) -> None:
    """Wait until all closed segments are compressed."""
    async with asyncio.timeout(60):
        while True:
            suffixes = _suffixes(folder)
            if suffixes.count(".log") == 1 and suffixes.count(".logz") > 1:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
async def test_events_of_compressed_segments_are_read_before_and_after_a_kill(
    codec: str, tmp_path: Path, start_node: StartNode, cli: Cli
) -> None:
    configuration = tmp_path / "node.toml"
    configuration.write_text(CONFIGURATION.format(codec=codec))
    node = start_node("--config", str(configuration))
    sent = bodies(0, EVENTS)
    await send(node, sent)
    folder = node.data_dir / "logs" / "temps" / "0"
    await compressed(folder)
    assert await received(node) == sent
    described = json.loads(cli(node, "log", "describe", "temps", "--json"))
    assert described["compression"] == codec
    stored = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in {".log", ".logz"})
    assert described["partitions"][0]["bytes"] < 2 * stored
    node.kill()
    node.start()
    assert await received(node) == sent
    await send(node, bodies(EVENTS, 4000))
    sent += bodies(EVENTS, 4000)
    await compressed(folder)
    cli(node, "log", "update", "temps", "--compression", "none")
    assert await received(node) == sent
    first = json.loads(cli(node, "receive", "temps", "--from", "1700", "--max", "1", "--format", "json"))
    assert (first["offset"], first["body"]) == (1700, sent[1700])
    assert node.stop() == 0, node.words
    assert _run("verify", str(node.data_dir)).returncode == 0
    dumped = _run("dump", str(node.data_dir), "temps")
    assert dumped.returncode == 0, dumped.stderr


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    program = str(Path(sys.executable).with_name("amqp-streams"))
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)
