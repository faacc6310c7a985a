"""A thread that does one step again and again, as long as the server runs."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from taskharbor.core.errors import DriverClosed, StoreError

log = logging.getLogger("taskharbor.web")

FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 5.0
JOIN_S: Final = 10.0


class Loop:
    """Calls `step`, which returns the seconds until it wants to be called again, in a thread of its own.

    A step that fails is tried again, less and less often: that it fails is said once, and that it works again too.
    `stop` works twice and before `start`; a loop that was stopped does not start again.
    """

    def __init__(self, name: str, step: Callable[[], float]) -> None:
        self._name = name
        self._step = step
        self._stopped = threading.Event()
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble_since: float | None = None
        self._wait_s = FIRST_WAIT_S

    def start(self) -> None:
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name=f"taskharbor-{self._name}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._awake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)

    def wake(self) -> None:
        """The next step is not waited for."""
        self._awake.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            wait_s = self.once()
            if self._awake.wait(wait_s):
                self._awake.clear()

    def once(self) -> float:
        """One step, whatever it comes to; returns the seconds to wait."""
        try:
            wait_s = self._step()
        except DriverClosed:
            self._stopped.set()  # the server is going down
            return 0.0
        except StoreError as error:
            self._failed("the store cannot be used; the %s waits until it can: %s", error)
        except Exception as error:
            self._failed("the %s failed and goes on: %s", error, unexpected=True)
        else:
            self._works()
            return wait_s
        wait_s, self._wait_s = self._wait_s, min(LONGEST_WAIT_S, self._wait_s * 2)
        return random.uniform(wait_s / 2, wait_s)

    def _failed(self, text: str, error: Exception, *, unexpected: bool = False) -> None:
        if self._trouble_since is None:
            self._trouble_since = time.monotonic()
            level = logging.ERROR if unexpected else logging.WARNING
            log.log(level, text, self._name, error, exc_info=error if unexpected else None)

    def _works(self) -> None:
        since, self._trouble_since = self._trouble_since, None
        self._wait_s = FIRST_WAIT_S
        if since is not None:
            log.warning("the %s goes on after %.1f s", self._name, time.monotonic() - since)
