"""Options as Spark passes them, checked against the table of options. Pure.

Every error names the option. If the name is unknown, the error names the most similar option.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from spark_connector.errors import OptionError
from spark_connector.options.option_kinds import (
    Endpoint,
)
from spark_connector.options.other_sources import ELSEWHERE, NOT_NEEDED
from spark_connector.options.table import (
    ALL,
    SPARKS_OWN,
    TABLE,
    Option,
    Use,
)

_CATALOGUE: Final = "option."
"""Prefix of the options of `CREATE TABLE … USING amqpstreams OPTIONS (…)`, as Spark's catalogue passes them
to the source.
"""

_BY_NAME: Final = {name.lower(): option for option in TABLE for name in (option.name, *option.aliases)}


class Values:
    """The options of one use: converted, checked, with defaults. Its text does not contain secrets."""

    __slots__ = ("_given", "_values")

    def __init__(self, values: Mapping[str, object], given: frozenset[str]) -> None:
        self._values = dict(values)
        self._given = given

    def __repr__(self) -> str:
        return f"Values(given={sorted(self._given)})"

    def given(self, name: str) -> bool:
        """Return whether the user set the option."""
        return name in self._given

    def text(self, name: str) -> str | None:
        """Return a text, path or word; None if it was not given."""
        value = self._values[name]
        assert value is None or isinstance(value, str), name
        return value

    def word(self, name: str) -> str:
        """Return a word that has a default."""
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def flag(self, name: str) -> bool:
        """Return `true` or `false`."""
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def limit(self, name: str) -> int | None:
        """Return a number, size (bytes) or time (ms); None if it was not given."""
        value = self._values[name]
        assert value is None or isinstance(value, int), name
        return value

    def number(self, name: str) -> int:
        """Return a number, size (bytes) or time (ms) that has a default."""
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list; empty if it was not given."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()

    def urls(self, name: str) -> tuple[str, ...]:
        """Return URLs without user and password; empty if not given."""
        value = self._values[name]
        assert value is None or isinstance(value, tuple), name
        return tuple(one.url for one in value or () if isinstance(one, Endpoint))


def parse(given: Mapping[str, str], use: Use) -> Values:
    """Convert and check options as Spark passes them. Names may be in any case.

    Raises:
        OptionError: an option is unknown, has different values under two of its names, does not apply to this
            use, or has a value that is not valid. The message does not contain values of secret options.
    """
    texts: dict[str, str] = {}
    names_given: dict[str, str] = {}
    for name, text in given.items():
        if name.lower() in SPARKS_OWN:
            continue
        option = _BY_NAME.get(name.lower())
        if option is None:
            raise _unknown(name, frozenset({use}))
        if use not in option.uses:
            raise OptionError(
                f"option {option.name!r} does not apply to {use.value}",
                "",
                f"It applies to {_listed(use.value for use in _order(option.uses))}",
            )
        first = names_given.setdefault(option.name, name)
        # The same value under two names is allowed: some tools pass every name.
        if texts.setdefault(option.name, text) != text:
            raise OptionError(
                f"option {option.name!r} has two values",
                f"{first!r} and {name!r} are names of the same option",
                "Keep one of them",
            )
    values = {option.name: _value(option, texts.get(option.name)) for option in TABLE if use in option.uses}
    return Values(values, frozenset(texts))


def without_catalogue(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options that the user gave.

    Spark's catalogue adds provider, owner, comment and properties, which are left out.
    """
    if "provider" not in {name.lower() for name in given}:
        return given
    return {
        name[len(_CATALOGUE) :]: text for name, text in given.items() if name.lower().startswith(_CATALOGUE)
    }


def known(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """Return the options that apply to `use`. For callers that do not know the use of the query yet.

    Raises:
        OptionError: an option is unknown for every use.
    """
    unknown = [name for name in given if name.lower() not in _BY_NAME and name.lower() not in SPARKS_OWN]
    if unknown:
        raise _unknown(unknown[0], ALL)
    return {
        name: text
        for name, text in given.items()
        if name.lower() in _BY_NAME and use in _BY_NAME[name.lower()].uses
    }


def _value(option: Option, text: str | None) -> object:
    chosen = option.default if text is None else text
    if chosen is None:
        return None
    try:
        return option.kind.read(chosen)
    except ValueError as error:
        # A value with @ may be a URL with a password.
        shown = "" if option.secret or len(chosen) > 80 or "@" in chosen else f" {chosen!r}"
        raise OptionError(
            f"the value{shown} of option {option.name!r} is not valid", "", f"Expected: {error}"
        ) from None


def _unknown(name: str, uses: frozenset[Use]) -> OptionError:
    usable = {known: option.name for known, option in _BY_NAME.items() if uses & option.uses}
    short = (
        name.lower().removeprefix("amqpstreams.").removeprefix("kafka.").removeprefix("eventhubs.").strip()
    )
    if short in NOT_NEEDED:
        return OptionError(f"unknown option {name!r}", "", NOT_NEEDED[short])
    meant = ELSEWHERE.get(short)
    near = (
        [meant.lower()]
        if meant is not None and meant.lower() in usable
        else get_close_matches(short, usable, n=1, cutoff=0.6)
    )
    remedy = (
        f"Did you mean {usable[near[0]]!r}?"
        if near
        else f"Options: {', '.join(sorted(set(usable.values())))}"
    )
    what = "" if len(uses) > 1 else f" for {next(iter(uses)).value}"
    return OptionError(f"unknown option {name!r}{what}", "", remedy)


def _order(uses: frozenset[Use]) -> list[Use]:
    return [use for use in Use if use in uses]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
