r"""The JSONPath subset of printer columns: names, indexes, `[*]`, and filters that compare with a text.

  .status.address.url
  .spec.ports[*].port
  .a['b.c']
  .a.b\\.c/d
  .status.conditions[?(@.type=="Ready")].status

A path that is not valid finds nothing.

Spec: Kubernetes, "JSONPath Support".
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from knative_gateway.resources.objects import at

_STEP: Final = re.compile(
    r"""\.(?P<name>(?:[^.\[\]\\]|\\.)+)
      | \[(?P<index>-?[0-9]{1,9}|\*)\]
      | \[(?P<quote>['"])(?P<quoted>(?:(?!(?P=quote)).)*)(?P=quote)\]
      | \[\?\(\s*@(?P<field>(?:\.[A-Za-z0-9_-]+)+)\s*==
        \s*(?P<mark>['"])(?P<value>(?:(?!(?P=mark)).)*)(?P=mark)\s*\)\]""",
    re.VERBOSE,
)


def find(document: object, path: str) -> list[object]:
    """Return all values that the path finds, in the order of the document."""
    steps = _steps(path)
    if steps is None:
        return []
    found = [document]
    for step in steps:
        if isinstance(step, str):
            found = [value[step] for value in found if isinstance(value, dict) and step in value]
        else:
            found = [below for value in found for below in _below(value, step)]
    return found


@lru_cache(maxsize=1024)
def _steps(path: str) -> Sequence[str | re.Match[str]] | None:
    """Return the steps of a path, or None if the path is not valid. The step to a member is its name."""
    steps: list[str | re.Match[str]] = []
    position = 0
    path = path.removeprefix("{").removesuffix("}").removeprefix("$")
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return None
        steps.append(_step(step))
        position = step.end()
    return steps


def _step(step: re.Match[str]) -> str | re.Match[str]:
    if step["name"] is not None:
        return re.sub(r"\\(.)", r"\1", step["name"])
    return step if step["quoted"] is None else step["quoted"]


def _below(value: object, step: re.Match[str]) -> list[object]:
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list | tuple):
        return []
    if step["field"] is not None:
        field = step["field"].split(".")[1:]
        return [item for item in items if at(item, *field) == step["value"]]
    if step["index"] == "*":
        return list(items)
    index = int(step["index"])
    return [items[index]] if -len(items) <= index < len(items) else []
