"""The Dockerfile follows the rules of hadolint, copies what exists, and its commands are in the wheel."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = {
    found[1] or "": stage
    for stage in re.split(r"^(?=FROM )", TEXT, flags=re.MULTILINE)[1:]
    if (found := re.match(r"FROM \S+(?: AS (\S+))?\n", stage))
}
"""Each stage by its name; the last one has none."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def command(stage: str, name: str) -> list[str]:
    found = re.findall(rf"^\s*(?:HEALTHCHECK .*)?{name} (?:\\\n\s+)?(\[.*\])$", STAGES[stage], re.MULTILINE)
    (line,) = found[-1:]
    words: list[str] = json.loads(line)
    return words


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint") or shutil.which("hadolint", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("hadolint has no wheel for this machine")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_each_copied_file_exists_and_is_in_the_build_context() -> None:
    allowed = {
        line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", TEXT, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert len(copied) > 10
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source in allowed, source


def test_each_stage_copies_from_a_stage_that_exists() -> None:
    named = re.findall(r"COPY --from=(\S+) (\S+)", TEXT)
    assert {name for name, _ in named} == {"build", "build-job"}
    for name, folder in named:
        assert f"python -m venv {folder} " in STAGES[name]


@pytest.mark.parametrize(
    ("stage", "extras"),
    [("build", "compression,console,gateway,kafka,node"), ("build-job", "compression,spark")],
)
def test_the_image_has_the_extras_that_its_commands_need(stage: str, extras: str) -> None:
    (installed,) = re.findall(r"'\.\[([a-z,]+)\]'", STAGES[stage])
    assert installed == extras
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()


def test_the_programs_of_the_image_are_in_the_wheel() -> None:
    program, *arguments = command("", "ENTRYPOINT")
    assert program in PROJECT["scripts"]
    assert arguments[0] == "serve"
    assert command("job", "ENTRYPOINT") == ["python"]
    (script,) = command("job", "CMD")
    assert (ROOT / "deploy" / "spark" / Path(script).name).is_file()
    assert "COPY deploy/spark /opt/jobs" in STAGES["job"]


@pytest.mark.parametrize("stage", ["", "job"])
def test_no_image_runs_as_root_and_each_has_a_health_check(stage: str) -> None:
    assert re.findall(r"^USER (\S+)$", STAGES[stage], re.MULTILINE) == ["10001"]
    assert "--uid 10001" in STAGES[stage]
    program, flag, code = command(stage, "CMD" if stage == "" else r"HEALTHCHECK .* CMD")
    assert (program, flag) == ("python", "-c")
    compile(code, "the health check", "exec")
