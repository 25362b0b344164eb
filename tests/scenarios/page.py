"""docs/scenarios.md, from the files."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.scenarios.script import Section

DOCUMENT: Final = Path(__file__).parent.parent.parent / "docs" / "scenarios.md"
_WIDTH_MAX: Final = 110
_HEAD: Final = """\
# Transcripts of the specification

This page has a transcript for each paragraph of sections 4 and 5 of *Event Stream Extensions for AMQP Version
1.0*. A transcript shows commands, and indented below each command its results.

`make test` plays the transcripts in memory, with Qpid Proton's engine as the client. `make scenarios` plays
them over the wire with two clients of other projects: Qpid Proton for Python and rhea for Node.js. The page
is generated from `tests/scenarios/*.txt` by `python -m tests.scenarios docs`.

A result begins with the name of its link. Times are shown as before or after a mark. A client settles a
delivery only if a command says so.
"""
_COMMANDS: Final = """
## Commands

| command | what it does |
|---|---|
| `node LOG:PARTITIONS… [SETTING=VALUE…]` | start a new node with these logs and settings of the \
configuration file: `groups.wait=0s` |
| `connect NAME` | open a connection. Without it, the first `attach` opens a connection with the name `one` |
| `attach LINK producer\\|consumer ADDRESS [OPTION…]` | open a link |
| `send LINK BODY… [OPTION…]` | send an event for each body |
| `settle LINK OUTCOME BODY…` | settle these deliveries as `accepted`, `rejected`, `released` or `modified` |
| `credit LINK N` | give the node credit for N more deliveries |
| `detach LINK` | close the link |
| `lose CONNECTION` | end the TCP connection without a `close` |
| `restart` | kill the node and start it again with its data |
| `wait TIME` | let time pass: `5ms`, `2s` |
| `mark NAME` | remember the time |
| `redirect LOG PARTITIONS HOST:PORT` | change the configuration: another container has these partitions \
(`1,2`; `-` for none) |

| option of `attach` | meaning |
|---|---|
| `on=CONNECTION`, `name=NAME` | the connection, if it is not `one`; the AMQP name, if it is not LINK |
| `partition=`, `group=`, `epoch=` | the link properties of the specification |
| `producer=NAME` | an idempotent producer with this name |
| `credit=N` | the credit of a consumer; 100 without this option |
| `durable`, `presettled` | the node keeps the cursor; the node sends settled deliveries |
| `from=START`, `time=MARK` | the delivery-annotations filter: after `@earliest`, `@latest` or an \
offset; after a mark |
| `code` | give the descriptor of this filter as a number, not as a symbol |
| `events-sql=`, `sql=`, `selector=` | a filter in SQL with one of three descriptors |
| `properties=KEY:VALUE`, `unknown=TEXT` | a filter by a field of the properties section; a filter of an \
unknown kind |

| option of `send` | meaning |
|---|---|
| `target=PARTITION`, `key=KEY` | the annotations for the partition and for the group key |
| `n=N` | the application property `n` |
| `relayed-from=PARTITION` | the source partition that another node wrote |
| `sequence=N` | the sequence number of the first event |
"""


def document(sections: Sequence[Section]) -> str:
    """Return the page."""
    contents = [
        f"- [{section.number} {section.title}](#{_anchor(f'{section.number} {section.title}')})\n"
        for section in sections
    ]
    parts = [_HEAD, "\n## Contents\n\n- [Commands](#commands)\n", *contents, _COMMANDS]
    for section in sections:
        parts.append(f"\n## {section.number} {section.title}\n")
        for scenario in section.scenarios:
            word = "Paragraphs" if "," in scenario.paragraphs else "Paragraph"
            title = f"**{word} {scenario.paragraphs.replace(',', ' and ')}.** {scenario.title}"
            parts.append(f"\n{textwrap.fill(title, _WIDTH_MAX, break_on_hyphens=False)}\n\n```")
            parts += [
                f"\n{step.line}" + "".join(f"\n    {line}" for line in step.expected)
                for step in scenario.steps
            ]
            parts.append("\n```\n")
    return "".join(parts)


def _anchor(title: str) -> str:
    """Return the link target of a heading, as Markdown viewers compute it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
