"""What `@harbor.periodic` says, as the value that workers put into the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from taskharbor.app.errors import InvalidArguments
from taskharbor.app.options import EnqueueOptions, unknown_option
from taskharbor.app.task import Task
from taskharbor.core.clock import utc_now
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_NAME, check_name

if TYPE_CHECKING:
    from taskharbor.core.model import Schedule

_TAKEN: Final = frozenset(
    ("queue", "priority", "tenant", "meta", "limit_key", "max_attempts", "max_retries", "timeout")
)
"""The options that every job of a schedule can have; the others belong to one job alone."""
_NAMED: Final = _TAKEN | {"timezone", "name", "overlap", "arguments"}


def schedule_of(
    task: Task[Any, Any],
    spec: str,
    *,
    timezone: str,
    name: str | None,
    overlap: str,
    arguments: Mapping[str, Any] | None,
    options: EnqueueOptions,
) -> Schedule:
    """The schedule, with everything checked that can be before a worker runs it."""
    from taskharbor.core.model import Schedule
    from taskharbor.core.schedule import Cron

    Cron.parse(spec, timezone).first_after(utc_now())
    for other in sorted(options.keys() - _TAKEN):
        if other in EnqueueOptions.__optional_keys__:
            raise InvalidInput(
                f"a schedule has no {other}, which belongs to one job: its options are {', '.join(sorted(_NAMED))}"
            )
        raise unknown_option(other, _NAMED)
    if overlap not in ("skip", "allow"):
        raise InvalidInput(f"overlap must be 'skip' or 'allow', got {overlap!r}")
    try:
        payload = task._payload((), arguments or {})
    except InvalidArguments as error:
        raise InvalidArguments(
            f"{error}. A schedule gives its arguments where it is defined: "
            f"periodic({spec!r}, arguments={{…}}), or the function needs defaults"
        ) from None
    terms = task._terms.with_options(options)
    fields, meta = terms.fields, terms.meta_for(task.name, payload)
    name = check_name(task.name if name is None else name, "name", MAX_NAME)
    ring = task._harbor.encryption
    if ring is not None:
        # The name that its jobs will show, which is how they open it.
        shown = meta.get("schedule", name)
        payload = ring.seal_schedule(payload, tenant=fields["tenant_id"], type=task.name, name=shown)
    return Schedule(
        name=name,
        spec=spec,
        timezone=timezone,
        type=task.name,
        payload=payload,
        queue=fields["queue"],
        tenant_id=fields["tenant_id"],
        priority=fields.get("priority", 0),
        max_attempts=fields.get("max_attempts"),
        timeout=fields.get("timeout"),
        meta=meta,
        overlap=overlap,
    )
