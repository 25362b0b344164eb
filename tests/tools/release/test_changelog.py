"""Cutting the changelog: a version with a date, and links that still lead somewhere."""

import re
from pathlib import Path

import pytest

from tools.release.changelog import anchor, cut, notes, versions
from tools.release.errors import ReleaseError

ROOT = Path(__file__).parent.parent.parent.parent
TEXT = """\
# Changelog

What changes for users.

## Unreleased

[Added](#added), [Fixed](#fixed)

### Added

- A thing ([page](docs/client.md#added)).

### Fixed

- A fault.
"""


def anchors(text: str) -> list[str]:
    return [anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]


def test_the_entries_get_a_version_and_a_date_below_an_empty_section() -> None:
    made = cut(TEXT, "1.2.0", "2026-11-28")
    assert versions(made) == ["1.2.0"]
    assert notes(made) == ""
    assert "## Unreleased\n\n## 1.2.0 (2026-11-28)\n\n[Added](#added-in-120)" in made
    assert notes(made, "1.2.0").endswith("- A fault.")
    assert made.endswith("- A fault.\n")
    assert "Versions: [Unreleased](#unreleased) [1.2.0](#120-2026-11-28)\n" in made
    assert "[page](docs/client.md#added)" in made, "links to other pages stay"


def test_each_link_of_several_versions_leads_to_one_heading() -> None:
    """The same headings in each version, as they are in practice."""
    made = TEXT
    for number in range(1, 12):
        made = cut(made, f"1.{number}.0", f"2026-12-{number:02}")
        again = "## Unreleased\n\n[Added](#added)\n\n### Added\n\n- Another thing.\n\n"
        made = made.replace("## Unreleased\n\n", again)
    assert versions(made) == [f"1.{number}.0" for number in range(11, 0, -1)]
    found = anchors(made)
    assert len(found) == len(set(found))
    assert set(re.findall(r"\]\(#([^)]+)\)", made)) <= set(found)
    assert made.count("Versions:") == 1
    assert all(len(line) <= 110 for line in made.splitlines())
    assert notes(made, "1.1.0").count("- ") == 2


@pytest.mark.parametrize(
    "text",
    [
        "# Changelog\n\n## Unreleased\n",
        "# Changelog\n\n## Unreleased\n\n### Added\n\n",
        "# Changelog\n\n## Unreleased\n\n## 1.0.0 (2026-01-01)\n\n- A thing.\n",
    ],
)
def test_a_changelog_without_entries_is_refused(text: str) -> None:
    with pytest.raises(ReleaseError, match="no entries under 'Unreleased'"):
        cut(text, "1.2.0", "2026-11-28")


def test_a_version_that_the_changelog_has_is_refused() -> None:
    made = cut(TEXT, "1.2.0", "2026-11-28").replace("## Unreleased\n", "## Unreleased\n\n- A thing.\n")
    with pytest.raises(ReleaseError, match=r"already has the version 1\.2\.0"):
        cut(made, "1.2.0", "2026-11-29")


def test_a_changelog_without_the_section_is_refused() -> None:
    with pytest.raises(ReleaseError, match="no section '## Unreleased'"):
        cut("# Changelog\n", "1.2.0", "2026-11-28")


def test_the_changelog_of_this_repository_can_be_cut() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not notes(text):
        text = text.replace("## Unreleased\n", "## Unreleased\n\n- A thing.\n")
    made = cut(text, "999.0.0", "2026-11-28")
    assert set(re.findall(r"\]\(#([^)]+)\)", made)) <= set(anchors(made))
    assert len(anchors(made)) == len(set(anchors(made)))
