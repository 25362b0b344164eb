"""The number of normative words in each section of the specifications. The texts are not here; the counts are
computed from them.

`python -m tests.spec.normative FILE` counts again and prints the table. FILE is the text of a specification
with headings as in Markdown, `### 6.4.1 Predicates`, with or without numbers. `--titles` keeps the titles,
for texts without numbers.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Final

EVENT_STREAMS: Final = {
    "1": {"MAY": 2, "MUST": 1},
    "3.1": {"MAY": 1, "MUST": 2},
    "3.2": {"MUST": 1, "OPTIONAL": 1},
    "4": {"MAY": 9, "MUST": 1, "SHOULD": 1},
    "4.1": {"MAY": 2, "MUST": 2},
    "4.2": {"MAY": 1, "MUST": 2},
    "4.3": {"MAY": 2, "MUST": 2},
    "4.4": {"MUST": 3, "OPTIONAL": 1},
    "4.5": {"MAY": 4, "MUST": 3, "MUST NOT": 1},
    "4.5.1": {"MAY": 6, "SHOULD": 3},
    "4.5.2": {"MAY": 1, "MUST": 1},
    "4.6.2": {"MAY": 1, "MUST": 1},
    "4.6.3": {"MAY": 1},
    "4.6.4": {"MUST": 2},
    "4.6.5": {"MUST": 1, "SHOULD": 1},
    "4.6.6": {"MUST": 4},
    "4.6.7": {"MAY": 1, "SHOULD": 2},
    "5": {"MAY": 1},
    "5.1": {"MUST": 1},
    "5.1.1": {"MAY": 1, "MUST": 2, "MUST NOT": 1},
    "5.1.2": {"MAY": 2, "MUST NOT": 1},
    "5.2": {"MAY": 1, "MUST": 1},
    "6": {"MAY": 5, "MUST": 4},
    "8": {"MUST": 1},
}

FILTEX: Final = {
    "2.2": {"MAY": 2, "MUST": 2},
    "2.3": {"MAY": 1, "MUST": 1, "SHOULD": 1},
    "3": {"MAY": 1},
    "4": {"MUST": 2},
    "4.1.5": {"MAY": 1},
    "6.3": {"MUST": 1},
    "6.3.1": {"MAY": 6, "MUST": 1, "MUST NOT": 4},
    "6.3.2": {"MAY": 3, "MUST": 1},
    "6.4.3.2": {"MUST": 1},
    "6.4.3.3": {"MUST": 1},
    "6.4.4.1.2": {"MUST": 3},
    "6.4.4.3": {"MAY": 1, "MUST": 2},
    "6.4.4.3.3": {"MUST": 2},
    "6.4.4.3.4": {"MUST": 2},
    "6.4.4.3.5": {"MUST": 2},
    "6.4.4.3.6": {"OPTIONAL": 1},
    "6.4.4.3.7": {"MUST": 1},
    "6.4.4.4": {"MUST": 3},
    "6.4.4.5": {"MUST": 3, "SHOULD": 1},
    "7.1": {"SHOULD": 3},
    "7.2": {"SHOULD": 1},
    "7.3": {"SHOULD": 1, "SHOULD NOT": 1},
    "8": {"MAY": 1, "MUST": 1, "RECOMMENDED": 1},
}

KNATIVE_TEST: Final = {
    "1.2.2.1 Broker Lifecycle": {"MUST": 6},
    "1.2.2.2 Trigger Lifecycle": {"MUST": 6, "MUST NOT": 1},
    "1.2.2.3 Channel Lifecycle": {"MUST": 6},
    "1.2.3 Subscription Lifecycle": {"MUST": 8, "MUST NOT": 2, "SHOULD": 1, "SHOULD NOT": 1},
    "1.2.4 Destination Resolution": {"MUST": 4, "SHOULD": 1},
    "1.2.5.1 Content Based Routing": {"MAY": 1, "MUST": 11, "MUST NOT": 1},
    "1.2.6 Topology Based Routing": {"MUST": 6, "MUST NOT": 1},
    "1.2.7 Event Delivery": {"MUST": 6},
    "1.3 Detailed Resources": {"MAY": 3, "MUST": 2, "MUST NOT": 1, "REQUIRED": 2},
    "1.3.1.2 Spec": {"MUST": 1, "OPTIONAL": 2},
    "1.3.1.3 Status": {"MUST": 1},
    "1.3.2.2 Spec": {"OPTIONAL": 2, "REQUIRED": 2},
    "1.3.2.3 Status": {"MUST": 1},
    "1.3.3.2 Spec": {"MUST": 2, "OPTIONAL": 2},
    "1.3.3.3 Status": {"MUST": 1},
    "1.3.4.2 Spec": {"OPTIONAL": 3, "REQUIRED": 1},
    "1.3.4.3 Status": {"MUST": 1},
    "1.3.5 Addressable": {"MAY": 1},
    "1.4.2 duckv1.Destination": {"OPTIONAL": 2},
    "1.4.3 duckv1.SubscriberSpec": {"SHOULD": 1},
    "1.4.5 DeliverySpec": {"MAY": 1, "OPTIONAL": 4},
    "1.4.6 KReference": {"OPTIONAL": 1, "REQUIRED": 3},
    "1.4.8 TriggerFilter": {"MUST": 5, "OPTIONAL": 1},
    "1.5.1.1 Minimum supported protocol": {"MUST": 1},
    "1.5.1.2 HTTP Verbs": {"MAY": 1, "MUST": 3},
    "1.5.1.3 Event Acknowledgement and Delivery Retry": {"MUST": 6, "NOT REQUIRED": 1, "SHOULD NOT": 1},
    "1.5.1.5 Derived (Reply) Events": {"MUST": 2, "MUST NOT": 2},
}

KNATIVE_CONTRACT: Final = {
    "1.3 Event Delivery": {"MUST": 1, "SHOULD": 1},
    "1.3.1 Minimum supported protocol": {"MUST": 2},
    "1.3.2 HTTP Verbs": {"MAY": 1, "MUST": 2, "SHOULD": 2},
    "1.3.3 Event Acknowledgement and Repeat Delivery": {
        "MAY": 1,
        "MUST": 7,
        "MUST NOT": 1,
        "RECOMMENDED": 1,
        "SHOULD": 2,
        "SHOULD NOT": 1,
    },
    "1.3.4 Observability": {"MAY": 1, "SHOULD": 1},
    "1.3.5 Derived (Reply) Events": {"MAY": 2, "MUST NOT": 1, "SHOULD": 1, "SHOULD NOT": 1},
}

KNATIVE_WORDS_IN_LOWER_CASE: Final[dict[str, dict[str, int]]] = {}
"""Delivery Design and Event Delivery have no normative words. Their rows are for statements in plain
words.
"""

_WORD: Final = re.compile(
    r"\b(MUST NOT|MUST|SHALL NOT|SHALL|SHOULD NOT|SHOULD|NOT RECOMMENDED|RECOMMENDED|NOT"
    r" REQUIRED|REQUIRED|MAY|OPTIONAL)\b"
)
_HEADING: Final = re.compile(r"^(?P<marks>#+) (?P<number>\d+(?:\.\d+)*\.?)?\s*(?P<title>.*)$")
_EXPLAINED: Final = "are to be interpreted as described"
_REMARK: Final = re.compile("<!--.*?-->", re.DOTALL)


def count(text: str, *, titles: bool = False) -> dict[str, dict[str, int]]:
    """Normative words by section. The paragraph that explains them and remarks that are not shown are left
    out.
    """
    text = _REMARK.sub("", text)
    found: dict[str, Counter[str]] = {}
    numbers: list[int] = []
    section = ""
    for paragraph in re.sub(
        r"(?<!\n)\n(?![\n#])", " ", re.sub(r"(^#.*$)", r"\n\1\n", text, flags=re.MULTILINE)
    ).splitlines():
        heading = _HEADING.match(paragraph)
        if heading is None:
            found.setdefault(section, Counter()).update(_WORD.findall(paragraph.rpartition(_EXPLAINED)[2]))
        elif heading["number"]:
            section = heading["number"].rstrip(".")
        else:
            depth = len(heading["marks"])
            numbers = [*numbers[:depth], *[0] * (depth - len(numbers))]
            numbers[-1] += 1
            section = ".".join(map(str, numbers)) + (f" {heading['title'].rstrip(':')}" if titles else "")
    return {section: dict(sorted(words.items())) for section, words in found.items() if words}


if __name__ == "__main__":
    for one, words in count(Path(sys.argv[1]).read_text(), titles="--titles" in sys.argv).items():
        print(f'    "{one}": {words},')
