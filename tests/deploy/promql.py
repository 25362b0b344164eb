"""What a query in PromQL uses: names of metrics and of labels, read by a parser of PromQL."""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import promql_parser

Exported = Mapping[str, Set[str]]
"""The labels of each series name."""

OF_TARGETS = frozenset({"job", "instance"})
"""Prometheus adds them to each series that it scrapes."""
OF_PROMETHEUS: Exported = {
    "up": frozenset(),
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}),
}
_KEEP_LABELS = {"topk", "bottomk"}


def faults(query: str, exported: Exported) -> list[str]:
    """Return what the query uses and no process exports."""
    known = {**exported, **OF_PROMETHEUS}
    found: list[str] = []

    def visit(node: Any) -> None:
        match node:
            case promql_parser.VectorSelector():
                if node.name not in known:
                    found.append(f"no metric {node.name}")
                else:
                    names = {each.name for each in node.matchers.matchers}
                    found.extend(_unknown(names, known[node.name] | OF_TARGETS, node.name))
            case promql_parser.AggregateExpr() if node.modifier is not None:
                found.extend(_unknown(node.modifier.labels, _labels_below(node.expr, known), str(node)))
            case promql_parser.BinaryExpr() if node.modifier is not None:
                both = _labels_below(node.lhs, known) | _labels_below(node.rhs, known)
                matching = node.modifier.matching
                names = {*(matching.labels if matching else ()), *(node.modifier.group_labels or ())}
                found.extend(_unknown(names, both, str(node)))
            case _:
                pass

    _walk(promql_parser.parse(query), visit)
    return found


def result_labels(query: str, exported: Exported) -> Set[str]:
    """Return the labels that the results of the query have."""
    return _results(promql_parser.parse(query), {**exported, **OF_PROMETHEUS})


def metrics(query: str) -> set[str]:
    """Return the names of all metrics of the query."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.add(str(node.name))

    _walk(promql_parser.parse(query), visit)
    return found


def _walk(node: Any, visit: Callable[[Any], None]) -> None:
    visit(node)
    for child in _children(node):
        _walk(child, visit)


def _children(node: Any) -> Iterator[Any]:
    match node:
        case promql_parser.MatrixSelector():
            yield node.vector_selector
        case promql_parser.SubqueryExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            yield node.expr
        case promql_parser.AggregateExpr():
            yield node.expr
        case promql_parser.BinaryExpr():
            yield from (node.lhs, node.rhs)
        case promql_parser.Call():
            yield from node.args
        case promql_parser.VectorSelector() | promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            pass
        case _:
            message = f"a part of PromQL that this does not know: {node!r}"
            raise AssertionError(message)


def _unknown(names: Set[str] | list[str], known: Set[str], where: str) -> list[str]:
    return [f"no label {name} in {where}" for name in names if name not in known]


def _labels_below(node: Any, known: Exported) -> Set[str]:
    """The labels of all series that a part of a query reads."""
    found: set[str] = set()

    def visit(part: Any) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            found.update(known.get(str(part.name), ()), OF_TARGETS)

    _walk(node, visit)
    return found


def _results(node: Any, known: Exported) -> Set[str]:
    match node:
        case promql_parser.VectorSelector():
            return known[str(node.name)] | OF_TARGETS
        case promql_parser.AggregateExpr() if str(node.op) not in _KEEP_LABELS:
            return set(node.modifier.labels) if node.modifier is not None else set()
        case promql_parser.BinaryExpr():
            added = node.modifier.group_labels if node.modifier is not None else None
            one_side = _results(node.lhs, known) or _results(node.rhs, known)
            return one_side | set(added or ())
        case _:
            return next(filter(None, (_results(child, known) for child in _children(node))), frozenset())
