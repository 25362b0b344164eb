"""docs/spec-coverage.md and the tests of the specification say the same."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parent.parent / "docs" / "spec-coverage.md"
STATUSES = {"covered", "not yet", "not used", "peer's duty", "peer's choice"}
_COLUMNS = ("section", "level", "clause", "status", "test")
_ROW = re.compile("^" + "".join(rf"\| (?P<{column}>[^|]+) " for column in _COLUMNS) + r"\|$", re.MULTILINE)


def rows() -> list[dict[str, str]]:
    return [found.groupdict() for found in _ROW.finditer(TABLE.read_text()) if found["section"][0].isdecimal()]


def known_tests() -> dict[str, str]:
    """Every test of the specification with its docstring."""
    found: dict[str, str] = {}
    for path in sorted(HERE.glob("test_*.py")):
        if path.name == Path(__file__).name:
            continue
        for each in ast.parse(path.read_text()).body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                found[f"`{path.name}::{each.name}`"] = ast.get_docstring(each) or ""
    return found


def test_every_test_that_the_table_names_exists() -> None:
    known = known_tests()
    assert [row["test"] for row in rows() if row["test"].startswith("`") and row["test"] not in known] == []


def test_every_test_of_the_specification_is_in_the_table() -> None:
    named = {row["test"] for row in rows()}
    assert sorted(set(known_tests()) - named) == []


def test_every_row_has_a_status_and_a_level_that_we_know() -> None:
    assert {row["status"] for row in rows()} <= STATUSES
    assert {row["level"] for row in rows()} <= {"MUST", "MUST NOT", "SHOULD", "MAY", "text"}


def test_only_a_rule_for_peers_has_no_test() -> None:
    assert {row["status"] for row in rows() if not row["test"].startswith("`")} <= {"peer's choice"}


def test_every_test_cites_its_section() -> None:
    assert [name for name, words in known_tests().items() if not re.match(r"(Section )?[0-9]", words)] == []


def test_the_sections_follow_each_other() -> None:
    sections = [[int(part) for part in row["section"].split(".")] for row in rows()]
    assert sections == sorted(sections)
    assert len(sections) > 80
