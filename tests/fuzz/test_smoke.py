"""A short run of each target finds nothing, and finds defects that are planted where only deep inputs
arrive.
"""

import json
import logging
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import structlog

from amqp_streams.client.connection import links, protocol
from amqp_streams.filters import kinds, matching
from amqp_streams.filters.evaluation import functions
from amqp_streams.proton import records
from amqp_streams.server import dispatch
from amqp_streams.server.identity import guard, tokens
from amqp_streams.streams import management
from amqp_streams.wire import batches, decoder, formats, frames, sections
from amqp_streams.wire.batched import compression, sends
from amqp_streams.wire.security import sasl, scram
from fuzz import campaign
from fuzz.__main__ import main
from fuzz.campaign import Campaign
from fuzz.draw import Draw
from fuzz.findings import Finding, examine
from fuzz.kept import Kept
from fuzz.mutate import Mutator
from fuzz.target import CORPUS, INPUT_BYTES_MAX, Target
from fuzz.targets import NAMES, load
from fuzz.worker import fuzz
from knative_gateway.delivery import backoff
from knative_gateway.dispatcher.posting import target
from knative_gateway.filters import anchors
from knative_gateway.resources import printing
from knative_gateway.resources.documents import yaml_documents
from knative_gateway.resources.patches import applying, json_patches
from spark_connector.planning import offsets

SEED = 20
INPUTS = {
    "texts": 300,
    "filters": 300,
    "wire": 500,
    "batches": 300,
    "compression": 300,
    "files": 40,
    "kafka": 150,
    "nodes": 300,
    "events": 300,
    "requests": 300,
    "replies": 300,
    "triggers": 300,
    "documents": 300,
    "objects": 60,
    "deciding": 60,
    "addresses": 300,
    "configuration": 150,
    "spark": 150,
    "frames": 150,
    "sasl": 60,
    "dialogue": 30,
    "management": 30,
    "client": 60,
    "settings": 150,
}
CORPUS_BYTES_MAX = 64 << 10


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    before, spark = structlog.get_config(), logging.getLogger("spark_connector")
    level = spark.level
    with structlog.testing.capture_logs():
        yield
    structlog.configure(**before)  # the command silences its process
    spark.setLevel(level)


class PlantedError(Exception):
    """Nothing that the code under test expects."""


def raising(*_: object, **__: object) -> Any:
    raise PlantedError


@pytest.mark.parametrize("name", INPUTS)
def test_a_short_run_finds_nothing(name: str) -> None:
    target = load(name)
    runner = fuzz(target, seed=SEED, inputs=INPUTS[name])
    if target.close is not None:
        target.close()
    assert runner.inputs == INPUTS[name]
    assert not runner.findings, "\n".join(finding.words for finding in runner.findings.values())


PLANTS: list[tuple[str, Any, str, int]] = [
    ("texts", functions, "_text", 300),
    ("texts", kinds, "bounds_of", 300),
    ("filters", matching, "_modified", 1500),
    ("filters", kinds, "_grouped", 1500),
    ("wire", sections, "_text", 500),
    ("wire", decoder, "_check_count", 500),
    ("frames", frames, "_across", 300),
    ("sasl", sasl, "_outcome", 100),
    ("sasl", scram, "_decoded", 100),
    ("sasl", tokens, "claim", 300),
    ("sasl", guard, "user_of", 300),
    ("dialogue", dispatch, "attach_request", 10),
    ("dialogue", records, "settle_returned", 100),
    ("client", links, "_refusal", 200),
    ("client", protocol, "read_condition", 50),
    ("management", management, "answer_message", 10),
    ("management", management, "requested_settings", 100),
    ("batches", formats, "_transfer", 300),
    ("batches", batches, "walk_sections", 3000),
    ("batches", sends, "_walk", 1000),
    ("compression", compression, "_other_size", 300),
    ("compression", sends, "_short", 300),
    ("triggers", anchors, "_of_map", 300),
    ("documents", json_patches, "_add", 300),
    ("documents", yaml_documents, "plain", 100),
    ("deciding", printing, "cell", 100),
    ("objects", applying, "apply", 100),
    ("replies", backoff, "retry_after_ms", 300),
    ("addresses", target, "quote", 100),
    ("spark", offsets, "_of_progress", 300),
]


@pytest.mark.parametrize(("name", "module", "function", "inputs"), PLANTS)
def test_a_planted_defect_is_found_and_the_input_shows_it_again(
    monkeypatch: pytest.MonkeyPatch, name: str, module: Any, function: str, inputs: int
) -> None:
    fuzzed = load(name)
    with monkeypatch.context() as planting:
        planting.setattr(module, function, raising)
        if module is functions:
            planting.setitem(functions._FUNCTIONS, "LEFT", raising)
        runner = fuzz(fuzzed, seed=SEED, inputs=inputs, wanted=_is_planted)
        found = next(filter(_is_planted, runner.findings.values()), None)
        assert found is not None, f"{function} is never reached"
        _, again = examine(fuzzed, found.data)
        assert again is not None
        assert again.place == found.place
    assert examine(fuzzed, found.data)[1] is None, "without the defect there is nothing wrong"


def _is_planted(finding: Finding) -> bool:
    return "PlantedError" in finding.place


def test_an_input_that_takes_too_long_is_found_and_one_that_never_ends_is_interrupted() -> None:
    def busy(data: bytes) -> None:
        while data == b"forever":
            pass
        sum(range(3_000_000 if data == b"long" else 3))

    target = Target("busy", busy, seconds_max=0.01, seconds_per_kib=0.0)
    assert [getattr(examine(target, data)[1], "kind", None) for data in (b"short", b"long", b"forever")] == [
        None,
        "slow",
        "hang",
    ]


