"""The flags that select jobs, the same for every verb that does."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from taskharbor.cli.values import positive

if TYPE_CHECKING:
    from taskharbor.core.model import JobFilter

STATUSES: Final = (
    "ready",
    "scheduled",
    "waiting",
    "inflight",
    "claimed",
    "running",
    "done",
    "dlq",
    "expired",
    "cancelled",
)
PHASES: Final = {"scheduled": "ready", "waiting": "ready", "claimed": "inflight", "running": "inflight"}
"""Parts of a state that people speak of, and the state of the store that they are a part of."""
DEFAULT_LIMIT: Final = 50


def add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queue", metavar="NAME", help="only jobs of this queue")
    parser.add_argument("--type", metavar="NAME", help="only jobs of this type")
    parser.add_argument("--tenant", metavar="NAME", help="only jobs of this tenant")
    parser.add_argument("--error", metavar="TEXT", help="only jobs whose last error or DLQ reason contains this text")
    parser.add_argument("--code", metavar="CODE", help="only DLQ jobs with this code, such as max_attempts")


def add_paging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=positive, default=DEFAULT_LIMIT, metavar="N", help=f"at most N jobs (default: {DEFAULT_LIMIT})"
    )
    parser.add_argument("--cursor", metavar="CURSOR", help="go on behind the last page: the cursor that it ended with")


def filter_of(arguments: argparse.Namespace, status: str | None = None, ids: list[str] | None = None) -> JobFilter:
    from taskharbor.core.model import JobFilter

    return JobFilter(
        ids=ids or None,
        status=status,
        queue=arguments.queue,
        type=arguments.type,
        tenant_id=arguments.tenant,
        error=arguments.error,
        code=arguments.code,
    )


def selects_something(arguments: argparse.Namespace) -> bool:
    return any((arguments.queue, arguments.type, arguments.tenant, arguments.error, arguments.code))
