"""Columns: the values of the option, the schemas that `.schema(…)` may name, and that the documentation lists
them.
"""

from pathlib import Path

import pytest

from spark_connector.errors import SchemaError
from spark_connector.rows.columns import EVENTS, MESSAGES, Column, choose, fit

DOC = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")


def test_without_a_word_the_columns_are_these() -> None:
    assert choose(["default"]).names == (
        "body",
        "stream",
        "partition",
        "offset",
        "enqueued_time",
        "key",
        "properties",
    )
    assert "properties" not in choose(["default"], properties=False).names
    assert choose(["CloudEvents"]).names == (
        "id",
        "source",
        "type",
        "subject",
        "time",
        "datacontenttype",
        "data",
        "extensions",
    )


def test_words_are_groups_and_columns_in_the_order_given() -> None:
    assert choose(["offset", "body"]).names == ("offset", "body")
    assert choose(["subject", "default", "error"]).names[:3] == ("subject", "body", "stream")
    assert choose(["all"]).names == tuple(one.name for one in MESSAGES)
    assert choose(["cloudevents", "all"]).events
    assert set(choose(["cloudevents", "all"]).names) == {one.name for one in EVENTS}
    assert choose(["cloudevents", "offset"]).names[-1] == "offset"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["ofset"], "unknown column 'ofset'.*Did you mean 'offset'"),
        (["source"], "It is a column of CloudEvents: add"),
        (["zzzz"], r"Columns: body, stream"),
        (["cloudevents", "body"], "unknown column 'body' .columns of CloudEvents"),
        (["body", "body"], "column 'body' is repeated"),
    ],
)
def test_an_unknown_column_is_an_error_that_names_the_nearest(words: list[str], wanted: str) -> None:
    with pytest.raises(SchemaError, match=wanted):
        choose(words)


def test_a_schema_has_columns_in_its_own_order_and_with_types_that_they_can_have() -> None:
    found = fit([("offset", "bigint"), ("BODY", "string")], events=False)
    assert [(column.name, kind) for column, kind in found.columns] == [
        ("offset", "bigint"),
        ("body", "string"),
    ]
    with pytest.raises(
        SchemaError,
        match=r"column 'offset' cannot have type int .* Its type is bigint; cast it after reading",
    ):
        fit([("offset", "int")], events=False)
    with pytest.raises(SchemaError, match="Its type is binary or string"):
        fit([("data", "int")], events=True)


def row(column: Column) -> str:
    """A column as docs/spark.md has it."""
    types = " or ".join(f"`{kind}`" for kind in (column.type, *column.also))
    name = f"**`{column.name}`**" if column.default else f"`{column.name}`"
    return f"| {name} | {types}{'' if column.nullable else ', never null'} | {column.meaning} |"


def test_the_documentation_has_every_column_as_it_is() -> None:
    lines = set(DOC.splitlines())
    assert not [line for line in map(row, (*MESSAGES, *EVENTS)) if line not in lines]
