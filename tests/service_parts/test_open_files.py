"""The limit of open files, in a separate process."""

import subprocess
import sys

_PROGRAM = """
import resource
from service_parts.open_files import raise_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 900))
raised = [raise_open_files(files) for files in (500, 400, 1 << 16)]
print(*raised, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_as_far_as_the_system_allows_and_never_lowered() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["500", "500", "900", "900", "900"]
