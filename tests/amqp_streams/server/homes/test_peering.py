"""Reports and answers between nodes, over real sockets on loopback."""

import asyncio

from amqp_streams.homes.messages import Answer, Identity, Report
from amqp_streams.peering_settings import PeeringSettings
from amqp_streams.server.homes.peering import Peers

REPORT = Report("me", 0, 1, 1, ())
ANSWER = Answer(0, 1, 1, processed=True, remaining_ms=3000)


async def test_a_node_that_is_its_own_home_uses_no_socket() -> None:
    heard: list[Report | Answer] = []
    peers = Peers(
        Identity("me", "cluster", "prefix"),
        PeeringSettings.model_validate({"listen": "127.0.0.1:7001", "secret_file": "s"}),
        on_report=heard.append,
        on_answer=heard.append,
    )
    await peers.open()
    peers.send_report(peers.address, REPORT)
    peers.send_answer("me", ANSWER)
    assert heard == [], "messages come in a later iteration of the loop"
    await asyncio.sleep(0)
    assert heard == [REPORT, ANSWER]
    await peers.close()
