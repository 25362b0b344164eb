"""What stops a release."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import run


class ReleaseError(Exception):
    """The release cannot be made. The message names the reason and the remedy."""


def output(command: Sequence[str], *, folder: Path | None = None, variables: Mapping[str, str]) -> str:
    """Run a command with exactly these variables, and return what it prints.

    Raises:
        ReleaseError: the command fails; with the end of its output.
    """
    done = run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stdout + done.stderr).strip()[-4000:]
        message = f"{' '.join(command)} ended with {done.returncode}: {told}"
        raise ReleaseError(message)
    return done.stdout
