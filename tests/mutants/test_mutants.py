"""The mutants fit today's code, and a hunt distinguishes a find from a broken run."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mutants import results
from mutants.__main__ import main
from mutants.catalogue import ROOT, CatalogueError, Change, Mutant, StaleError, read
from mutants.hunt import Hunt, Run, Verdict
from mutants.suites import SUITES
from tests.memory_folders import folder_in_memory

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
    with folder_in_memory(tmp_path) as folder:
        runs = list(Hunt(folder).runs([hurt, harmless]))
        assert [one.verdict for one in runs] == [Verdict.FOUND, Verdict.MISSED], runs
        assert not list(folder.iterdir())


_TEST = "tests/mutants/imports_errors.py"


def test_only_what_has_no_result_yet_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was found before is not run again, and counts."""
    file, folder = tmp_path / "results.json", tmp_path / "folder"
    both = [one for one in MUTANTS if list(one.found_by) == ["test"]][:2]
    kept: results.Results = {}
    for mutant in both:
        run = Run(mutant.name, "test", Verdict.FOUND, 1.0, "")
        kept = results.with_run(kept, mutant, run, "2026-11-28")
    results.write(kept, file)
    names = [one.name for one in both]
    assert main(["run", *names, "--missing", "--results", str(file), "--folder", str(folder)]) == 0
    assert re.search(r"^test +2 +2 +2 +1\.0$", capsys.readouterr().out, re.MULTILINE)
    assert not folder.exists()
    assert main(["report", "--results", str(file)]) == 0
    assert re.search(rf"^all +{len(MUTANTS)} +2 +2$", capsys.readouterr().out, re.MULTILINE)


def test_a_result_of_another_patch_does_not_count() -> None:
    mutant = Mutant("a", "", [Change("a.py", "old", "new")], {"sim": "20", "test": "t"})
    run = Run("a", "sim", Verdict.FOUND, 1.0, "")
    kept = results.with_run({}, mutant, run, "2026-11-28")
    assert list(results.current(kept, [mutant])) == [("a", "sim")]
    assert not results.current(kept, [replace(mutant, found_by={"sim": "30"})])
    assert not results.current(kept, [replace(mutant, changes=[Change("a.py", "old", "newer")])])
    assert list(results.current(kept, [replace(mutant, fault="in other words")])) == [("a", "sim")]


def test_the_page_shows_the_results_that_are_kept() -> None:
    """docs/reliability.md has the table of `python -m mutants report`, and results of removed mutants go."""
    kept = results.read()
    assert {name for name, _ in kept} <= {one.name for one in MUTANTS}
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = results.table(kept, MUTANTS).split("\n\n")[0].splitlines()
    missing = [row for row in rows if row not in page]
    assert not missing, "run `python -m mutants report`, and put its table into docs/reliability.md"


def test_an_unknown_mutant_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "nothing-of-this-name"])
    assert "no mutant named nothing-of-this-name" in capsys.readouterr().err
