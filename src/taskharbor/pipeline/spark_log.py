"""Where Spark's own words go while a command runs: into a file, which is named if the command fails and else removed.

Spark tells every failure in pages of Java, for a person who waits for a sentence. The pages are not lost: `hint` says
where they are.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from taskharbor.core.errors import TaskHarborError

_LONGEST: Final = 300


class SparkFailed(TaskHarborError):
    """Spark could not do what it was asked for. The message has its first sentence, and where to find the rest."""


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.named = False


_files: list[_File] = []


@contextlib.contextmanager
def into_a_file() -> Iterator[Path]:
    """A Spark that starts within this writes its log there; so does one that goes on behind it."""
    handle, name = tempfile.mkstemp(prefix="taskharbor-spark-", suffix=".log")
    os.close(handle)
    file = _File(Path(name))
    _files.append(file)
    try:
        yield file.path
    finally:
        _files.remove(file)
        if not file.named:
            file.path.unlink(missing_ok=True)


def place() -> Path | None:
    """The file, if there is one now."""
    return _files[-1].path if _files else None


def keep_python_quiet() -> None:
    """What PySpark raises of a query, it writes on standard error as well, as a long line of JSON. Not while there is a
    file: the error is told in a sentence then."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").addFilter(_without_a_file)


def _without_a_file(record: logging.LogRecord) -> bool:
    return not _files


def hint() -> str:
    """For the end of a message: where the whole story is. Empty where Spark has said nothing, or said it already."""
    if not _files:
        return ""
    file = _files[-1]
    with contextlib.suppress(OSError):
        if file.path.stat().st_size:
            file.named = True
            return f"; all that Spark said is in {file.path}"
    return ""


def is_of_spark(error: BaseException) -> bool:
    return any(kind.__module__.partition(".")[0] in ("pyspark", "py4j") for kind in type(error).__mro__)


def in_one_sentence(error: BaseException) -> str:
    """What an error of Spark says, without the pages: the innermost cause that it names, else how it begins."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = next((line for line in lines if line and not line.startswith("An error occurred while calling")), "")
    text = (causes[-1] if causes else first.lstrip(": ")) or type(error).__name__
    head, colon, rest = text.partition(": ")
    if colon and "." in head and " " not in head:  # the long name of a class of Java
        text = rest or head
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def failed(error: BaseException) -> SparkFailed:
    return SparkFailed(f"Spark failed: {in_one_sentence(error)}{hint()}")
