"""Callers get complete lists, although the node answers page by page."""

import asyncio
from pathlib import Path

import pytest

from amqp_streams.client import connect
from amqp_streams.config import Listener, LogSettings, NodeSettings
from amqp_streams.node import requests
from amqp_streams.server import serve
from amqp_streams.testing import MemoryStore


async def test_lists_are_whole_though_the_node_answers_page_by_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(requests, "PAGE_PARTITIONS_MAX", 3)
    store, stop = MemoryStore(), asyncio.Event()
    for number in range(7):
        store.create(f"log-{number}", LogSettings(partitions=2), incarnation=f"i{number}")
    addresses: asyncio.Future[dict[str, list[str]]] = asyncio.get_running_loop().create_future()
    settings = NodeSettings(data_dir=tmp_path, listen=(Listener(host="127.0.0.1", port=0),))
    node = asyncio.create_task(serve(settings, ready=addresses.set_result, stop=stop, store=store))
    async with connect(f"amqp://{(await addresses)['amqp'][0]}") as client:
        assert [log.name for log in await client.management.list_logs()] == [
            f"log-{number}" for number in range(7)
        ]
        for number in range(7):
            async with client.group_consumer(f"log-{number}", "g") as consumer:
                await consumer.receive(timeout=0)
        groups = await client.management.list_groups()
        assert [(group.log, group.name) for group in groups] == [
            (f"log-{number}", "g") for number in range(7)
        ]
    stop.set()
    await node
