"""`python -m tests.scenarios rewrite`: write the results of each step, in memory, into the files; read the
difference.

`python -m tests.scenarios wire [CLIENT…]`: play them over the wire, with clients of other projects. `docs`:
write docs/scenarios.md from the files.
"""

import sys

from tests.scenarios.memory import MemoryStage
from tests.scenarios.page import DOCUMENT, document
from tests.scenarios.playing import Player
from tests.scenarios.script import sections, written
from tests.scenarios.wire import run


def main(arguments: list[str]) -> int:
    """Run the command of the arguments."""
    if arguments[:1] == ["rewrite"]:
        for section in sections():
            told = [Player(MemoryStage()).play(scenario) for scenario in section.scenarios]
            section.path.write_text(written(section, told))
        return 0
    if arguments[:1] == ["docs"]:
        DOCUMENT.write_text(document(sections()))
        return 0
    if arguments[:1] == ["wire"]:
        return run(arguments[1:])
    sys.stderr.write(__doc__ or "")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
