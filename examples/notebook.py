"""Runs a notebook without Jupyter: its cells in order, in this process. It prints what they print and the
value of the last line of each cell, and saves the figures beside the notebook if --figures names a folder.

    python -m examples.notebook examples/temperatures.ipynb --figures figures
"""

import argparse
import ast
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "agg")  # figures without a screen


def main() -> None:
    """Run the notebook."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--figures", type=Path, help="the folder for the figures, as PNG files")
    chosen = parser.parse_args()
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(cells(chosen.notebook), start=1):
        run(source, names, f"{chosen.notebook} cell {number}")
    if chosen.figures:
        save_figures(chosen.figures)


def cells(notebook: Path) -> list[str]:
    """The code cells of a notebook, in order."""
    document = json.loads(notebook.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]


def run(source: str, names: dict[str, Any], place: str) -> None:
    """Run a cell with the names of the cells before, and print the value of its last line as Jupyter does."""
    tree = ast.parse(source, place)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, place, "exec"), names)  # a program that its user chose
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), place, "eval"), names)  # the same
        if value is not None:
            print(value)


def save_figures(folder: Path) -> None:
    """Save the figures that the cells drew."""
    import matplotlib.pyplot as plt  # noqa: PLC0415  # only if there is something to draw

    folder.mkdir(parents=True, exist_ok=True)
    for number in plt.get_fignums():
        plt.figure(number).savefig(folder / f"{number}.png", bbox_inches="tight")


if __name__ == "__main__":
    main()
