"""How people run it: the `taskharbor` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 it failed, 2 wrong usage."""
    try:
        # Imported here, so that an interrupt while it loads ends in one line as well.
        from taskharbor.cli.command import run

        return run(words)
    except KeyboardInterrupt:
        print("taskharbor: interrupted", file=sys.stderr)
        return 1


__all__ = ["main"]
