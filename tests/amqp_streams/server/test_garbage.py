"""The rule for Python's search for garbage, in processes of its own."""

import subprocess
import sys
from pathlib import Path

RULES = Path(__file__).with_name("garbage_rules.py")


def test_the_rule_holds_in_a_process_with_few_objects() -> None:
    """Each of the searches that the tests of the rule make examines all objects of its process. There are
    millions in one that has collected all tests.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
