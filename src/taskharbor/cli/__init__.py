"""How people run it: the `taskharbor` command."""

from taskharbor.cli.command import main

__all__ = ["main"]
