"""Where executors put jobs that are not published yet, and how the driver publishes them.

    stage = open_staging(plan)
    with stage.attempt(run) as attempt:         # on an executor, one for each attempt of a task
        attempt.add(checked)
    stage.publish(run, attempts, …)             # on the driver: exactly the attempts that Spark committed

What was staged by attempts that failed, or by a driver that died, is never published; `sweep` removes it.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from taskharbor.core.clock import utc_now
from taskharbor.core.errors import SchemaMissing, TaskHarborError
from taskharbor.pipeline.sink_options import Plan
from taskharbor.pipeline.sink_rows import Checked

LEFT_BEHIND: Final = timedelta(days=1)
"""Staged rows older than this belong to nobody any more."""

KeepRejects = Callable[[Iterable[tuple[str, str]]], None]
"""Takes rows as JSON, each with its reason, before anything is published."""


class StagedRowsGone(TaskHarborError):
    """What executors staged is not there any more. Nothing was published; run the load again."""


class Published(NamedTuple):
    """What a publish did, or what it had done already."""

    published: int
    duplicates: int
    rejected: int
    already: bool = False


class Attempt(Protocol):
    number: int

    def add(self, checked: Checked) -> None: ...


class Staging(ABC):
    """The staging place of one store."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @abstractmethod
    def attempt(self, run_id: str) -> AbstractContextManager[Attempt]:
        """On an executor: a place for one attempt of a task. What it added is there when the context has ended."""

    @abstractmethod
    def publish(
        self, run_id: str, attempts: Sequence[int], accepted: int, rejected: int, keep: KeepRejects
    ) -> Published:
        """On the driver: the staged jobs of these attempts become jobs of the store, once however often it is asked.
        Raises StagedRowsGone unless there are `accepted` of them."""

    @abstractmethod
    def discard(self, run_id: str) -> None:
        """Forget what was staged for this run. It is fine if nothing was."""

    @abstractmethod
    def sweep(self, before: datetime) -> int:
        """Forget what was staged before; how many rows, or files, that were."""


def ready(url: str, *, create: bool = True) -> datetime:
    """Say what is wrong with the store, if anything is, else what time it is there. With `create` an embedded one that
    is not there yet is made."""
    from taskharbor.drivers.opening import open_driver, parse_url

    with closing(open_driver(url)) as driver:
        try:
            driver.queues()
        except SchemaMissing:
            if parse_url(url).scheme not in ("sqlite", "json"):
                raise
            if not create:
                return utc_now()
            driver.migrate()
        return driver.now()


def open_staging(plan: Plan) -> Staging:
    from taskharbor.drivers.opening import parse_url

    scheme = parse_url(plan.url).scheme
    if scheme in ("postgresql", "postgres"):
        from taskharbor.pipeline.staging_postgres import PostgresStaging

        return PostgresStaging(plan)
    if scheme in ("mysql", "mariadb"):
        from taskharbor.pipeline.staging_mysql import MysqlStaging

        return MysqlStaging(plan)
    from taskharbor.pipeline.staging_files import FileStaging

    return FileStaging(plan)


def new_attempt() -> int:
    return secrets.randbits(62)


def run_number(run_id: str) -> int:
    """The run as a number, which takes less room beside each staged row than its name."""
    return int.from_bytes(sha256(run_id.encode()).digest()[:8], "big") >> 2


def gone(found: int, accepted: int) -> StagedRowsGone:
    return StagedRowsGone(
        f"{accepted:,} jobs were staged and {found:,} of them are there: the store was restarted, or somebody swept "
        "them away. Nothing was published; run the load again"
    )


def conflict(key: Any, holder: Any) -> str:
    return f"IdempotencyConflict: the key {key!r} already belongs to job {holder} with a different payload"


def expired(moment: Any) -> str:
    return f"AlreadyExpired: expires_at {moment} had passed when the load was published"
