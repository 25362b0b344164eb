"""One source decides where a command connects: a context or the variables, never a mixture."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from service_parts.command_line.contexts.choosing import chosen, given, merged
from service_parts.command_line.contexts.settings import Kind
from service_parts.command_line.contexts.stored import Contexts, save
from service_parts.errors import SettingError

KIND = Kind("sample", "SAMPLE_", "url", ())
DEFAULTS = {"url": "default", "user": None}


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "contexts.json"
    named = {name: {"url": f"{name}-url"} for name in ("used", "by-variable", "by-option")}
    save(KIND, Contexts(path, named, "used"))  # type: ignore[arg-type]  # mypy: the values are texts
    return {"AMQP_STREAMS_CONTEXTS": str(path)}


@pytest.mark.parametrize(
    ("option", "address", "more", "name", "source"),
    [
        ("by-option", False, {"SAMPLE_CONTEXT": "by-variable", "SAMPLE_URL": "u"}, "by-option", "--context"),
        (None, True, {"SAMPLE_CONTEXT": "by-variable"}, None, ""),
        (None, False, {"SAMPLE_CONTEXT": "by-variable", "SAMPLE_URL": "u"}, "by-variable", "SAMPLE_CONTEXT"),
        (None, False, {"SAMPLE_URL": "u"}, None, ""),
        (None, False, {}, "used", "'context use'"),
    ],
)
def test_the_first_that_names_a_node_decides(
    variables: dict[str, str],
    *,
    option: str | None,
    address: bool,
    more: dict[str, str],
    name: str | None,
    source: str,
) -> None:
    choice = chosen(KIND, variables | more, named=option, address_given=address)
    assert (choice and choice.name) == name
    if choice is not None:
        assert (choice.source, choice.settings) == (source, {"url": f"{name}-url"})


def test_no_context_is_used_without_a_file(tmp_path: Path) -> None:
    empty = {"AMQP_STREAMS_CONTEXTS": str(tmp_path / "none")}
    assert chosen(KIND, empty, named=None, address_given=False) is None
    with pytest.raises(SettingError, match="no context named 'x'"):
        chosen(KIND, empty, named="x", address_given=False)


def test_a_context_and_a_url_are_alternatives(variables: dict[str, str]) -> None:
    with pytest.raises(click.UsageError, match="--context and --url are alternatives"):
        chosen(KIND, variables, named="used", address_given=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["command"], {"url": "used-url", "user": None}),
        (["command", "--user", "bob"], {"url": "used-url", "user": "bob"}),
        (["--url", "root", "command"], {"url": "root", "user": "of-variable"}),
    ],
)
def test_options_count_before_the_context_and_variables_do_not_count_with_one(
    variables: dict[str, str], words: list[str], expected: dict[str, str | None]
) -> None:
    found: list[dict[str, object]] = []

    @click.group()
    @click.option("--url")
    def main(url: str | None) -> None:
        pass

    @main.command()
    @click.option("--url", default="default", envvar="SAMPLE_URL")
    @click.option("--user", envvar="SAMPLE_USER")
    @click.pass_context
    def command(here: click.Context, url: str, user: str | None) -> None:
        url = here.find_root().params.get("url") or url
        choice = chosen(KIND, variables, named=None, address_given=given(here, "url"))
        found.append(merged(here, choice, {"url": url, "user": user}, DEFAULTS))

    assert CliRunner(env={"SAMPLE_USER": "of-variable"}).invoke(main, words).exit_code == 0
    assert found == [expected]
