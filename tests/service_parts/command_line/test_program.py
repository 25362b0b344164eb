"""A program's commands are imported when they are used, and each way to end has its status."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from service_parts.command_line.program import Entry, Faults, Program, wants_json
from service_parts.command_line.wording import plain_sentence


class RefusedError(Exception):
    """A failure."""


class WrongError(RefusedError):
    """A usage error."""


def complain(error: Exception, as_json: bool) -> None:
    words = plain_sentence(error)
    click.echo(json.dumps({"error": words}) if as_json else f"sample: {words}", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True)
@click.argument("end")
def run(end: str, *, as_json: bool) -> int | None:
    """End with the given error."""
    ends = {
        "refused": RefusedError("no"),
        "wrong": WrongError("no"),
        "disk": OSError("no"),
        "interrupt": KeyboardInterrupt(),
    }
    if end in ends:
        raise ends[end]
    if end == "library":
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    return int(end) if end.isdecimal() else None


TABLE = {
    "run": Entry("tests.service_parts.command_line.test_program:run", "Run something.", "more"),
    "rung": Entry("no_such_library:command", "Never imported.", "more"),
}
FAULTS = Faults(failures=(RefusedError,), usage_errors=(WrongError,), complain=complain)
MAIN = Program("sample", table=TABLE, faults=FAULTS)
RUNNER = CliRunner()


def sample(*words: str) -> Result:
    return RUNNER.invoke(MAIN, words)


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        ("done", 0, ""),
        ("3", 3, ""),
        ("refused", 1, "sample: no\n"),
        ("disk", 1, "sample: no\n"),
        ("wrong", 2, "sample: no\n"),
        ("interrupt", 130, ""),
        ("library", 2, "sample: run needs the more extra: pip install 'amqp-event-streams[more]'\n"),
    ],
)
def test_how_a_command_ends_decides_the_status(end: str, status: int, words: str) -> None:
    done = sample("run", end)
    assert (done.exit_code, done.stdout, done.stderr) == (status, "", words)


def test_the_product_is_named_when_errors_are_for_programs() -> None:
    assert json.loads(sample("run", "--json", "refused").stderr) == {"error": "no"}


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"], ["--format=json"], ["-o", "json"]])
def test_a_usage_error_is_json_as_well(words: list[str]) -> None:
    for wrong, sentence in ((["run"], "Missing argument 'END'."), (["rum"], "No such command 'rum'. Did")):
        done = sample(*wrong, "--json") if wrong == ["run"] else sample(*wrong, *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert json.loads(done.stderr)["error"].startswith(sentence)


def test_json_after_the_end_of_options_is_not_an_option() -> None:
    assert wants_json(["run", "--json"])
    assert not wants_json(["run", "--", "--json"])
    assert not wants_json(["run", "--format", "text", "json"])


def test_help_and_completion_import_no_command() -> None:
    assert "Never imported." in sample("--help").stdout
    found = ShellComplete(MAIN, {}, "sample", "_SAMPLE_COMPLETE").get_completions([], "run")
    assert [(item.value, item.help) for item in found] == [
        ("run", "Run something."),
        ("rung", "Never imported."),
    ]


def test_a_command_that_cannot_be_imported_names_its_extra() -> None:
    done = sample("rung", "--help")
    assert (done.exit_code, done.stderr) == (
        2,
        "sample: rung needs the more extra: pip install 'amqp-event-streams[more]'\n",
    )


def test_the_nearest_name_is_suggested_for_a_command_that_does_not_exist() -> None:
    done = sample("rum")
    assert done.exit_code == 2
    assert "No such command 'rum'. Did you mean 'run'?" in done.stderr


@pytest.mark.parametrize("words", ["run", "--help", "--version"])
def test_a_full_disk_behind_stdout_is_reported_in_a_sentence(words: str, tmp_path: Path) -> None:
    script = tmp_path / "once.py"
    script.write_text(
        "import click\n"
        "from service_parts.command_line.program import Entry, Faults, Program\n"
        "from service_parts.command_line.wording import plain_sentence\n"
        "@click.command()\n"
        "def run():\n"
        "    click.echo('data')\n"
        "def complain(error, as_json):\n"
        "    click.echo(plain_sentence(error), err=True)\n"
        "if __name__ == '__main__':\n"
        "    faults = Faults(failures=(), usage_errors=(), complain=complain)\n"
        "    table = {'run': Entry('once:run', 'Run.')}\n"
        "    click.version_option('1')(Program('once', table=table, faults=faults))()\n"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script), words],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (1, "stdout: No space left on device\n")


def test_a_reader_that_has_seen_enough_is_not_a_failure(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text(
        "import click\n"
        "from service_parts.command_line.program import Entry, Faults, Program\n"
        "@click.command()\n"
        "def run():\n"
        "    for number in range(1000000):\n"
        "        click.echo(number)\n"
        "if __name__ == '__main__':\n"
        "    faults = Faults(failures=(), usage_errors=(), complain=print)\n"
        "    Program('many', table={'run': Entry('many:run', 'Run.')}, faults=faults)()\n"
    )
    command = f'"{sys.executable}" -W error "{script}" run | head -n 1; echo "${{PIPESTATUS[0]}}"'
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"}
    done = subprocess.run(
        ["/bin/bash", "-c", command], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0\n0\n", "")
