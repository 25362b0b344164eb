"""`make docs`: the documentation as a site with search, in build/site.

A broken link, also to an anchor, is an error.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
CONFIG: Final = ROOT / "zensical.toml"
PAGES: Final = "pages"
SITE: Final = "site"
_LINK: Final = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)[^)]*\)")
_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


class BrokenLinkError(Exception):
    """Pages link to files that do not exist."""


def main() -> int:
    """Build into build/; the exit status."""
    try:
        copy(ROOT, ROOT / "build" / PAGES)
    except BrokenLinkError as error:
        print(error, file=sys.stderr)
        return 1
    return build(ROOT / "build")


def copy(root: Path, pages: Path) -> None:
    """Copy every Markdown file of the repository, and the source files that they link to, into an empty
    folder.

    The site generator checks links between pages. Links to other files are checked here.

    Raises:
        BrokenLinkError: one line for each file that does not exist.
    """
    shutil.rmtree(pages, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = {Path(name) for name in listed if (root / name).is_file()}
    linked = {
        (page, Path(os.path.normpath(page.parent / link)))
        for page in wanted
        for link in links((root / page).read_text())
    }
    broken = sorted(
        f"{page}: {target} does not exist" for page, target in linked if not (root / target).exists()
    )
    if broken:
        raise BrokenLinkError("\n".join(broken))
    for file in wanted | {target for _, target in linked if (root / target).is_file()}:
        (pages / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, pages / file)


def links(text: str) -> list[str]:
    """The relative links of a page, without fragments."""
    return _LINK.findall(_CODE.sub("", text))


def build(folder: Path) -> int:
    """Make a site of the pages in `folder`; the generator's exit status."""
    config = folder / CONFIG.name
    shutil.copyfile(CONFIG, config)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(config)]
    return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
