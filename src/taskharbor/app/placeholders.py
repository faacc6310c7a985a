"""Results of earlier steps as arguments of later ones: what stands in a payload until they are known.

A placeholder names steps of the job's own workflow by their numbers, so that a payload can never ask for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidPayload, WorkflowNotFound
from taskharbor.core.model import Job
from taskharbor.core.workflow import WORKFLOW, StepResult

RESULT: Final = "$taskharbor.result"
PART: Final = "$taskharbor.results"
MARK: Final = b'"$taskharbor.result'
"""In every payload with a placeholder, and hardly in any other."""
PAGE: Final = 1_000


class Placeholder:
    """Stands for what steps will return."""

    __slots__ = ("numbers", "owner", "record", "said")

    def __init__(self, said: str, record: Mapping[str, Any], numbers: Sequence[int], owner: object = None) -> None:
        self.said = said
        self.owner = owner
        self.record = dict(record)
        self.numbers = numbers

    def __repr__(self) -> str:
        return self.said


PREVIOUS: Final = Placeholder("PREVIOUS", {}, ())
"""In a chain: what the step before returned."""
RESULTS: Final = Placeholder("RESULTS", {}, ())
"""In the last step of a chord: the list of what all the others returned."""


def step_result(owner: object, number: int, name: str) -> Placeholder:
    return Placeholder(f"the result of step {name!r}", {RESULT: number}, (number,), owner)


def part_results(owner: object, name: str, numbers: range) -> Placeholder:
    return Placeholder(f"the results of {name}", {PART: name}, numbers, owner)


def holds_placeholder(value: Any) -> bool:
    if isinstance(value, Placeholder):
        return True
    if isinstance(value, list | tuple):
        return any(map(holds_placeholder, value))
    return isinstance(value, Mapping) and any(map(holds_placeholder, value.values()))


def written(value: Any) -> Any:
    """The value as a payload has it."""
    if isinstance(value, Placeholder):
        return value.record
    if isinstance(value, list | tuple):
        return [written(each) for each in value]
    if isinstance(value, Mapping):
        return {key: written(each) for key, each in value.items()}
    return value


def is_unresolved(value: Any) -> bool:
    """Whether a value of a payload has a result in it that is still to come."""
    if isinstance(value, Mapping):
        return RESULT in value or PART in value or any(map(is_unresolved, value.values()))
    return isinstance(value, list | tuple) and any(map(is_unresolved, value))


def resolved(job: Job, values: Any, driver: Driver, decode: Callable[[StepResult], Any]) -> Any:
    """The values with results in place of placeholders. A step that has failed or was pruned has None."""
    id = job.meta.get(WORKFLOW)
    if id is None:
        return values
    try:
        flow = driver.get_workflow(id)
    except WorkflowNotFound:
        raise InvalidPayload.about(f"{job.type}: its workflow is gone, and with it the results that it takes") from None
    if flow.tenant_id != job.tenant_id:
        raise InvalidPayload.about(f"{job.type}: takes results of a workflow that is not its own")

    def look(value: Any) -> Any:
        if isinstance(value, dict):
            if len(value) == 1 and isinstance(number := value.get(RESULT), int):
                found = driver.step_results(id, None, number - 1, 1)
                return decode(found[0]) if found and found[0].number == number else None
            if len(value) == 1 and isinstance(part := value.get(PART), str):
                return [decode(each) for each in _pages(driver, id, part)]
            return {key: look(each) for key, each in value.items()}
        return [look(each) for each in value] if isinstance(value, list) else value

    return look(values)


def _pages(driver: Driver, id: str, part: str) -> Iterator[StepResult]:
    after: int | None = None
    while found := driver.step_results(id, part, after, PAGE):
        yield from found
        after = found[-1].number
