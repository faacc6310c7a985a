"""Which jobs a page is about: the filter that stands in its address, and in the forms that act on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import urlencode

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_ID, MAX_NAME, MAX_TENANT, is_storable
from taskharbor.core.model import JobFilter, Status
from taskharbor.web.pages.words import brought_back

MOST_AT_ONCE: Final = 10_000
"""Jobs that one press of a button acts on."""
_PAGE: Final = 1_000
_LONGEST_TEXT: Final = 200


class Choice(NamedTuple):
    """The fields of the filter as people fill them in; empty ones choose nothing."""

    state: str = ""
    queue: str = ""
    type: str = ""
    tenant: str = ""
    q: str = ""
    """An id, or text in the id, the type, the error or the payload."""

    @property
    def query(self) -> str:
        """As it stands in an address."""
        return urlencode({name: value for name, value in self._asdict().items() if value})

    @property
    def is_empty(self) -> bool:
        return not any(self)

    def filter(self, tenant: str | None) -> JobFilter:
        """`tenant` is the one that the visitor may see; None is all."""
        return JobFilter(
            status=self.state or None,
            queue=self.queue or None,
            type=self.type or None,
            tenant_id=tenant if tenant is not None else self.tenant or None,
            text=self.q or None,
        )


def choice_of(given: Mapping[str, object], *, from_form: bool = False) -> Choice:
    """What was asked for, as far as a job could have it; names that no job can have choose nothing. In the forms that
    act on what was found, the fields are `carried`. A state may be one that is none, which finds nothing."""

    def text(name: str, longest: int) -> str:
        value = given.get(name)
        plain = value.strip() if isinstance(value, str) else ""
        plain = brought_back(plain) if from_form else plain
        return plain[:longest] if is_storable(plain) else ""

    state = text("state", 20)
    if from_form and state and state not in set(Status):
        raise InvalidInput("there is no such state")  # to act on all jobs instead would be the worst answer
    return Choice(
        state,
        text("queue", MAX_NAME),
        text("type", MAX_NAME),
        text("tenant", MAX_TENANT),
        text("q", _LONGEST_TEXT),
    )


def found_by(driver: Driver, choice: Choice, tenant: str | None) -> JobFilter:
    """The filter. Text that is the id of a job means this job, which an index finds; other text is looked for."""
    chosen = choice.filter(tenant)
    if not choice.q or len(choice.q) > MAX_ID or any(each.isspace() for each in choice.q):
        return chosen
    by_id = replace(chosen, text=None, ids=[choice.q])
    return by_id if driver.list(by_id, None, 1).jobs else chosen


def ids_of(driver: Driver, chosen: JobFilter, most: int = MOST_AT_ONCE) -> Sequence[str]:
    """The ids, oldest first, of the newest `most`. Fixed before anything moves, or a job that fails again at once
    would be taken again."""
    found: list[str] = []
    cursor: str | None = None
    while len(found) < most:
        page = driver.list(chosen, cursor, min(_PAGE, most - len(found)))
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    return found[::-1]
