"""How the demonstration speaks: steps, words, and promises that are kept or end it."""

import sys


def title(text: str) -> None:
    """A step."""
    print(f"\n{text}")


def say(text: str) -> None:
    """Something to see."""
    print(f"  {text}")


def check(holds: bool, promise: str) -> None:
    """Show a promise as kept, or end."""
    if not holds:
        sys.exit(f"  BROKEN: {promise}")
    print(f"  ✓ {promise}")
