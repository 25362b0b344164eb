"""Each test of tests/spec that has a node, on Kafka."""

from bench.products.kafka_cluster import Cluster
from tests import borrowed, spec
from tests.kafka_spec.exceptions import EXCEPTIONS, HOMED, SAMPLE

TESTS = [borrowed.cases(module, with_any=frozenset({"node", "client"})) for module in borrowed.modules(spec)]
globals().update({name: test for tests in TESTS for name, test in tests.items()})


def test_the_tables_name_tests_that_exist(kafka: Cluster) -> None:
    known = {name for tests in TESTS for name in tests}
    assert kafka.brokers
    assert len(known) == sum(map(len, TESTS)), "no two tests have one name"
    assert {name.partition("[")[0] for name in EXCEPTIONS} | SAMPLE | HOMED <= known
