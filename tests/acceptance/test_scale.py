"""The scale suite in its short form: more of everything than one connection or one session can hold, with
default settings.

`make scale` runs the same cases at their full size, prints the figures and compares them with the wanted
ones. Nothing is timed here.
"""

from pathlib import Path

import pytest

from bench.scale import gateway_cases, node_cases

pytestmark = pytest.mark.timeout(240)


async def test_more_brokers_than_one_connection_has_sessions_become_ready_and_deliver(tmp_path: Path) -> None:
    found = await gateway_cases.many_brokers(tmp_path / "gateway", 40, rest_s=0)
    assert found.probe_failed == 0


async def test_a_broker_with_more_partitions_than_sessions_delivers_from_each(tmp_path: Path) -> None:
    found = await gateway_cases.wide_broker(tmp_path / "gateway", 160, 200, rest_s=0)
    assert found.probe_failed == 0


async def test_a_broker_serves_many_triggers(tmp_path: Path) -> None:
    found = await gateway_cases.many_triggers(tmp_path / "gateway", 100, rest_s=0)
    assert found.probe_failed == 0


async def test_a_burst_of_objects_lets_an_unrelated_one_become_ready(tmp_path: Path) -> None:
    found = await gateway_cases.burst(tmp_path / "gateway", 60, rest_s=0)
    assert found.notes["unrelated objects"] >= 1


async def test_more_consumer_links_than_sessions_each_get_every_event_of_a_wide_log(tmp_path: Path) -> None:
    found = await node_cases.many_links(tmp_path / "node", 150, 200, 8, rest_s=0)
    assert found.probe_failed == 0


async def test_many_groups_of_one_log_each_get_every_event(tmp_path: Path) -> None:
    found = await node_cases.many_groups(tmp_path / "node", 150, 8, rest_s=0)
    assert found.probe_failed == 0


async def test_many_connections_each_send_and_receive(tmp_path: Path) -> None:
    found = await node_cases.many_connections(tmp_path / "node", 200, rest_s=0)
    assert found.probe_failed == 0
