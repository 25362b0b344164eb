"""Settings come from flags, the environment and a file. Errors name the setting and its source."""

from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from service_parts.errors import SettingError
from service_parts.settings.fields import Settings
from service_parts.settings.sources import (
    Given,
    Name,
    explained,
    flag_of,
    from_environment,
    from_file,
    from_flags,
    from_folder,
    nested,
    refuse_clashes,
    refuse_unknown,
    variable_of,
)


class Inner(Settings):
    size: int = Field(default=1, ge=1)


class Sample(Settings):
    inner: Inner = Inner()
    names: tuple[int, ...] = Field(default=(1,), min_length=1)
    needed: str


def complaints(given: dict[Name, Given]) -> list[str]:
    """Return the errors of settings."""
    with pytest.raises(ValidationError) as caught:
        Sample.model_validate(nested({name: one.value for name, one in given.items()}))
    words = {"extra_forbidden": "no such setting"}
    return list(explained(caught.value, given, lambda _name, problem: words.get(problem)))


def test_a_setting_has_one_name() -> None:
    assert flag_of(("tls", "client_ca")) == "--tls-client-ca"
    assert variable_of("P_", ("tls", "client_ca")) == "P_TLS_CLIENT_CA"


def test_flags_that_are_not_given_leave_room_for_others() -> None:
    assert from_flags({("a",): None, ("b",): (), ("c",): 0, ("d",): ("x",)}) == {
        ("c",): Given(0, "--c"),
        ("d",): Given(("x",), "--d"),
    }


def test_variables_are_values_or_lists() -> None:
    known: dict[str, Name] = {"P_A": ("a",), "P_B": ("b",), "P_C": ("c",)}
    found = from_environment({"P_A": "x y", "P_B": "1,2 3", "P_C": "", "OTHER": "z"}, known, {("b",)})
    assert found == {("a",): Given("x y", "P_A"), ("b",): Given(["1", "2", "3"], "P_B")}


def test_a_variable_that_names_no_setting_is_refused_with_those_that_exist() -> None:
    known = {"P_TLS_KEY", "P_TLS_CA", "P_LISTEN"}
    refuse_unknown({"P_TLS_KEY": "", "P_LISTENS": "", "P_TLS_URL": ""}, known, ("P_TLS_",), {"P_TLS_URL"})
    with pytest.raises(
        SettingError, match=r"P_TLS_KEYS in the environment is not a setting: use one of P_TLS_CA, P_TLS_KEY$"
    ):
        refuse_unknown({"P_TLS_KEYS": ""}, known, ("P_TLS_",))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x = ", "is not valid TOML"),
        (b"a\xff", "is not valid TOML: the byte at position 1 is not UTF-8"),
        (b"x = " + b"[" * 100_000, "too deeply"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, data: bytes | None, words: str
) -> None:
    path = tmp_path / "settings.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(SettingError, match=rf"settings\.toml.*{words}|{words}.*settings\.toml"):
        from_file(path, lambda tables: [((name,), value) for name, value in tables.items()])


def test_what_is_a_value_cannot_be_a_table_as_well() -> None:
    given = {("tls", "key"): Given("k", "P_TLS_KEY"), ("tls",): Given(5, "p.toml")}
    with pytest.raises(SettingError, match=r"tls is a value \(p\.toml\) and a table \(P_TLS_KEY\)"):
        refuse_clashes(given)
    del given["tls",]
    refuse_clashes(given)


def test_paths_begin_at_the_folder_of_the_file(tmp_path: Path) -> None:
    assert from_folder(tmp_path, ["a", "/b", 5]) == [str(tmp_path / "a"), "/b", 5]


def test_each_problem_is_a_line_with_its_place() -> None:
    given = {
        ("inner", "size"): Given(0, "P_INNER_SIZE"),
        ("inner", "sizes"): Given(1, "p.toml"),
        ("names",): Given(["x"], "--names"),
    }
    assert complaints(given) == [
        "inner.size (P_INNER_SIZE): must be at least 1 (got 0)",
        "inner.sizes (p.toml): no such setting",
        "names.0 (--names): must be a whole number (got 'x')",
        "needed: is required",
    ]
