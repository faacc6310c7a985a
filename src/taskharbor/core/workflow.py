"""Workflows: steps that are jobs, and what must end before each may begin. Values and checks; stores keep the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from taskharbor.core.errors import InvalidInput
from taskharbor.core.limits import MAX_NAME, MAX_TENANT, check_name
from taskharbor.core.model import DEFAULT_TENANT, NewJob, Status

MOST_STEPS: Final = 1_000_000
COMPENSATION: Final = -1
"""The number of the step that undoes what a failed workflow has done."""
WORKFLOW: Final = "workflow"
STEP: Final = "step"
"""Names in the meta of a job that is a step."""


class Policy(StrEnum):
    """What a step that fails does to the others."""

    FAIL = "fail"
    CONTINUE = "continue"
    COMPENSATE = "compensate"


class WorkflowState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLING = "cancelling"
    """Nothing of it begins any more, and some of its steps are still to be cancelled."""
    CANCELLED = "cancelled"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"


class StepState(StrEnum):
    WAITING = "waiting"
    """For steps before it."""
    HELD = "held"
    """Nothing before it is left, but it has not been let go."""
    OPEN = "open"
    """Its job may run, runs, or waits to be tried again."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED: Final = frozenset(
    {
        WorkflowState.STARTING,
        WorkflowState.RUNNING,
        WorkflowState.FAILED,
        WorkflowState.CANCELLING,
        WorkflowState.COMPENSATING,
    }
)
"""Those that may still move on; one that has failed does so when its dead steps are sent back."""
ENDED: Final = frozenset({StepState.DONE, StepState.FAILED, StepState.CANCELLED})


class NewStep(NamedTuple):
    """A step as its caller describes it: a job, and the numbers of the steps that must end before it. Steps of one
    `part` are shown together."""

    name: str
    job: NewJob
    after: tuple[int, ...] = ()
    part: str = ""


@dataclass(frozen=True, slots=True)
class NewWorkflow:
    """A workflow to start. Step number n stands at place n."""

    name: str
    steps: Sequence[NewStep]
    policy: Policy = Policy.FAIL
    compensation: NewJob | None = None
    tenant_id: str = DEFAULT_TENANT
    id: str | None = None


def compensation_id(workflow_id: str) -> str:
    """The id of the job that compensates the workflow, should it fail."""
    return f"{workflow_id}-undo"


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow as the store keeps it. `done` and `failed` count its steps."""

    id: str
    name: str
    tenant_id: str
    policy: Policy
    state: WorkflowState
    total: int
    done: int
    failed: int
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def ended(self) -> bool:
        return self.ended_at is not None


@dataclass(frozen=True, slots=True)
class Step:
    """A step as the store keeps it; `status` is where its job stands, None if that was pruned."""

    number: int
    name: str
    part: str
    job_id: str
    state: StepState
    waiting: int
    status: Status | None = None


class StepResult(NamedTuple):
    number: int
    job_id: str
    status: Status | None
    result: bytes | None


class StepCounts(NamedTuple):
    """How many steps of a part stand in a state."""

    part: str
    state: StepState
    steps: int


@dataclass(frozen=True)
class Plan:
    """A workflow that was checked: what waits for how many, and what waits for what."""

    waiting: list[int]
    edges: list[tuple[int, int]] = field(default_factory=list)
    """From a step to one that waits for it."""


def checked_workflow(flow: NewWorkflow) -> Plan:
    """The plan of a workflow that can be run. Raises InvalidInput for one that cannot, before anything is written."""
    check_name(flow.name, "the name of a workflow", MAX_NAME)
    check_name(flow.tenant_id, "tenant_id", MAX_TENANT)
    if not isinstance(flow.policy, Policy):
        raise InvalidInput(f"the policy of a workflow is one of {', '.join(map(str, Policy))}, got {flow.policy!r}")
    count = len(flow.steps)
    if not count:
        raise InvalidInput(f"workflow {flow.name!r} has no steps: give it at least one")
    if count > MOST_STEPS:
        raise InvalidInput(f"workflow {flow.name!r} has {count:,} steps, the limit is {MOST_STEPS:,}")
    if (flow.policy is Policy.COMPENSATE) != (flow.compensation is not None):
        raise InvalidInput("a workflow that compensates needs the job that does it, and no other one does")
    names: set[str] = set()
    edges: list[tuple[int, int]] = []
    waiting = []
    for number, step in enumerate(flow.steps):
        check_name(step.name, "the name of a step", MAX_NAME)
        if step.name in names:
            raise InvalidInput(f"workflow {flow.name!r} has two steps {step.name!r}: give each a name of its own")
        names.add(step.name)
        before = set(step.after)
        for each in before:
            if type(each) is not int or not 0 <= each < count:
                raise InvalidInput(f"step {step.name!r} comes after a step that workflow {flow.name!r} does not have")
        edges += [(each, number) for each in sorted(before)]
        waiting.append(len(before))
    _refuse_cycles(flow, edges, waiting)
    return Plan(waiting, edges)


def _refuse_cycles(flow: NewWorkflow, edges: Sequence[tuple[int, int]], waiting: Sequence[int]) -> None:
    later: dict[int, list[int]] = {}
    for before, after in edges:
        later.setdefault(before, []).append(after)
    left = list(waiting)
    free = [number for number, count in enumerate(left) if not count]
    reached = 0
    while free:
        reached += 1
        for number in later.get(free.pop(), ()):
            left[number] -= 1
            if not left[number]:
                free.append(number)
    if reached < len(flow.steps):
        raise InvalidInput(
            f"the steps of workflow {flow.name!r} wait for each other in a circle: {_circle(flow, left)}"
        )


def _circle(flow: NewWorkflow, left: Sequence[int]) -> str:
    stuck = {number for number, count in enumerate(left) if count}
    way: list[int] = [min(stuck)]
    while True:
        before = next(each for each in flow.steps[way[-1]].after if each in stuck)
        if before in way:
            circle = [*way[way.index(before) :], before]
            return " after ".join(repr(flow.steps[number].name) for number in circle)
        way.append(before)


def progress(flow: Workflow) -> Mapping[str, int]:
    return {"total": flow.total, "done": flow.done, "failed": flow.failed}
