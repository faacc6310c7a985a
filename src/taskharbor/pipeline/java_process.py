"""Spark's Java as a process of ours: how it is started, ended when its start is interrupted, and listened to.

PySpark lets Java write to our standard error directly, and forgets a Java whose start was interrupted. Here what Java
says passes through a pipe, where the few lines that Spark says at every start, and the last breath of Python workers
whose reader has gone, are left out; everything else goes on to standard error.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Final

_CHATTER: Final = re.compile(
    r"WARNING: Using incubator modules: jdk\.incubator\.vector$"
    r"|Using Spark's default log4j profile: "
    r'|Setting default log level to "\w+"\.$'
    r"|To adjust logging level use sc\.setLogLevel"
)
_TRACEBACK: Final = "Traceback (most recent call last):"
_FLUSH_FAILED: Final = "PySpark daemon failed to flush the output to the worker process:"
_HUNG_UP: Final = ("BrokenPipeError: ", "ConnectionResetError: ")
_LONGEST_TRACEBACK: Final = 200
_LAST_WORDS_S: Final = 5.0


def start_java(settings: Mapping[str, str]) -> None:
    """Start the Java of this process, unless it has one. An interrupt, or a failure, leaves none behind."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    with SparkContext._lock:
        if SparkContext._gateway or "PYSPARK_GATEWAY_PORT" in os.environ:
            return
        conf = SparkConf(loadDefaults=False)
        for name, value in settings.items():
            conf.set(name, value)
        voice = Voice()
        try:
            gateway = launch_gateway(conf, {"stderr": voice.end})
        except BaseException as error:
            end_java(error)
            voice.close(listen_s=_LAST_WORDS_S)  # what it said of its end comes before what we say
            raise
        voice.close()
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def end_java(error: BaseException) -> None:
    """End the Java that PySpark had begun to start when `error` came in between.

    PySpark keeps it to itself, and then it would wait for ever: the place where it is to say that it is ready is gone.
    """
    trace = error.__traceback__
    while trace is not None:
        process = trace.tb_frame.f_locals.get("proc")
        if trace.tb_frame.f_code.co_name == "launch_gateway" and process is not None:
            with contextlib.suppress(OSError):
                process.kill()
                process.wait(_LAST_WORDS_S)
            return
        trace = trace.tb_next


class Voice:
    """The pipe that Java's standard error is, and the thread that passes on what comes through it."""

    def __init__(self) -> None:
        ours, self.end = os.pipe()
        self._thread = threading.Thread(
            target=pass_on, args=(os.fdopen(ours, "rb"), _to_standard_error), name="taskharbor-java", daemon=True
        )
        self._thread.start()

    def close(self, *, listen_s: float = 0) -> None:
        """Our copy of its end. The thread goes on for as long as Java has one; it is waited for so long."""
        os.close(self.end)
        self._thread.join(listen_s)


def pass_on(stream: IO[bytes], write: Callable[[bytes], Any]) -> None:
    """Everything that `stream` brings, less what nobody needs to hear. A line waits for no later one, but for those of
    the traceback that it is part of."""
    with stream, contextlib.suppress(OSError):
        lines = iter(stream.readline, b"")
        dropped = False
        for line in lines:
            text = _text(line)
            if text in (_TRACEBACK, _FLUSH_FAILED):
                block = _traceback(line, lines)
                dropped = _is_hung_up(block)
                if not dropped:
                    write(b"".join(block))
            elif dropped and not text:
                dropped = False  # the empty line behind it
            elif not _CHATTER.match(text):
                write(line)


def _traceback(first: bytes, lines: Iterator[bytes]) -> list[bytes]:
    """The lines of a traceback up to the one that names the error."""
    block = [first]
    for line in lines:
        block.append(line)
        inside = line.startswith((b" ", b"\t")) or _text(line) == _TRACEBACK
        if not inside or len(block) >= _LONGEST_TRACEBACK:
            break
    return block


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip()


def _is_hung_up(block: list[bytes]) -> bool:
    """Whether PySpark's own code, and nobody else's, could not write because Spark had stopped reading: how a task
    ends that was no longer wanted."""
    texts = [_text(line) for line in block]
    files = [text for text in texts if text.lstrip().startswith('File "')]
    return texts[-1].startswith(_HUNG_UP) and bool(files) and all("pyspark" in text for text in files)


def _to_standard_error(line: bytes) -> None:
    os.write(2, line)
