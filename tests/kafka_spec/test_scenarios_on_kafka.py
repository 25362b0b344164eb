"""The scenarios of the specification and of extensions (tests/scenarios) over sockets, with nodes on Kafka.

Those that do not hold on Kafka are played as well: one that goes as it is written fails the run.
"""

import json
import uuid
from collections.abc import Iterator

import pytest

from bench.products.kafka_cluster import Cluster
from bench.products.kafka_node import KafkaNode
from tests.kafka_spec.exceptions import SCENARIO_EXCEPTIONS, SCENARIO_SAMPLE
from tests.scenarios.playing import Player
from tests.scenarios.script import Scenario, sections
from tests.scenarios.test_extensions import SECTION as EXTENSIONS
from tests.scenarios.wire import PATIENCE_S, Storing, WireStage, command_of

SCENARIOS = {
    scenario.name: scenario for section in (*sections(), EXTENSIONS) for scenario in section.scenarios
}
IMPATIENCE_S = 5.0
"""How long a scenario that is expected to go otherwise waits for what is written."""


class OtherwiseError(Exception):
    """A scenario goes otherwise than it is written."""


@pytest.fixture(scope="module")
def stage(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireStage]:
    """Nodes on Kafka that all scenarios share."""
    servers = json.dumps([broker.server for broker in kafka.brokers])
    tables = ("[kafka]", f"servers = {servers}", f'prefix = "t{uuid.uuid4().hex[:12]}"')
    storing = Storing(KafkaNode, ('store = "kafka"',), tables)
    with WireStage(command_of("proton"), tmp_path_factory.mktemp("stage"), storing) as stage:
        yield stage


def _marked(name: str) -> object:
    marks = [] if name in SCENARIO_SAMPLE else [pytest.mark.slow]
    reason = SCENARIO_EXCEPTIONS.get(name)
    if reason is not None:
        marks.append(pytest.mark.xfail(raises=OtherwiseError, strict=True, reason=reason))
    return pytest.param(SCENARIOS[name], id=name, marks=marks)


@pytest.mark.parametrize("scenario", [_marked(name) for name in SCENARIOS])
def test_what_is_written_is_what_happens_on_kafka(stage: WireStage, scenario: Scenario) -> None:
    stage.patience_s = IMPATIENCE_S if scenario.name in SCENARIO_EXCEPTIONS else PATIENCE_S
    otherwise = Player(stage).fails(scenario)
    if otherwise is not None:
        raise OtherwiseError(otherwise)


def test_the_tables_name_scenarios_that_exist() -> None:
    assert SCENARIO_EXCEPTIONS.keys() | SCENARIO_SAMPLE <= SCENARIOS.keys()
