"""docs/scenarios.md, from the files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.scenarios.script import HELP, Section

DOCUMENT: Final = Path(__file__).parent.parent.parent / "docs" / "scenarios.md"
_HEAD: Final = f"""\
# Transcripts of the specification

This page has a transcript for each paragraph of sections 4 and 5 of *Event Stream Extensions for AMQP Version
1.0*. A transcript shows commands, and indented below each command its results.

`make test` plays the transcripts in memory, with Qpid Proton's engine as the client. `make scenarios` plays
them over the wire with two clients of other projects: Qpid Proton for Python and rhea for Node.js. The page
is generated from `tests/scenarios/*.txt` by `python -m tests.scenarios docs`.

A result begins with the name of its link. Times are shown as before or after a mark. Links accept nothing by
themselves.

```
{HELP}```
"""


def document(sections: Sequence[Section]) -> str:
    """The page."""
    contents = [
        f"- [{section.number} {section.title}](#{_anchor(f'{section.number} {section.title}')})\n"
        for section in sections
    ]
    parts = [_HEAD, "\n## Contents\n\n", *contents]
    for section in sections:
        parts.append(f"\n## {section.number} {section.title}\n")
        for scenario in section.scenarios:
            word = "Paragraphs" if "," in scenario.paragraphs else "Paragraph"
            parts.append(f"\n**{word} {scenario.paragraphs.replace(',', ' and ')}.** {scenario.title}\n\n```")
            parts += [
                f"\n{step.line}" + "".join(f"\n    {line}" for line in step.expected)
                for step in scenario.steps
            ]
            parts.append("\n```\n")
    return "".join(parts)


def _anchor(title: str) -> str:
    """The link target of a heading, as Markdown viewers make it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
