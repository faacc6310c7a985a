"""The streams of the command: whatever the terminal's encoding is, and even where the shell has closed them."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import BinaryIO, Final

from taskharbor.core.errors import TaskHarborError

_RAISING: Final = ("strict", "surrogateescape")


def make_ready() -> None:
    """What cannot be encoded is written as an escape, and what nobody wants to see goes nowhere. Only for a process
    that is the command: the streams of any other belong to somebody else."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: else the next file that is opened, perhaps the store, would be standard output
            os.open(os.devnull, os.O_RDWR)
    # Python has None for streams that were closed when it began, whatever its types say.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - stays open
        elif isinstance(stream, io.TextIOWrapper) and stream.errors in _RAISING:
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def standard_output_elsewhere() -> Iterator[None]:
    """Whatever anybody prints meanwhile, processes and libraries in C too, goes to standard error: standard output is
    for what is printed afterwards."""
    out = sys.stdout
    out.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        out.flush()  # what came by way of a reference from before
        os.dup2(kept, 1)
        os.close(kept)


def has_input_terminal() -> bool:
    """Whether somebody can be asked."""
    stream: object = sys.stdin
    return stream is not None and sys.stdin.isatty()


def standard_input() -> BinaryIO:
    stream: object = sys.stdin
    if stream is None:
        raise TaskHarborError("standard input is closed: there is nothing to read for -")
    return sys.stdin.buffer
