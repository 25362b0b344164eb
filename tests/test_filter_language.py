"""docs/reference/filter-language.md agrees with the code: every example in it is evaluated."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from amqp_streams import names
from amqp_streams.filters.fields import DEFAULTS
from amqp_streams.filters.language.lexer import RESERVED_SQL
from amqp_streams.filters.language.parser import _COMPARISONS, _PRODUCTS, _SUMS, ARGUMENT_COUNTS
from amqp_streams.filters.refusal import FilterError, Limits
from amqp_streams.filters.values import FAILED
from amqp_streams.wire.layout import HEADER_FIELDS, PROPERTIES_FIELDS
from amqp_streams.wire.types import Symbol
from tests.amqp_streams.filters.messages import NOW_MS, Sample, truth

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reference" / "filter-language.md").read_text(encoding="utf-8")
RESULTS = {True: "true", False: "false", None: "unknown", FAILED: "error"}
EXAMPLES = re.findall(rf"^\| `(.+?)` \| ({'|'.join(RESULTS.values())}|refused) \|", PAGE, re.MULTILINE)


def described() -> dict[str, dict[str, Any]]:
    """The event that the page shows."""
    [block] = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    event: dict[str, dict[str, Any]] = json.loads(block)
    return event


def sample() -> Sample:
    event = described()
    return Sample(
        header=[event["header"].get(name) for name in HEADER_FIELDS],
        message_annotations={Symbol(name): value for name, value in event["message-annotations"].items()},
        properties=[event["properties"].get(name) for name in PROPERTIES_FIELDS],
        application_properties=event["application-properties"],
        timestamp_ms=NOW_MS - 60_000,
    )


SAMPLE = sample()


def result(text: str) -> str:
    try:
        return RESULTS[truth(text, SAMPLE)]
    except FilterError:
        return "refused"


@pytest.mark.parametrize(("text", "expected"), EXAMPLES, ids=[text for text, _ in EXAMPLES])
def test_every_example_has_the_result_that_the_page_says(text: str, expected: str) -> None:
    assert result(text) == expected


def test_every_row_with_a_condition_is_an_example() -> None:
    tables = re.findall(
        r"^\| condition \| result \| \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    )
    assert sum(table.count("\n") for table in tables) == len(EXAMPLES)


def test_the_event_is_the_first_row_of_the_example_data() -> None:
    with (ROOT / "examples" / "temperatures" / "seattle-temps.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    properties = described()["application-properties"]
    assert (row["date"], float(row["temp"])) == (properties["date"], properties["temp"])


def test_every_operator_keyword_function_and_result_has_an_example() -> None:
    words = set(re.findall(r"[A-Z]+|[<>=!]+|[-+*/%]", " ".join(text for text, _ in EXAMPLES)))
    wanted = {*RESERVED_SQL, *ARGUMENT_COUNTS, *_COMPARISONS, *_SUMS, *_PRODUCTS}
    assert wanted - words == set()
    assert {expected for _, expected in EXAMPLES} == {*RESULTS.values(), "refused"}


def test_every_field_that_has_a_name_of_its_own_is_listed() -> None:
    listed = {
        letter: re.findall("`([a-z-]+)`", text)
        for letter, text in re.findall(r"^Fields of `([hp])`: (.*?)\.\n\n", PAGE, re.MULTILINE | re.DOTALL)
    }
    assert listed == {"h": list(HEADER_FIELDS), "p": list(PROPERTIES_FIELDS)}
    for name in (
        names.OFFSET,
        names.TIMESTAMP,
        names.SOURCE_PARTITION,
        names.FILTEX_SQL,
        names.FILTER_SQL,
        names.SELECTOR,
    ):
        assert f"`{name}`" in PAGE
    assert DEFAULTS["priority"] == 4, "an example shows it"


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    words = (
        f"{limits.characters:,} characters, {limits.tokens} words, constants and marks, {limits.depth} levels"
    )
    assert f"Limits of a text: {words}." in PAGE
