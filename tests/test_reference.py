"""docs/reference/ agrees with the code, and the schemas of configuration files describe the documented
files.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from amqp_streams.cli import main as node_main
from amqp_streams.cli.settings import node_settings
from amqp_streams.errors import ConfigError as NodeConfigError
from knative_gateway.cli import main as gateway_main
from knative_gateway.cli.settings import gateway_settings
from knative_gateway.errors import ConfigError as GatewayConfigError
from service_parts.settings.reference import Form, Kind, Section, Setting, Shape
from tools import commands, reference
from tools.reference import COMMAND, FOLDER, PROGRAMS, Program, heading, page

DOCS = Path(__file__).parent.parent / "docs"
MAINS = {"amqp-streams serve": node_main, "knative-gateway serve": gateway_main}
EVERY = [(program, *found) for program in PROGRAMS for found in (
    *((None, setting) for setting in program.contents.settings),
    *((section, setting) for section in program.contents.sections for setting in section.settings),
)]  # fmt: skip
NAMES = [
    f"{program.page}-{section.name if section else ''}.{setting.name}" for program, section, setting in EVERY
]


def examples() -> list[tuple[str, str]]:
    """Every TOML block of the documentation."""
    pages = sorted(DOCS.glob("*.md"))
    return [
        (path.name, block)
        for path in pages
        for block in re.findall(r"^```toml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    ]


def help_example(command: str) -> str:
    """Return the file that the help of `serve` shows."""
    told = CliRunner().invoke(MAINS[command], ["serve", "--help"]).stdout
    lines = (
        re.split(r"The file has the (?:flags' names|names\s+of the flags):", told)[1]
        .split("\n\n")[1]
        .splitlines()
    )
    return "\n".join(line.strip() for line in lines)


def schema(command: str) -> dict[str, Any]:
    done = CliRunner().invoke(MAINS[command], ["serve", "--schema"])
    assert done.exit_code == 0
    found: dict[str, Any] = json.loads(done.stdout)
    Draft202012Validator.check_schema(found)
    return found


SCHEMAS = {program.command: Draft202012Validator(schema(program.command)) for program in PROGRAMS}


def complaints(command: str, file: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in SCHEMAS[command].iter_errors(file)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.page)
def test_the_page_is_what_the_code_says_now(program: Program) -> None:
    written = (FOLDER / program.page).read_text(encoding="utf-8")
    assert written == page(program), f"docs/reference/{program.page} is out of date: run `{COMMAND}`"


def test_the_command_writes_these_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "FOLDER", tmp_path / "reference")
    reference.main()
    assert {path.name for path in (tmp_path / "reference").iterdir()} == {
        *(program.page for program in PROGRAMS),
        *map(commands.page_of, commands.PROGRAMS),
    }
    assert COMMAND in (Path(__file__).parent.parent / "README.md").read_text()


@pytest.mark.parametrize(("program", "section", "setting"), EVERY, ids=NAMES)
def test_every_setting_has_a_meaning_and_a_section_that_says_what_it_is(
    program: Program, section: Section | None, setting: Setting
) -> None:
    assert re.fullmatch(r"[A-Z`].*[.]", setting.meaning), "a sentence"
    if section is not None:
        assert f"\n## `{heading(section)}`\n\n{section.meaning.splitlines()[0]}" in page(program)


@pytest.mark.parametrize(("name", "block"), examples(), ids=lambda text: text[:24])
def test_every_configuration_that_is_documented_fits_a_schema(name: str, block: str) -> None:
    file = tomllib.loads(block)
    of_gateway = name in {"gateway.md", "knative.md"}
    assert complaints("knative-gateway serve" if of_gateway else "amqp-streams serve", file) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.page)
def test_the_configuration_in_the_help_fits_the_schema(program: Program) -> None:
    file = tomllib.loads(help_example(program.command))
    assert len(file) >= 4
    assert complaints(program.command, file) == []
    assert complaints(program.command, {**file, "nonsense": 1}) == [
        "$: Additional properties are not allowed ('nonsense' was unexpected)"
    ]


def beyond(setting: Setting) -> list[object]:
    """Values just outside of the bounds."""
    step = 0.5 if setting.kind is Kind.SECONDS else 1
    low = [] if setting.minimum is None else [setting.minimum - step]
    high = [] if setting.maximum is None else [setting.maximum + step]
    return [*low, *high, *([] if setting.above is None else [setting.above])]


OUTSIDE = [
    (program, section, setting, value)
    for program, section, setting in EVERY
    if setting.shape is Shape.ONE and (section is None or section.form is Form.TABLE)
    for value in beyond(setting)
]


@pytest.mark.parametrize(
    ("program", "section", "setting", "value"),
    OUTSIDE,
    ids=[
        f"{program.page}-{section.name if section else ''}.{setting.name}={value}"
        for program, section, setting, value in OUTSIDE
    ],
)
def test_bounds_of_the_schema_are_those_of_the_program(
    program: Program, section: Section | None, setting: Setting, value: object, tmp_path: Path
) -> None:
    """The program refuses everything that the schema refuses."""
    file = {setting.name: value} if section is None else {section.name: {setting.name: value}}
    assert complaints(program.command, file)
    written = tmp_path / "file.toml"
    line = f"{setting.name} = {json.dumps(value)}\n"
    written.write_text(line if section is None else f"[{section.name}]\n{line}")
    if program.command == "amqp-streams serve":
        with pytest.raises(NodeConfigError, match=setting.name):
            node_settings({("data_dir",): "d"}, {}, written)
    else:
        with pytest.raises(GatewayConfigError, match=setting.name):
            gateway_settings({}, {}, written)
