"""docs/filters.md and docs/other-clients.md agree with the code."""

import re
from pathlib import Path

import pytest

from amqp_streams import names
from amqp_streams.filters.language.parser import ARGUMENT_COUNTS
from amqp_streams.filters.refusal import Limits
from amqp_streams.wire.types import Symbol
from tests.amqp_streams.filters.messages import Sample, truth

DOCS = Path(__file__).parent.parent / "docs"
FILTERS = (DOCS / "filters.md").read_text(encoding="utf-8")
OTHERS = (DOCS / "other-clients.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\| `(.+?)` \| (yes|no) \|", FILTERS, re.MULTILINE)
SAMPLE = Sample(
    message_annotations={Symbol("event-streams-group-key"): "kitchen"},
    properties=[None, None, None, "reading"],
    application_properties={"date": "2010/01/01 00:00", "temp": 39.4, "site": "roof"},
)


@pytest.mark.parametrize(("text", "answer"), EXAMPLES, ids=[text for text, _ in EXAMPLES])
def test_the_examples_of_conditions_hold(text: str, answer: str) -> None:
    assert (truth(text, SAMPLE) is True) is (answer == "yes")


def test_there_are_examples_of_every_function_and_the_limits_are_those_of_the_code() -> None:
    assert len(EXAMPLES) > 15
    limits = Limits()
    assert (
        f"At most {limits.filters} filters of a consumer, {limits.characters:,} characters and"
        f" {limits.tokens} tokens" in FILTERS
    )
    assert all(name in FILTERS for name in ARGUMENT_COUNTS if name != "DATE")


@pytest.mark.parametrize("page", [FILTERS, OTHERS], ids=["filters", "other-clients"])
def test_names_of_the_wire_are_spelt_as_the_node_knows_them(page: str) -> None:
    known = {value for value in vars(names).values() if isinstance(value, str)}
    written = set(re.findall(r"event-streams-[a-z-]+[a-z]|amqp:[a-z][a-z-]+", page))
    assert written
    assert written <= known | {"amqp:invalid-field"}
