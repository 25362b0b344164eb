"""The tables of the node on Kafka, and the commands of its loads."""

from pathlib import Path

import pytest

from bench.kafka_store.__main__ import table
from bench.kafka_store.cells import IN_BATCHES, ONE_BY_ONE, Cell, Figure, amqp, direct, generated, median, run
from bench.kafka_store.far import Shares
from bench.kafka_store.numbered import Sent
from bench.kafka_store.products import DIRECT, DIRECTORY, KAFKA, RABBIT, Found

IN = Cell(IN_BATCHES, "in", 100)
OUT = Cell(ONE_BY_ONE, "out", 100)


def test_ratios_and_goals_are_those_of_the_node_on_kafka() -> None:
    found = Found()
    for product, rate in ((KAFKA, 71_000.0), (DIRECT, 100_000.0), (DIRECTORY, 142_000.0)):
        found.note(product, IN, lambda rate=rate: Figure(rate, 1.0, 2.0, 3.0))  # type: ignore[misc]
    found.note(KAFKA, OUT, lambda: Figure(149.0, 1.0, 2.0, 3.0))
    found.note(RABBIT, OUT, lambda: Figure(100.0, 1.0, 0.0, 3.0))
    rows = [line.split(" | ") for line in table(found, [IN, OUT]).splitlines() if line.startswith("| ")]
    cells = {(row[0].removeprefix("| "), row[1]): row[2:6] for row in rows}
    assert cells[IN.name, KAFKA] == ["71k", "", "", ""]
    assert cells[IN.name, DIRECT] == ["100k", "0.71", ">= 0.7", "yes"]
    assert cells[IN.name, DIRECTORY] == ["142k", "0.50", "", ""]
    assert cells[OUT.name, RABBIT] == ["100", "1.49", ">= 1.5", "no"]


def test_a_product_that_fails_is_named_and_the_others_have_their_rows() -> None:
    found = Found()

    def fails() -> Figure:
        message = "no broker"
        raise RuntimeError(message)

    found.note(DIRECT, IN, fails)
    found.note(KAFKA, IN, lambda: Figure(1.0, 1.0, 2.0, 3.0))
    assert found.failures == [f"{DIRECT}, {IN.name}: no broker"]
    assert found.median(DIRECT, IN) is None
    assert KAFKA in table(found, [IN])


def test_several_runs_give_their_medians() -> None:
    assert median([Figure(1, 5, 1, 9), Figure(3, 1, 1, 1), Figure(2, 3, 7, 5)]) == Figure(2, 3, 1, 5)


def test_each_cell_has_a_load_of_its_own() -> None:
    programs = [
        Path(amqp(Cell(how, way, 100), "amqp://h", "a", 5)[0]).name
        for how in (IN_BATCHES, ONE_BY_ONE)
        for way in ("in", "out")
    ]
    assert programs == ["batch_send", "amqp_load", "amqp_load", "amqp_load"]
    assert "recv" in direct(Cell(IN_BATCHES, "out", 100), "s", "t", 5)


def test_a_load_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "load"
    script.write_text('#!/bin/sh\necho \'{"ok": false, "error": "gone"}\'\n')
    script.chmod(0o755)
    with pytest.raises(RuntimeError, match="load send: gone"):
        generated([str(script), "send"])
    script.write_text('#!/bin/sh\necho \'{"ok": true, "msgs_per_s": 50, "client_cpu_s": 0.00002}\'\n')
    assert run([str(script), "send"], 10, serving=lambda: 0.0, brokers=lambda: 0.0) == Figure(50, 0, 0, 2)


def test_shares_are_described_in_one_line() -> None:
    tail = {"p50": 1.0, "p99": 2.0}
    words = Shares(8, 10.0, 5, 7.0, 9, 56, 0.5, tail, tail).words()
    assert words.startswith("8 far readers for 10 s: 6/s together; each 5 to 9 events, median 7")


def test_idempotent_producers_stand_beside_plain_ones() -> None:
    found = Found()
    found.producers["plain"] = Sent([100.0, 300.0, 200.0], [5000.0], [1.0, 2.0, 9.0], [3.0])
    found.producers["numbered"] = Sent([10.0], [4000.0], [20.0], [150.0])
    lines = table(found, []).splitlines()
    assert "| plain | 200 | 2.0 ms | 9.0 ms | 5,000 | 3 ms |" in lines
    assert "| numbered | 10 | 20.0 ms | 20.0 ms | 4,000 | 150 ms |" in lines
