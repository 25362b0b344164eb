"""The documentation builds as a site, strictly: every link leads somewhere, and every page is found."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.site import CONFIG, PAGES, ROOT, SITE, BrokenLinkError, build, copy, links

INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pages, and the site that is built from them."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    made = tmp_path_factory.mktemp("site")
    copy(ROOT, made / PAGES)
    assert build(made) == 0, "a page has a broken link: see above"
    return made


def test_every_page_is_in_the_site_and_in_its_search(folder: Path) -> None:
    found = json.loads((folder / SITE / "search.json").read_text())
    places = {item["location"].partition("#")[0] for item in found["items"]}
    pages = {path.relative_to(folder / PAGES) for path in (folder / PAGES).rglob("*.md")}
    assert len(pages) > 30
    for page in pages:
        place = page.parent if page.name in {"README.md", "index.md"} else page.with_suffix("")
        assert (folder / SITE / place / "index.html").is_file(), page
        assert ("" if place == Path() else f"{place.as_posix()}/") in places, page


@pytest.mark.parametrize("text", ["[x](nothing.md)", "[x](client.md#nothing)", "[x](#nothing)"])
def test_a_broken_link_between_pages_fails_the_build(text: str, tmp_path: Path) -> None:
    docs = tmp_path / PAGES / "docs"
    docs.mkdir(parents=True)
    (tmp_path / PAGES / "README.md").write_text("# Home\n\n[client](docs/client.md#send)\n")
    (docs / "client.md").write_text("# Client\n\n## Send\n")
    assert build(tmp_path) == 0
    (docs / "client.md").write_text(f"# Client\n\n## Send\n\n{text}\n")
    assert build(tmp_path) != 0


def test_a_link_to_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "[a](here.py) [b](gone.py#x) `[c](code.py)` [d](https://example.com/x.py)\n"
    )
    (tmp_path / "here.py").write_text("")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    with pytest.raises(BrokenLinkError, match=r"^page.md: gone.py does not exist$"):
        copy(tmp_path, tmp_path / "pages")
    (tmp_path / "gone.py").write_text("")
    copy(tmp_path, tmp_path / "pages")
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["gone.py", "here.py", "page.md"]


def test_the_index_has_every_page_once() -> None:
    pages = [
        path.relative_to(ROOT / "docs").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "index.md"
    ]
    entries = re.findall(r"^ *- \[[^]]*\]\(([^)#]+)\)", INDEX, re.MULTILINE)
    assert sorted(entries) == sorted(pages)
    inside = [link for link in links(INDEX) if not link.startswith("../")]
    assert inside == ["tutorial.md", *entries]


def test_the_navigation_has_the_pages_of_the_index_in_its_order() -> None:
    def files(entries: list[object]) -> Iterator[str]:
        for entry in entries:
            if isinstance(entry, str):
                yield entry
            else:
                assert isinstance(entry, dict)
                for value in entry.values():
                    yield from files(value if isinstance(value, list) else [value])

    listed = list(files(tomllib.loads(CONFIG.read_text())["project"]["nav"]))
    entries = re.findall(r"^- \[[^]]*\]\(([^)#]+)\)", INDEX, re.MULTILINE)
    assert [name.removeprefix("docs/") for name in listed if name.startswith("docs/")] == [
        "index.md",
        *entries,
    ]
    assert all((ROOT / name).is_file() for name in listed)
