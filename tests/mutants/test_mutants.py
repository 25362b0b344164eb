"""The mutants fit today's code, and a hunt distinguishes a find from a broken run."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from mutants.__main__ import main
from mutants.catalogue import ROOT, CatalogueError, Change, Mutant, StaleError, read
from mutants.hunt import Hunt, Run, Verdict
from mutants.suites import SUITES

MUTANTS = read()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_each_mutant_fits_the_code_and_is_still_python(mutant: Mutant) -> None:
    texts: dict[str, str] = {}
    for change in mutant.changes:
        text = texts.get(change.file) or (ROOT / change.file).read_text(encoding="utf-8")
        texts[change.file] = change.applied(text)
    for file, text in texts.items():
        compile(text, file, "exec")
    assert set(mutant.found_by) <= set(SUITES)
    for test in mutant.found_by.get("test", "").split():
        file, _, name = test.partition("::")
        path = ROOT / file
        assert path.is_dir() or f"def {name}" in path.read_text(encoding="utf-8"), f"{test} does not exist"


def test_a_change_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(StaleError, match="stands 0 times"):
        Change("a.py", "old", "new").applied("text")
    with pytest.raises(StaleError, match="stands 2 times"):
        Change("a.py", "t", "new").applied("text")
    with pytest.raises(StaleError, match="is the old text"):
        Change("a.py", "text", "text").applied("text")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[mutant", "is not a valid catalogue"),
        ("[[mutant]]\nname = 'a'", "'fault'|'change'"),
        ("[[mutant]]\nname = 'a'\nfault = 'b'\nchange = []\nfound_by = {}", "needs a change and a suite"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(CatalogueError, match=words):
        read(tmp_path)


@pytest.mark.heavy
def test_a_hunt_finds_a_planted_fault_and_nothing_in_sound_code(tmp_path: Path) -> None:
    """Three real runs: without the fault, with it, and with a change that hurts nothing."""
    file = "service_parts/errors.py"
    text = (ROOT / file).read_text(encoding="utf-8")
    first = text.splitlines()[0]
    hurt = Mutant(
        "hurt", "", [Change(file, first, f"raise RuntimeError('planted')\n{first}")], {"test": _TEST}
    )
    harmless = Mutant("harmless", "", [Change(file, first, f"{first}\n")], {"test": _TEST})
    runs = list(Hunt(tmp_path).runs([hurt, harmless]))
    assert [one.verdict for one in runs] == [Verdict.FOUND, Verdict.MISSED], runs
    assert not list(tmp_path.iterdir())


_TEST = "tests/mutants/imports_errors.py"


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was found before is not run again, and counts."""
    state = tmp_path / "state.json"
    name, other = (one.name for one in [one for one in MUTANTS if "test" in one.found_by][:2])
    runs = [Run(each, "test", Verdict.FOUND, 1.0, "") for each in (name, other)]
    state.write_text(json.dumps([asdict(run) for run in runs]))
    folder = tmp_path / "folder"
    arguments = ["--suite", "test", "--state", str(state), "--folder", str(folder)]
    assert main(["run", name, other, *arguments]) == 0
    assert "test       found 2 of 2" in capsys.readouterr().out
    assert not folder.exists()


def test_an_unknown_mutant_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "nothing-of-this-name"])
    assert "no mutant named nothing-of-this-name" in capsys.readouterr().err
