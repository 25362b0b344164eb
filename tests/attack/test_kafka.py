"""The attacks on nodes on Kafka in their short form: see tests/attack/test_node.py.

Two nodes on the brokers that other tests share.
"""

from pathlib import Path

import pytest

from attack.__main__ import one
from attack.kafka_room import kafka_room
from attack.report import Place, table
from attack.tables import all_attacks
from bench.products.kafka_cluster import Cluster

pytestmark = pytest.mark.timeout(600)


def test_an_attack_on_nodes_on_kafka_costs_the_neighbour_nothing(kafka: Cluster, tmp_path: Path) -> None:
    chosen = [each for each in all_attacks() if each.place is Place.KAFKA and not each.is_long]
    assert len(chosen) > 5
    with kafka_room(tmp_path, is_small=True, cluster=kafka) as room:
        rows = [one(each, room) for each in chosen]
    broken = [row for row in rows if row.complaints]
    assert not broken, "\n" + table(broken)
