"""Tables of resources, with the columns that the gateway names. Pure."""

from typing import Any

from knative_gateway.resources.objects import namespace_of


def table(
    columns: list[dict[str, Any]], rows: list[dict[str, Any]], *, wide: bool, spaces: bool, prefix: str
) -> str:
    """Return a table whose columns are as wide as their longest cells."""
    chosen = [index for index, column in enumerate(columns) if wide or not column.get("priority")]
    lines = [[str(columns[index]["name"]).upper() for index in chosen]]
    lines += [[_cell(row["cells"][index], prefix if index == 0 else "") for index in chosen] for row in rows]
    if spaces:
        lines = [
            [first, *line]
            for first, line in zip(
                ["NAMESPACE", *(namespace_of(row["object"]) for row in rows)], lines, strict=True
            )
        ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def _cell(value: object, prefix: str) -> str:
    return prefix + " ".join(("" if value is None else str(value)).split())
