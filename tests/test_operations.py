"""The examples of docs/operations.md work: its configurations are read as described, and its rules and quotas
have the described effect.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from amqp_streams.cli.settings import node_settings
from amqp_streams.config import NodeSettings
from amqp_streams.kafka.brokers.figures import KafkaFigures
from amqp_streams.kafka.numbered.numbers import numbered_figures
from amqp_streams.policy import Quota, Right
from amqp_streams.server.observing.metrics import Metrics
from amqp_streams.streams.access import Access, Identity
from amqp_streams.streams.redirects import Redirects
from tests.amqp_streams.server.observing.test_metrics import STATUS, Source
from tests.deploy.test_observed import of_homes

TEXT = (Path(__file__).parent.parent / "docs" / "operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def read(block: str, folder: Path) -> NodeSettings:
    file = folder / "node.toml"
    file.write_text(block if "data_dir" in block else f'data_dir = "data"\n{block}')
    return node_settings({}, {}, file)


def showing(words: str, folder: Path) -> NodeSettings:
    """The one configuration that is shown with these words in it."""
    [block] = [block for block in BLOCKS if words in block]
    return read(block, folder)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_configuration_that_is_shown_can_be_read(block: str, tmp_path: Path) -> None:
    read(block, tmp_path)


@pytest.mark.parametrize(
    ("user", "log", "group", "rights"),
    [
        ("carol", "temps", None, "receive info"),
        ("carol", "orders", "billing-1", ""),
        ("meter", "temps", None, "send receive info"),
        ("meter", "sensor.1", None, "send"),
        ("billing", "orders", "billing-1", "receive"),
        ("billing", "orders", None, ""),
        ("alice", "anything", None, "send receive info manage"),
        (None, "temps", None, ""),
    ],
)
def test_the_rules_that_are_shown_mean_what_is_said_of_them(
    user: str | None, log: str, group: str | None, rights: str, tmp_path: Path
) -> None:
    settings = showing("[[access]]", tmp_path)
    access = Access(settings.access, settings.user_groups)
    assert [
        right.value for right in Right if access.allows(Identity(user), right, log, group)
    ] == rights.split()


def test_the_quotas_and_redirects_that_are_shown_are_those(tmp_path: Path) -> None:
    quotas = showing("[quotas", tmp_path).quotas
    assert quotas == {
        "*": Quota(connections=20, links=200, bytes_in=10 << 20, bytes_out=20 << 20),
        "gateway": Quota(bytes_in=100 << 20),
        "anonymous": Quota(connections=5),
    }
    places = Redirects(showing("[[redirect]]", tmp_path).redirects).of("temps", 4)
    assert sorted(places) == [2, 3]


def test_every_right_is_told() -> None:
    for right in Right:
        assert f"\n| `{right.value}` |" in TEXT


async def test_every_metric_is_listed_and_every_listed_metric_exists(tmp_path: Path) -> None:
    kafka = KafkaFigures()
    kafka.statistics('{"brokers": {"a:9092/1": {"nodeid": 1, "state": "UP"}}}')
    metrics = Metrics(data_dir=tmp_path, refused=lambda: 0, expires_at=lambda: 0.0)
    figures = (*kafka.figures(), *numbered_figures(1, {}, 1))
    metrics.source = Source(replace(STATUS, figures=figures))
    text = (await metrics.text()).decode() + of_homes()
    # The library adds a time of creation to each histogram.
    shown = set(re.findall(r"^# TYPE (amqp_streams_\w+?)(?<!_created) ", text, re.MULTILINE))
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `amqp_streams_")]
    listed = {name for row in rows for name in re.findall(r"`(amqp_streams_[a-z_]+)", row)}
    assert shown == listed
