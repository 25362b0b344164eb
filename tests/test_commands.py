"""The reference pages and the man pages of commands are what --help says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools import commands
from tools.commands import Command
from tools.reference import FOLDER

EVERY = [one for program in commands.PROGRAMS for one in commands.commands(program)]
GROFF = shutil.which("groff")


@pytest.mark.parametrize("program", commands.PROGRAMS)
def test_the_page_is_what_the_help_says_now(program: str) -> None:
    written = (FOLDER / commands.page_of(program)).read_text(encoding="utf-8")
    assert written == commands.page(program), "a page in docs/reference/ is out of date: run `make reference`"


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command.name)
def test_a_man_page_has_the_options_and_examples_of_the_help(command: Command) -> None:
    shown = CliRunner().invoke(commands.PROGRAMS[command.words[0]], [*command.words[1:], "--help"]).output
    page = commands.man_page(command).replace("\\-", "-").replace("\\e", "\\").replace("\\(dq", '"')
    for flag in re.findall(r"^  (?:-., )?(--[a-z-]+)", shown, re.MULTILINE):
        assert re.search(rf"^\.B (?:-., )?{flag}\b", page, re.MULTILINE), flag
    for line in shown.partition("Examples:\n")[2].partition("\n\n")[0].splitlines():
        assert f"\n{line.strip()}\n" in re.sub(r"\n +", "\n", page)
    assert page.startswith(f'.TH "{"-".join(command.words).upper()}" 1 ')


@pytest.mark.skipif(GROFF is None, reason="groff is not installed")
def test_groff_formats_each_man_page_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "MAN", tmp_path / "man1")
    commands.main()
    pages = sorted((tmp_path / "man1").iterdir())
    assert len(pages) == len(EVERY)
    assert GROFF is not None
    done = subprocess.run(
        [GROFF, "-man", "-Kutf8", "-Tutf8", "-ww", "-z", *map(str, pages)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("man") is None or GROFF is None, reason="man is not installed")
def test_man_shows_a_page(tmp_path: Path) -> None:
    [command] = [one for one in EVERY if one.name == "amqp-streams log create"]
    page = tmp_path / "amqp-streams-log-create.1"
    page.write_text(commands.man_page(command), encoding="utf-8")
    environment = {"MANWIDTH": "100", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "MAN_KEEP_FORMATTING": ""}
    done = subprocess.run(
        ["man", "-P", "cat", "-l", str(page)], capture_output=True, text=True, check=True, env=environment
    )
    assert "amqp-streams log create temps --partitions 4" in done.stdout
    assert "--retention" in done.stdout
