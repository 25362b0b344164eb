"""Columns that can be written, and the errors for those that cannot."""

import re
from pathlib import Path

import pytest

from spark_connector.errors import SchemaError
from spark_connector.writing.layout import COLUMNS, Column, Layout, Style, plan

EVENT = (Column("id", "string"), Column("source", "string"), Column("type", "string"))


def test_columns_are_found_whatever_the_case_and_order_of_their_names() -> None:
    assert plan([Column("Key", "string"), Column("BODY", "binary")]) == Layout(
        Style.MESSAGES, {"key": 0, "body": 1}
    )


def test_cloudevents_are_recognized_by_their_columns() -> None:
    assert plan([*EVENT, Column("subject", "string")]).style is Style.CLOUDEVENTS


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            [Column("value", "binary")],
            "no column body and no columns of CloudEvents among value.*withColumnRenamed..value., .body",
        ),
        ([Column("key", "string")], r"column body \(binary or string\) is missing"),
        ([Column("body", "bigint")], "column body is bigint. Expected: binary or string; cast it"),
        (
            [Column("body", "binary"), Column("partition", "string")],
            "column partition is string. Expected: tinyint or smallint or int or bigint",
        ),
        (
            [Column("body", "binary"), Column("propertys", "string")],
            "column propertys does not exist for messages. Did you mean properties?",
        ),
        (
            [Column("value", "binary"), Column("key", "string")],
            "column value does not exist for messages. Did you mean body?",
        ),
        (
            [Column("body", "binary"), Column("partitionKey", "string")],
            r"column partitionKey .*\. Did you mean key\?",
        ),
        (
            [Column("body", "binary"), Column("headers", "string")],
            r"column headers .*\. Did you mean properties\?",
        ),
        (
            [Column("body", "binary"), Column("topic", "string")],
            r"column topic cannot be written\. The option 'stream'",
        ),
        (
            [Column("body", "binary"), Column("offset", "bigint")],
            r'column offset is set by the log .* drop\("offset"\)',
        ),
        ([Column("body", "binary"), Column("Body", "string")], "column body exists more than once"),
        (
            [Column("body", "binary"), Column("properties", "string")],
            "column properties is string. Expected: map<string, T> or struct",
        ),
        (
            [Column("body", "binary"), Column("properties", "map<string,date>", {"*": "date"})],
            "column properties cannot be written: its values are date",
        ),
        (
            [Column("body", "binary"), Column("properties", "struct<day:date>", {"day": "date"})],
            "column properties cannot be written: its field day is date",
        ),
        (
            [Column("body", "binary"), *EVENT],
            (
                r"the columns belong to two layouts: body \(of messages\) and id, source, type \(of"
                r" CloudEvents\)"
            ),
        ),
        (EVENT[:2], r"column type \(string\) is missing: CloudEvents need it. Columns: id, source"),
        (
            [*EVENT, Column("time", "timestamp_ntz")],
            "column time is timestamp_ntz. Expected: timestamp or string",
        ),
        (
            [*EVENT, Column("extensions", "map<string,double>", {"*": "double"})],
            "its values are double. Expected: map<string, T>",
        ),
    ],
)
def test_a_column_that_cannot_be_written_is_named_with_what_is_wanted(
    columns: list[Column], words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        plan(columns)


@pytest.mark.parametrize("kind", ["string", "string collate UTF8_LCASE", "varchar(10)", "char(3)"])
def test_all_kinds_of_text_are_text(kind: str) -> None:
    assert plan([Column("body", kind), Column("properties", f"map<string,{kind}>", {"*": kind})]).indexes == {
        "body": 0,
        "properties": 1,
    }


def test_every_column_of_a_layout_can_be_written() -> None:
    for style, columns in COLUMNS.items():
        every = [
            Column(
                name, rule.types[0] if rule.types else "map", {"*": rule.inside[0]} if rule.inside else None
            )
            for name, rule in columns.items()
        ]
        assert plan(every) == Layout(style, {name: place for place, name in enumerate(columns)})


@pytest.mark.parametrize("style", Style)
def test_the_documentation_has_these_columns_and_types(style: Style) -> None:
    text = (Path(__file__).parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    part = text.partition("### Columns that are written")[2].partition("###")[0]
    table = dict(zip(Style, part.split("**CloudEvents**"), strict=True))[style]
    told: dict[str, str] = {}
    for names, types in re.findall(r"^\| (`.*?`) \| (.*?) \|", table, re.MULTILINE):
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), types)
    for name, rule in COLUMNS[style].items():
        wanted = "map or struct" if rule.inside else " or ".join(", ".join(rule.types).rsplit(", ", 1))
        if rule.required:
            wanted += ", required" + (", not empty" if style is Style.CLOUDEVENTS else "")
        assert told.pop(name) == wanted
    assert not told
