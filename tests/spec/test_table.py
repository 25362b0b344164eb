"""docs/spec-coverage.md, the normative words of the specifications and the tests agree."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.spec.normative import (
    EVENT_STREAMS,
    FILTEX,
    KNATIVE_CONTRACT,
    KNATIVE_TEST,
    KNATIVE_WORDS_IN_LOWER_CASE,
    count,
)

HERE: Final = Path(__file__).parent
BESIDE_THE_CODE: Final = HERE.parent / "amqp_streams"
GATEWAY: Final = HERE.parent / "knative_gateway"
EVENT_FORMATS: Final = HERE.parent / "event_formats"
TABLE: Final = HERE.parent.parent / "docs" / "spec-coverage.md"
STATUSES: Final = {"covered", "not used", "peer's duty", "peer's choice"}
TABLES: Final[Mapping[str, Mapping[str, Mapping[str, int]]]] = {
    "Event Stream Extensions": EVENT_STREAMS,
    "AMQP Filter Expressions": FILTEX,
    "Knative Eventing Test Specification": KNATIVE_TEST,
    "Knative Eventing Data Plane Contract": KNATIVE_CONTRACT,
    "Knative Delivery Design": KNATIVE_WORDS_IN_LOWER_CASE,
    "Knative Event Delivery": KNATIVE_WORDS_IN_LOWER_CASE,
}
ROWS_MIN: Final = {
    "Knative Eventing Data Plane Contract": 25,
    "Knative Delivery Design": 12,
    "Knative Event Delivery": 12,
}
"""The minimum number of sections of a table. Other tables have at least 80."""
_COLUMNS: Final = ("section", "level", "clause", "status", "tests")
_ROW: Final = re.compile(
    "^" + "".join(rf"\| (?P<{column}>[^|]+) " for column in _COLUMNS) + r"\|$", re.MULTILINE
)
_CASES: Final = (
    "filters/evaluation/test_sql.py::test_a_filter_text_means_what_its_section_of_the_specification_says"
)


def rows(table: str) -> list[dict[str, str]]:
    text = TABLE.read_text().split(f"## {table}\n", 1)[1].split("\n## ", 1)[0]
    return [found.groupdict() for found in _ROW.finditer(text) if found["section"][0].isdecimal()]


def cited(row: Mapping[str, str]) -> list[str]:
    """The tests that a row names."""
    return re.findall(r"`([^`]+)`", row["tests"]) if row["tests"].startswith("`") else []


def all_rows() -> Iterator[dict[str, str]]:
    for table in TABLES:
        yield from rows(table)


def known_tests(folder: Path, prefix: str) -> dict[str, str]:
    """Every test of a folder with its docstring."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("test_*.py")):
        if path.name == Path(__file__).name:
            continue
        for each in ast.parse(path.read_text()).body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                found[f"{prefix}{path.name}::{each.name}"] = ast.get_docstring(each) or ""
    return found


def filter_tests() -> dict[str, str]:
    """The tests of the engine's filters, named from the engine's folder on."""
    filters = BESIDE_THE_CODE / "filters"
    folders = [
        filters,
        *(path for path in sorted(filters.rglob("*")) if path.is_dir() and path.name != "__pycache__"),
    ]
    found: dict[str, str] = {}
    for folder in folders:
        found |= known_tests(folder, f"{folder.relative_to(BESIDE_THE_CODE)}/")
    return found


def gateway_tests() -> dict[str, str]:
    """The gateway's, named from its folder on, and those of the event formats."""
    folders = [
        GATEWAY,
        *(path for path in sorted(GATEWAY.rglob("*")) if path.is_dir() and path.name != "__pycache__"),
    ]
    found = known_tests(EVENT_FORMATS, "event_formats/") | known_tests(
        EVENT_FORMATS / "amqp_binding", "event_formats/amqp_binding/"
    )
    for folder in folders:
        found |= known_tests(folder, "" if folder == GATEWAY else f"{folder.relative_to(GATEWAY)}/")
    return found


def sections_with_cases() -> set[str]:
    """Sections that the cases of the SQL test name."""
    tree = ast.parse((BESIDE_THE_CODE / "filters" / "evaluation" / "test_sql.py").read_text())
    (cases,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CASES"
    )
    assert isinstance(cases, ast.List)
    return {
        str(case.elts[0].value)
        for case in cases.elts
        if isinstance(case, ast.Tuple) and isinstance(case.elts[0], ast.Constant)
    }


@pytest.mark.parametrize("table", TABLES)
def test_every_normative_word_of_the_specification_has_its_row(table: str) -> None:
    """For each section, the table has as many rows of each level as the section has such words."""
    listed: dict[str, Counter[str]] = {}
    for row in rows(table):
        if row["level"] != "text":
            listed.setdefault(row["section"], Counter())[row["level"]] += 1
    assert {section: dict(sorted(levels.items())) for section, levels in listed.items()} == TABLES[table]


def test_every_test_that_a_table_names_exists() -> None:
    known = known_tests(HERE, "") | filter_tests() | gateway_tests()
    cases = {f"sql[{section}]" for section in sections_with_cases()} if _CASES in known else set()
    assert [
        name for row in all_rows() for name in cited(row) if name not in known and name not in cases
    ] == []


def test_every_test_of_the_specifications_is_in_a_table() -> None:
    named = {name for row in all_rows() for name in cited(row)}
    assert sorted((set(known_tests(HERE, "")) | set(known_tests(GATEWAY / "spec", "spec/"))) - named) == []


def test_every_row_has_a_status_and_a_level_that_we_know() -> None:
    levels = {level for counts in TABLES.values() for words in counts.values() for level in words}
    assert {row["status"] for row in all_rows()} <= STATUSES
    assert {row["level"] for row in all_rows()} == levels | {"text"}


def test_only_a_rule_for_peers_has_no_test() -> None:
    assert {row["status"] for row in all_rows() if not cited(row)} <= {"peer's choice", "not yet"}


def test_every_test_cites_its_section() -> None:
    assert [
        name for name, words in known_tests(HERE, "").items() if not re.match(r"(Section )?[0-9]", words)
    ] == []
    knative = re.compile(r"(data-plane-contract|test-spec|delivery-design|event-delivery)\b.*, [A-Z]")
    assert [
        name for name, words in known_tests(GATEWAY / "spec", "spec/").items() if not knative.match(words)
    ] == []


@pytest.mark.parametrize("table", TABLES)
def test_the_sections_follow_each_other(table: str) -> None:
    sections = [[int(part) for part in row["section"].split(" ")[0].split(".")] for row in rows(table)]
    assert sections == sorted(sections)
    assert len(sections) > ROWS_MIN.get(table, 80)


def test_words_are_counted_where_they_are_normative() -> None:
    text = """# 1 Introduction
The key words "MUST", "MUST NOT" and "MAY" are to be interpreted as described.
It MUST be, and it MAY
be; it MUST
NOT be, or must it?
### 1.2.3 Deeper
SHOULD NOT, SHOULD
# 2 Nothing
"""
    assert count(text) == {"1": {"MAY": 1, "MUST": 1, "MUST NOT": 1}, "1.2.3": {"SHOULD": 1, "SHOULD NOT": 1}}
    assert count("# One\n## Two:\nMAY <!-- MUST\nMUST --> MAY", titles=True) == {"1.1 Two": {"MAY": 2}}
    assert count("# One\n## Two\nMAY\n## Three\nMAY\n# Four\nMUST") == {
        "1.1": {"MAY": 1},
        "1.2": {"MAY": 1},
        "2": {"MUST": 1},
    }
