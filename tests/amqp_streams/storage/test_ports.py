"""The interface of stores is described by laws, and each law is tested with every store."""

import re
from pathlib import Path

from amqp_streams.storage.ports import CommitQueue, Partition, States, Store

FOLDER = Path(__file__).parent / "conformance"
PAGE = Path(__file__).parents[3] / "docs" / "stores.md"


def suite() -> set[str]:
    """The tests of the conformance suite: file and name."""
    return {
        f"{file.name}::{name}"
        for file in FOLDER.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_each_test_of_the_suite_is_the_test_of_a_law_on_the_page() -> None:
    cited = set(re.findall(r"`(test_\w+\.py::test_\w+)`", PAGE.read_text(encoding="utf-8")))
    assert suite() == cited


def test_each_test_of_the_suite_runs_with_every_store() -> None:
    """A test that opens a store of its own belongs to the tests of that store."""
    for file in FOLDER.glob("test_*.py"):
        for name, arguments in re.findall(
            r"^def (test_\w+)\(([^)]*)\)", file.read_text(encoding="utf-8"), re.MULTILINE
        ):
            assert "hand: Hand" in arguments, f"{file.name}::{name}"


def test_everything_that_a_store_has_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for protocol in (CommitQueue, Partition, States, Store):
        members = {name for name in vars(protocol) | protocol.__annotations__ if not name.startswith("_")}
        assert [name for name in sorted(members) if f"`{protocol.__name__}.{name}`" not in text] == []
