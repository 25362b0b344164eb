"""Each test of tests/spec that has a node, on Kafka."""

import inspect
from types import ModuleType

from bench.products.kafka_cluster import Cluster
from tests.kafka_spec.exceptions import EXCEPTIONS, SAMPLE
from tests.spec import (
    test_1_introduction,
    test_3_capabilities_and_defaults,
    test_4_5_consumer_groups,
    test_4_partitions,
    test_5_offsets_and_filters,
    test_6_runtime_information,
    test_filtex,
)

MODULES = (
    test_1_introduction,
    test_3_capabilities_and_defaults,
    test_4_5_consumer_groups,
    test_4_partitions,
    test_5_offsets_and_filters,
    test_6_runtime_information,
    test_filtex,
)


def _tests(module: ModuleType) -> dict[str, object]:
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and {"node", "client"} & inspect.signature(test).parameters.keys()
    }


globals().update({name: test for module in MODULES for name, test in _tests(module).items()})


def test_the_tables_name_tests_that_exist(kafka: Cluster) -> None:
    known = {name for module in MODULES for name in _tests(module)}
    assert kafka.brokers
    assert len(known) == sum(len(_tests(module)) for module in MODULES), "no two tests have one name"
    assert {name.partition("[")[0] for name in EXCEPTIONS} | SAMPLE <= known