def test_inputs_with_excessive_cost_are_found_by_time_and_by_memory() -> None:
    """Each is far beyond its budget or far within, so that the machine's load does not decide."""

    def multiplies(data: bytes) -> int:
        return len([place for place in data for _ in data]) if data[:1] == b"m" else sum(data)

    def squares(data: bytes) -> int:
        return sum(one == other for one in data for other in data) if data[:1] == b"s" else sum(data)

    memory = Target("memory", multiplies, seconds_max=60, bytes_max=1 << 20, bytes_per_byte=16)
    time = Target("time", squares, seconds_max=0.01, seconds_per_kib=0.001)
    found = {
        (target.name, data[:1].decode())
        for target in (memory, time)
        for data in (b"m" * 2000, b"s" * 2000, b"-" * 8000)
        if examine(target, data)[1] is not None
    }
    assert found == {("memory", "m"), ("time", "s")}


def test_growing_an_input_keeps_to_its_limit() -> None:
    mutator = Mutator(1, [b"abc" * 9], [])
    grown = [mutator.mutated(b"abc" * 9) for _ in range(400)]
    assert max(map(len, grown)) <= INPUT_BYTES_MAX
    assert any(len(each) > 1000 for each in grown)


def test_inputs_that_stop_a_process_are_found_and_the_others_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Campaign: the input outlives its process, and the line that it prints does it again."""
    ended = Campaign(tmp_path, seed=SEED, inputs=400, engine="mutator").run(["tests.fuzz.crashing"], 5)
    assert [run.findings for run in ended] == [1]
    (path,) = (tmp_path / "findings").glob("tests.fuzz.crashing-crash-*.input")
    assert b"!" in path.read_bytes()
    words = path.with_suffix(".txt").read_text()
    assert f"python -m fuzz replay tests.fuzz.crashing {path}" in words.splitlines()[0]
    assert "ended with -6" in words
    assert str(path) in capsys.readouterr().out


def test_an_input_that_never_ends_is_stopped_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "SILENT_SECONDS_MAX", 0.3)
    ended = Campaign(tmp_path, seed=SEED, inputs=10, engine="mutator").run(["tests.fuzz.hanging"], 2)
    assert [run.findings for run in ended] == [1]
    assert len(list((tmp_path / "findings").glob("tests.fuzz.hanging-hang-*.input"))) == 1


def test_a_run_that_grows_begins_with_what_earlier_runs_kept_and_adds_its_counts(tmp_path: Path) -> None:
    def run(seed: int) -> None:
        campaign = Campaign(tmp_path, seed=seed, jobs=1, inputs=200, engine="mutator", grow=True)
        campaign.run(["wire"], 60)

    corpus = tmp_path / "corpus" / "wire"
    run(1)
    first = {path.name: path.read_bytes() for path in corpus.iterdir()}
    run(1)
    assert len(first) > 1
    assert first.items() <= {path.name: path.read_bytes() for path in corpus.iterdir()}.items()
    totals = json.loads((tmp_path / "totals.json").read_text())["wire"]
    assert (totals["inputs"], totals["findings"]) == (400, 0)
    assert totals["cpu_seconds"] > 0


def test_a_stored_input_is_kept_once_and_mutated_by_later_runs(tmp_path: Path) -> None:
    stored = Kept(tmp_path)
    assert [stored.keep(b"one" * 20, "shown"), stored.keep(b"two", "shown")] == [True, False]
    again = Kept(tmp_path)
    assert (again.inputs(), again.keep(b"three", "shown")) == ([b"one" * 20], False)
    mutator = Mutator(1, [], [])
    mutator.recall(again.inputs())
    assert any(b"oneone" in data for data in islice(mutator.inputs(), 20))


def test_the_same_seed_makes_the_same_inputs() -> None:
    def inputs(seed: int) -> list[bytes]:
        mutator = Mutator(seed, [b"one", b"two"], [b"word"])
        made = []
        for data in islice(mutator.inputs(), 200):
            made.append(data)
            mutator.showed(data, len(data))
        return made

    assert inputs(1) == inputs(1) != inputs(2)


def test_choices_end_with_the_bytes_and_a_cut_input_is_an_input() -> None:
    draw = Draw(b"\x05\x03abc")
    assert (
        draw.below(4),
        draw.raw(10),
        draw.left,
        draw.byte(),
        draw.chance(2),
        draw.text(5),
        draw.pick("xyz"),
    ) == (
        1,
        b"abc",
        0,
        0,
        False,
        "",
        "x",
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_is_small_and_each_short_run_examines_it_first(name: str) -> None:
    """A fault that was found stays in the corpus, so that it stays fixed: each short run begins with it."""
    seeds = load(name).seeds()
    assert seeds
    assert sum(map(len, seeds)) < CORPUS_BYTES_MAX
    assert len(seeds) <= INPUTS.get(name, len(seeds))


def test_every_corpus_has_its_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(NAMES)


def test_a_finding_is_reported_and_ends_the_command_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.input"
    path.write_bytes(b"\x00LEFT('a', 1) = 'b'")
    assert main(["replay", "texts", str(path)]) == 0
    monkeypatch.setitem(functions._FUNCTIONS, "LEFT", raising)
    assert main(["replay", "texts", str(path)]) == 1
    assert "PlantedError" in capsys.readouterr().out
