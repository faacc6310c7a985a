"""The log of a program that is ours to set up, as `taskharbor worker` is: our lines, those of the application and those
of its libraries, all in one format and none of them twice.

An application that has given the root logger handlers of its own keeps them for its own lines. Libraries are heard
from a warning on, unless the application has given their loggers a level.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from taskharbor.core.logged import OURS, WithJob, handler_for, hush_outages, is_ours
from taskharbor.worker.logs import WithWorker

_STANDARD_LIBRARY: Final = (str(Path(os.__file__).parent) + os.sep, "<frozen ")
_INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_TALKATIVE: Final = ("py4j", "pyspark")
"""Libraries that may come with a Spark of their own, from where nothing tells them from an application."""


@dataclass(frozen=True, slots=True)
class ProgramLog:
    """How it is set up; small, and handed on to the processes of handlers."""

    level: str = "info"
    format: str = "text"
    own: tuple[str, ...] = ()
    """Packages that are the application, wherever they are installed."""
    worker: str = ""

    def begin(self) -> None:
        """Before the application is imported, which may set up logging itself: only what nobody else would take."""
        _let_go_of_warnings()
        logging.lastResort = handler_for(sys.stderr, self.format)
        logging.lastResort.setLevel(logging.WARNING)
        if self.format == "json":  # else Python's warnings stand between the lines as plain text
            logging.captureWarnings(True)
            _warnings.addHandler(logging.lastResort)

    def install(self) -> None:
        """When the application has been imported."""
        global _installed, _handlers
        self.begin()
        _let_go_of_warnings()
        _remove_earlier()
        root, ours = logging.getLogger(), logging.getLogger(OURS)
        ours.setLevel(self.level.upper())
        _wake_ours()
        hush_outages()
        handler = handler_for(sys.stderr, self.format)
        _remove_bare(root)
        theirs = [each for each in root.handlers if not isinstance(each, logging.NullHandler)]
        if theirs:
            ours.addHandler(handler)
            for each in theirs:
                each.addFilter(_with_job)
                if _writes_to_console(each):
                    each.addFilter(_not_ours)
        else:
            handler.addFilter(_FirstOfAll(self.own))
            root.addHandler(handler)
            root.setLevel(self.level.upper())
            for name in _TALKATIVE:
                if logging.getLogger(name).level == logging.NOTSET:
                    logging.getLogger(name).setLevel(logging.WARNING)
        _installed, _handlers = self, [handler, *theirs]
        if self.worker:
            name_worker(self.worker)


_warnings: Final = logging.getLogger("py.warnings")
_with_job: Final = WithJob()
_installed: ProgramLog | None = None
_handlers: list[logging.Handler] = []
"""Ours, and then those of the application."""


def name_worker(worker: str) -> None:
    """From here on every line names the worker, where logging was set up here."""
    global _installed  # noqa: PLW0603 - there is one log to a program
    if _installed is not None:
        _installed = replace(_installed, worker=worker)
        for handler in _handlers:
            handler.addFilter(WithWorker(worker))


def to_hand_on() -> ProgramLog | None:
    """What processes that run handlers are to set up likewise; None where logging is the application's affair."""
    return _installed


def packages(modules: Iterable[str]) -> tuple[str, ...]:
    """The outermost packages that these modules are in."""
    return tuple(sorted({module.partition(".")[0].partition(":")[0] for module in modules}))


class _FirstOfAll(logging.Filter):
    """Lets through what the root logger is to show: nothing that another handler has shown in the same place, and of
    libraries no more than they would say elsewhere."""

    def __init__(self, own: tuple[str, ...]) -> None:
        super().__init__()
        self._own = (OURS, *own)

    def filter(self, record: logging.LogRecord) -> bool:
        above = list(_below_root(record.name))
        if any(_writes_to_console(each) and record.levelno >= each.level for it in above for each in it.handlers):
            return False
        if record.levelno >= logging.WARNING or not _is_of_library(record.pathname):
            return True
        return record.name.partition(".")[0] in self._own or any(it.level for it in above)


def _below_root(name: str) -> Iterator[logging.Logger]:
    """The logger and those above it, which get its lines too."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None and logger is not logging.root:
        yield logger
        logger = logger.parent


def _is_of_library(path: str) -> bool:
    return path.startswith(_STANDARD_LIBRARY) or any(part in path for part in _INSTALLED)


def _writes_to_console(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    return any(stream is each for each in (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__) if each is not None)


def _let_go_of_warnings() -> None:
    """Whoever has the root logger has them too."""
    if logging.lastResort is not None:
        _warnings.removeHandler(logging.lastResort)


def _remove_earlier() -> None:
    """What a program that runs several commands has of the one before."""
    for handler in _handlers[:1]:
        logging.getLogger().removeHandler(handler)
        logging.getLogger(OURS).removeHandler(handler)
    for handler in _handlers:
        for each in [each for each in handler.filters if isinstance(each, WithWorker)]:
            handler.removeFilter(each)


def _remove_bare(root: logging.Logger) -> None:
    """A call such as `logging.warning(…)` adds a handler to a root logger that has none. Nobody has asked for it."""
    if len(root.handlers) != 1 or root.level != logging.WARNING:
        return
    handler = root.handlers[0]
    text = getattr(handler.formatter, "_fmt", None)
    if type(handler) is logging.StreamHandler and handler.stream is sys.stderr and text == logging.BASIC_FORMAT:
        root.removeHandler(handler)


def _wake_ours() -> None:
    """`dictConfig` silences every logger that was there before it, unless it is told not to."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and (name == OURS or name.startswith(f"{OURS}.")):
            logger.disabled = False


def _not_ours(record: logging.LogRecord) -> bool:
    return not is_ours(record)
