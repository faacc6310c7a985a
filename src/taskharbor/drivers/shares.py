"""The lines of fair queues: who gets which tag, and how far each line has come. Written once for every store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from taskharbor.core.fairness import HEAD_OF_LINE, give_tags
from taskharbor.core.model import LeasedJob

if TYPE_CHECKING:
    from taskharbor.drivers.governing import Ask, Desk, Rules


def give_out_tags(
    desk: Desk, rules: Rules, queue: str, now: datetime, most: int, ids: Sequence[str] | None = None
) -> int:
    """Give the newcomers of a fair queue their tags; how many got one."""
    given = 0
    # From the lowest priority up, as claims advance their lines: so no two wait for each other.
    for priority, newcomers in sorted(desk.newcomers(queue, now, most, ids).items()):
        tenants = sorted({newcomer.tenant_id for newcomer in newcomers})
        last, first = desk.tags(queue, priority, [*tenants, HEAD_OF_LINE])
        head = max(first, last.get(HEAD_OF_LINE, 0))
        tags, following = give_tags(newcomers, last, first, head, rules.queues[queue].weights)
        desk.give(queue, priority, tags, {**following, HEAD_OF_LINE: head})
        given += len(tags)
    return given


def advance_lines(desk: Desk, rules: Rules, ask: Ask, jobs: Sequence[LeasedJob]) -> None:
    """Remember how far the lines of fair queues have come. The first job that waits does not tell: it may be one that
    nobody takes. A claim for one tenant says nothing of the others, which it went past."""
    if ask.tenant is not None or not any(map(rules.is_fair, ask.queues)):
        return
    lines: dict[tuple[str, int], list[str]] = {}
    for job, _ in jobs:
        lines.setdefault((job.queue, job.priority), []).append(job.id)
    for queue, priority in sorted(lines):
        tag = desk.highest_tag(lines[queue, priority]) if rules.is_fair(queue) else None
        if tag is not None:
            desk.advance_line(queue, priority, tag)


def take_tags_back(desk: Desk, queue: str, most: int) -> int:
    """Let jobs of a queue that is fair no longer go by their due times again, at most so many; how many did."""
    taken = 0
    priority: int | None = None
    while taken < most and (priority := desk.next_line(queue, priority)) is not None:
        taken += desk.untag(queue, priority, most - taken)
    if taken < most:
        desk.untag_bench(queue)
    return taken
