"""Filters that a person tries, and the results, as the page of the filter tester shows them. Pure.

Laws: texts are cut and lists are bounded, whatever the form and the answer have.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from web_console.gateway import values
from web_console.showing.numbers import bounded
from web_console.showing.words import pointer

FILTERS_MAX: Final = 16 << 10
"""Characters of a form with filters."""
EVENTS_DEFAULT: Final = 20
EVENTS_MAX: Final = 100
ATTRIBUTES_MAX: Final = 20
_AT: Final = re.compile(r"at character (\d{1,6})$")


@dataclass(frozen=True, slots=True)
class Row:
    """An event with its result. `matches` None: it was not evaluated. `position`: `PARTITION:OFFSET`."""

    position: str
    at_ms: int | None
    type: str
    source: str
    id: str
    attributes: Sequence[tuple[str, str]]
    matches: bool | None
    reason: str


class FiltersError(ValueError):
    """The text is not valid. `pointer`: the position of the error, see `words.pointer`; empty: not known."""

    def __init__(self, words: str, pointer: str = "") -> None:
        super().__init__(words)
        self.pointer: Final = pointer


def options_of(form: Mapping[str, str]) -> dict[str, object]:
    """Return the options of the request. A form has a CESQL expression, filters as JSON, or neither.

    Raises:
        FiltersError: the form is not valid.
    """
    text = form.get("filters", "").strip()
    options: dict[str, object] = {"events": bounded(form.get("events"), EVENTS_DEFAULT, EVENTS_MAX)}
    if len(text) > FILTERS_MAX:
        message = f"Filters have at most {FILTERS_MAX:,} characters here."
        raise FiltersError(message)
    if is_json(text):
        options["filters"] = _parsed(text)
    elif text:
        options["filters"] = [{"cesql": text}]
    partition = form.get("partition", "").strip()
    if partition:
        if not re.fullmatch("[0-9]{1,4}", partition):
            message = f"{partition[:40]!r} is not the number of a partition."
            raise FiltersError(message)
        options["partition"] = int(partition)
    return options


def is_json(text: str) -> bool:
    """Whether a text is meant as a list of filters. No CESQL expression begins with one of these."""
    return text.lstrip()[:1] in {"[", "{"}


def pointer_of(text: str, words: str) -> str:
    """Return the position that an error names, see `words.pointer`; empty if it names none of this text."""
    found = _AT.search(words)
    return "" if found is None or is_json(text) else pointer(text, int(found[1]))


def rows_of(answer: Mapping[str, Any]) -> list[Row]:
    """Return the rows of an answer, the newest event first."""
    events = answer.get("events")
    return [_row(values.mapping(each)) for each in (events[:EVENTS_MAX] if isinstance(events, list) else [])][
        ::-1
    ]


def filters_of(document: Mapping[str, Any]) -> str:
    """Return the filters of a Trigger as a person would type them; empty if it has none of this form."""
    filters = values.mapping(document.get("spec")).get("filters")
    if not isinstance(filters, list) or not filters:
        return ""
    match filters:
        case [{"cesql": str(text), **rest}] if not rest and not is_json(text):
            return text[:FILTERS_MAX]
    return json.dumps(filters, indent=2, ensure_ascii=False)[:FILTERS_MAX]


def _parsed(text: str) -> object:
    try:
        found: object = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"This is not valid JSON: {error.msg}, at line {error.lineno}, column {error.colno}."
        raise FiltersError(message, pointer(text, error.pos + 1)) from error
    except (RecursionError, ValueError) as error:
        message = "This JSON has too many levels, or a number that is too long."
        raise FiltersError(message) from error
    return [found] if isinstance(found, dict) else found


def _row(each: Mapping[str, Any]) -> Row:
    attributes = {
        values.text(name): values.text(value)
        for name, value in values.mapping(each.get("attributes")).items()
    }
    type_, source, id_ = (attributes.pop(name, "") for name in ("type", "source", "id"))
    partition, offset = each.get("partition"), each.get("offset")
    at_ms, matches = each.get("at_ms"), each.get("matches")
    return Row(
        "" if partition is None else f"{values.text(partition)}:{values.text(offset)}",
        at_ms if isinstance(at_ms, int) else None,
        type_,
        source,
        id_,
        list(attributes.items())[:ATTRIBUTES_MAX],
        matches if isinstance(matches, bool) else None,
        values.text(each.get("reason")),
    )
