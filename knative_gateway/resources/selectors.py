"""Label and field selectors of the requests list, watch and delete-collection.

  app=x   app==x   app!=x   app in (x,y)   app notin (x,y)   app   !app   size>3   size<3
  metadata.name=x,status.phase!=Running

In a field selector, a backslash escapes a comma, an equals sign or a backslash.

Spec: Kubernetes, "Labels and Selectors", "Field Selectors".
"""

import re
from collections.abc import Callable
from typing import Final

from knative_gateway.resources.objects import Object, at
from knative_gateway.resources.refusals import bad_request
from knative_gateway.resources.schema.checking import is_known

SELECTOR_CHARACTERS_MAX: Final = 16_384

Selector = Callable[[Object], bool]
_OF_ALL: Final = (["metadata", "name"], ["metadata", "namespace"])
_KEY: Final = r"(?:[A-Za-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9_.-]{0,63}"
_REQUIREMENT: Final = re.compile(
    rf"""\s*(?:
        (?P<absent>!)\s*(?P<missing>{_KEY})
      | (?P<key>{_KEY})\s*(?:
            (?P<set>in|notin)\s*\((?P<values>[^()]*)\)
          | (?P<operator>==|!=|=|>|<)\s*(?P<value>{_VALUE})
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_FIELD: Final = re.compile(
    r"(?P<path>[A-Za-z0-9_.\[\]/-]+)(?P<operator>==|!=|=)(?P<value>(?:[^,=\\]|\\[\\,=])*)(?:,|$)"
)


def everything(_object: Object) -> bool:
    """Select every object."""
    return True


def label_selector(written: str) -> Selector:
    """Parse a label selector.

    Raises:
      StatusError: the selector is not valid (400).
    """
    requirements = [_requirement(found) for found in _split(_REQUIREMENT, written, "label")]
    if not requirements:
        return everything

    def matches(object_: Object) -> bool:
        labels = at(object_, "metadata", "labels")
        known = labels if isinstance(labels, dict) else {}
        return all(requirement(known) for requirement in requirements)

    return matches


def field_selector(written: str, schema: Object) -> Selector:
    """Parse a field selector for objects of a schema. A field that an object does not have counts as the
    empty text.

    Raises:
      StatusError: the selector is not valid, or the schema does not define the field (400). A misspelled
      field
        must not select every object: delete-collection would delete all of them.
    """
    terms = [
        (found["path"].split("."), found["operator"] != "!=", re.sub(r"\\(.)", r"\1", found["value"]))
        for found in _split(_FIELD, written, "field")
    ]
    for path, _, _ in terms:
        if path not in _OF_ALL and not is_known(schema, path):
            raise bad_request(f"field label not supported: {'.'.join(path)[:200]}")
    if not terms:
        return everything
    return lambda object_: all((_field(object_, path) == value) is wanted for path, wanted, value in terms)


def named(written: str) -> str | None:
    """Return the name that a field selector requires, or None.

    With a name, a list request reads one object instead of filtering all of them.
    """
    names = [
        found["value"]
        for found in _split(_FIELD, written, "field")
        if found["path"] == "metadata.name" and found["operator"] != "!="
    ]
    return names[0] if names else None


def _split(pattern: re.Pattern[str], written: str, kind: str) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    position = 0
    if len(written) > SELECTOR_CHARACTERS_MAX:
        raise bad_request(f"a {kind} selector has at most {SELECTOR_CHARACTERS_MAX} characters")
    # One pattern for each term, and not one for the whole text: the error can then name the position.
    while position < len(written.rstrip()):
        term = pattern.match(written, position)
        if term is None or term.end() == position:
            raise bad_request(
                f'unable to parse {kind} selector "{written[:200]}": at character {position + 1}'
            )
        found.append(term)
        position = term.end()
    if written.rstrip().endswith(",") and not written.rstrip().endswith("\\,"):
        raise bad_request(f'unable to parse {kind} selector "{written[:200]}": it ends with a comma')
    return found


def _field(object_: Object, path: list[str]) -> str:
    value = at(object_, *path)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _requirement(found: re.Match[str]) -> Callable[[dict[str, object]], bool]:
    if found["absent"]:
        missing = found["missing"]
        return lambda labels: missing not in labels
    key, operator, value = found["key"], found["operator"] or "", found["value"]
    if found["set"]:
        values = {each.strip() for each in found["values"].split(",")}
        if not all(re.fullmatch(_VALUE, each) for each in values):
            raise bad_request(f"unable to parse label selector: not a label value among {sorted(values)}")
        return (
            (lambda labels: labels.get(key) in values)
            if found["set"] == "in"
            else (lambda labels: labels.get(key) not in values)
        )
    match operator:
        case "":
            return lambda labels: key in labels
        case "=" | "==":
            return lambda labels: labels.get(key) == value
        case "!=":
            return lambda labels: labels.get(key) != value
        case _:
            return _comparison(key, operator, value)


def _comparison(key: str, operator: str, value: str) -> Callable[[dict[str, object]], bool]:
    # 18 digits always fit 64 bits, as Kubernetes requires.
    if not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise bad_request(f'unable to parse label selector: "{value}" with {operator} must be an integer')

    def holds(labels: dict[str, object]) -> bool:
        mine = labels.get(key)
        if not isinstance(mine, str) or not re.fullmatch(r"-?[0-9]{1,18}", mine):
            return False
        return int(mine) > int(value) if operator == ">" else int(mine) < int(value)

    return holds
