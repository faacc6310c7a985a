"""How workflows move on, written once for every store.

A store offers a `FlowDesk`: the few things that a workflow asks of it, inside one transaction. Whoever moves a workflow
locks its row first, so that two never do so at once. Everything here may be called any number of times for the same
jobs: a step ends once, and only an open one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from taskharbor.core.intake import Batch
from taskharbor.core.model import Status
from taskharbor.core.workflow import COMPENSATION, Policy, StepState, Workflow, WorkflowState, compensation_id

AT_ONCE: Final = 5_000
"""Steps that one transaction lets go or stops."""
PASSED_BY: Final = 1_000
"""How often one transaction goes on behind steps whose jobs have ended before their turn."""
LIVE: Final = frozenset({Status.READY, Status.INFLIGHT})
STOPPED: Final = frozenset({WorkflowState.CANCELLING, WorkflowState.CANCELLED})
NOT_BEGUN: Final = frozenset({StepState.WAITING, StepState.HELD})
SETTLED: Final = STOPPED | {WorkflowState.COMPENSATING, WorkflowState.COMPENSATED}
"""Where a workflow stands whatever becomes of its steps."""


Place = tuple[str, int]
"""A step: its workflow and its number there."""


class StepRow(NamedTuple):
    workflow_id: str
    number: int
    name: str
    part: str
    job_id: str
    waiting: int
    state: StepState


class Ending(NamedTuple):
    """A step that is neither done nor cancelled, and where its job stands; None if it is gone."""

    workflow_id: str
    number: int
    job_id: str
    state: StepState
    waiting: int
    status: Status | None


class FlowDesk(Protocol):
    """What workflows ask of a store, in one transaction."""

    def insert_workflow(self, flow: Workflow, compensation: str | None) -> None: ...

    def insert_steps(self, steps: Sequence[StepRow]) -> None: ...

    def insert_edges(self, workflow_id: str, edges: Sequence[tuple[int, int]]) -> None: ...

    def insert_jobs(self, batch: Batch, *, fenced: bool = False) -> None:
        """As enqueue does. In a store that is shut only without `fenced`: what has begun there may go on."""
        ...

    def refuse_shut(self) -> None:
        """Raise `FenceShut` in a store that is shut; it is not shut then before this transaction ends, or whoever
        shuts it waits for that."""
        ...

    def workflows_of(self, job_ids: Sequence[str]) -> Sequence[str]:
        """The workflows that have one of these jobs as a step that is neither done nor cancelled."""
        ...

    def lock_workflows(self, ids: Sequence[str]) -> Sequence[Workflow]:
        """These workflows, in order of their ids, and nobody else moves them until the transaction ends."""
        ...

    def endings(self, job_ids: Sequence[str]) -> Sequence[Ending]:
        """The steps of these jobs that are neither done nor cancelled."""
        ...

    def mark(self, steps: Sequence[Place], state: StepState) -> None: ...

    def count_down(self, steps: Sequence[Place]) -> None:
        """Steps that wait for these wait for so many less; those that wait for none any more are held."""
        ...

    def count_up(self, steps: Sequence[Place]) -> None:
        """Steps that wait for these wait for so many more; those that were held wait again."""
        ...

    def returning(self, workflow_id: str) -> bool:
        """Whether the workflow has a step that is marked as failed, though its job has come back."""
        ...

    def held(self, workflow_ids: Sequence[str], most: int) -> Sequence[tuple[str, int, str]]:
        """Workflows, numbers and jobs of held steps, at most so many in all."""
        ...

    def let_go(self, job_ids: Sequence[str], now: datetime) -> None:
        """Held jobs are due now, or when their own time comes."""
        ...

    def waiting_jobs(self, workflow_id: str, most: int) -> Sequence[tuple[int, str]]:
        """Numbers and jobs of open steps whose job is ready, locked: nobody leases them meanwhile."""
        ...

    def hold_back(self, job_ids: Sequence[str]) -> None:
        """Ready jobs are held again, and have no place in a line or on a bench any more. They keep their `run_at`."""
        ...

    def count_open(self, workflow_id: str) -> int: ...

    def compensation(self, workflow_id: str) -> str | None: ...

    def save(self, flows: Sequence[Workflow]) -> None:
        """State, counters and end."""
        ...


def advance(desk: FlowDesk, job_ids: Sequence[str], now: datetime) -> Sequence[str]:
    """Move the workflows on whose steps these jobs are, as far as the jobs have. Returns the workflows that are to be
    looked at again: there is more to let go or to stop than one transaction does, or something to compensate."""
    ids = desk.workflows_of(job_ids)
    if not ids:
        return []
    flows = {flow.id: flow for flow in desk.lock_workflows(sorted(ids))}
    endings: dict[str, list[Ending]] = defaultdict(list)
    for ending in desk.endings(job_ids):
        if ending.workflow_id in flows:
            endings[ending.workflow_id].append(ending)
    plain = [id for id in sorted(endings) if _is_plain(flows[id], endings[id])]
    again = _moved_together(desk, [(flows[id], endings[id]) for id in plain], now)
    return again + [id for id in sorted(endings.keys() - set(plain)) if _moved(desk, flows[id], endings[id], now)]


def _is_plain(flow: Workflow, endings: Sequence[Ending]) -> bool:
    """Whether nothing but success has to be told of: then many workflows move on in the statements that one takes."""
    return (
        flow.state is WorkflowState.RUNNING
        and flow.policy is not Policy.CONTINUE
        and not flow.failed
        and all(
            each.number != COMPENSATION
            and each.state is StepState.OPEN
            and (each.status is Status.DONE or each.status in LIVE)
            for each in endings
        )
    )


def _moved_together(desk: FlowDesk, found: Sequence[tuple[Workflow, Sequence[Ending]]], now: datetime) -> list[str]:
    """`_moved` for plain workflows: those that are to be looked at again."""
    done: list[Place] = []
    moved: list[Workflow] = []
    for flow, endings in found:
        ended = [(flow.id, each.number) for each in endings if each.status is Status.DONE]
        if ended:
            done += ended
            moved.append(replace(flow, done=flow.done + len(ended)))
    if not moved:
        return []
    desk.mark(done, StepState.DONE)
    desk.count_down(done)
    over = [replace(flow, state=WorkflowState.DONE, ended_at=now) for flow in moved if flow.done == flow.total]
    rest = [replace(flow, ended_at=None) for flow in moved if flow.done < flow.total]
    more = _let_go_held(desk, [flow.id for flow in rest], now)[1]
    desk.save([*over, *rest])
    return sorted([*more, *(flow.id for flow in over if flow.policy is Policy.COMPENSATE)])


def _let_go_held(desk: FlowDesk, workflow_ids: Sequence[str], now: datetime) -> tuple[Sequence[str], Sequence[str]]:
    """The jobs of held steps that were let go, and the workflows that may have more of them."""
    held = desk.held(workflow_ids, AT_ONCE) if workflow_ids else []
    if not held:
        return (), ()
    job_ids = [job_id for _, _, job_id in held]
    desk.mark([(id, number) for id, number, _ in held], StepState.OPEN)
    desk.let_go(job_ids, now)
    return job_ids, workflow_ids if len(held) >= AT_ONCE else ()


def _moved(desk: FlowDesk, flow: Workflow, endings: Sequence[Ending], now: datetime) -> bool:
    if flow.state is WorkflowState.STARTING:
        return False  # what waits for which may not be stored yet; a job that was cancelled is met when it is let go
    steps = [each for each in endings if each.number != COMPENSATION and not _is_early(flow, each)]
    undo = [each for each in endings if each.number == COMPENSATION and each.state not in NOT_BEGUN]
    done = [each.number for each in steps if each.status is Status.DONE]
    again = [each for each in steps if each.state is StepState.FAILED and each.status in LIVE]
    failed = [
        each.number
        for each in steps
        if each.state is not StepState.FAILED and each.status is not Status.DONE and each.status not in LIVE
    ]
    late = [each.number for each in steps if each.state is StepState.FAILED and each.status is Status.DONE]
    if not done and not failed and not again and not undo:
        return False
    for numbers, state in ((done, StepState.DONE), (failed, StepState.FAILED)):
        if numbers:
            desk.mark(_in(flow, numbers), state)
    flow = replace(flow, done=flow.done + len(done), failed=flow.failed + len(failed) - len(again) - len(late))
    if flow.policy is Policy.CONTINUE:
        # There a failed step has counted as ended, and does so until its job comes back.
        done = [number for number in done if number not in late] + failed
    if done:
        desk.count_down(_in(flow, done))
    if again and not _all_are_back(desk, flow, again, now):
        desk.save([replace(flow, state=WorkflowState.RUNNING, ended_at=None)])
        return False
    if undo:
        flow = _undone(desk, flow, undo[0], now)
    more = settle_state(desk, flow, now)
    return more or (flow.policy is Policy.COMPENSATE and (flow.failed > 0 or flow.done == flow.total))


def _in(flow: Workflow, numbers: Sequence[int]) -> list[Place]:
    return [(flow.id, number) for number in numbers]


def _is_early(flow: Workflow, step: Ending) -> bool:
    """Whether the end of a job does not count yet: what comes after a step comes after all before it, too, so where a
    workflow goes on without a step that was cancelled, it does so when its turn has come."""
    return flow.policy is Policy.CONTINUE and step.state is StepState.WAITING and step.waiting > 0


def _all_are_back(desk: FlowDesk, flow: Workflow, again: Sequence[Ending], now: datetime) -> bool:
    """Steps whose jobs have come back are open, or wait for those before them that have not ended. False if more of the
    workflow are about to come back: until they have, nobody knows what waits for them, and nothing is let go."""
    numbers, ids = [each.number for each in again], [each.job_id for each in again]
    desk.mark(_in(flow, numbers), StepState.OPEN)
    goes_on = flow.policy is Policy.CONTINUE and flow.state not in SETTLED
    if flow.policy is Policy.CONTINUE:
        desk.count_up(_in(flow, numbers))
    more = goes_on and desk.returning(flow.id)
    ready = [each for each in desk.endings(ids) if each.status is Status.READY]
    behind = [each.job_id for each in ready if goes_on and (more or each.waiting)]
    free = [each.job_id for each in ready if not (goes_on and (more or each.waiting))]
    if behind:
        desk.hold_back(behind)
        held = [each for each in desk.endings(behind) if each.status is Status.READY]  # the others were leased before
        desk.mark(_in(flow, [each.number for each in held if each.waiting]), StepState.WAITING)
        desk.mark(_in(flow, [each.number for each in held if not each.waiting]), StepState.HELD)
    if free:
        desk.let_go(free, now)
    return not more


def settle_state(desk: FlowDesk, flow: Workflow, now: datetime) -> bool:
    """Work out where the workflow stands, and act on it; whether there is more to do of that."""
    for last in (*[False] * PASSED_BY, True):
        flow, more, let_go = _settled(desk, flow, now)
        if last or not let_go or flow.policy is not Policy.CONTINUE:
            break  # jobs among these that have ended are left to `recover`
        ended = [each for each in desk.endings(let_go) if each.status not in LIVE]
        if not ended:
            break
        flow = _passed_by(desk, flow, ended)
    desk.save([flow])
    return more


def _settled(desk: FlowDesk, flow: Workflow, now: datetime) -> tuple[Workflow, bool, Sequence[str]]:
    """The workflow as it stands, whether there is more to do, and the jobs that were let go."""
    if flow.state in SETTLED:
        return flow, False, ()
    if flow.failed and flow.policy is not Policy.CONTINUE:
        more = _stop(desk, flow)
        return replace(flow, state=WorkflowState.FAILED, ended_at=flow.ended_at or now), more, ()
    if flow.done + flow.failed == flow.total:
        state = WorkflowState.FAILED if flow.failed else WorkflowState.DONE
        return replace(flow, state=state, ended_at=now), False, ()
    if flow.state is WorkflowState.STARTING:
        return flow, False, ()
    job_ids, left = _let_go_held(desk, [flow.id], now)
    return replace(flow, state=WorkflowState.RUNNING, ended_at=None), bool(left), job_ids


def _passed_by(desk: FlowDesk, flow: Workflow, ended: Sequence[Ending]) -> Workflow:
    """Steps whose turn has come and whose jobs were cancelled before it did."""
    done = [each.number for each in ended if each.status is Status.DONE]
    failed = [each.number for each in ended if each.status is not Status.DONE]
    desk.mark(_in(flow, done), StepState.DONE)
    desk.mark(_in(flow, failed), StepState.FAILED)
    desk.count_down(_in(flow, [*done, *failed]))
    return replace(flow, done=flow.done + len(done), failed=flow.failed + len(failed))


def _stop(desk: FlowDesk, flow: Workflow) -> bool:
    waiting = desk.waiting_jobs(flow.id, AT_ONCE)
    if waiting:
        desk.hold_back([job_id for _, job_id in waiting])
        desk.mark(_in(flow, [number for number, _ in waiting]), StepState.HELD)
    return len(waiting) == AT_ONCE


def _undone(desk: FlowDesk, flow: Workflow, undo: Ending, now: datetime) -> Workflow:
    """What has become of the compensation. One that died and was brought back waits until nothing else of the workflow
    runs, and is let go if the workflow has failed then."""
    if undo.state is StepState.OPEN and undo.status in LIVE:
        return flow
    if undo.state is StepState.FAILED and undo.status is Status.READY and flow.state not in STOPPED:
        job_ids = [compensation_id(flow.id)]
        desk.hold_back(job_ids)
        [undo] = desk.endings(job_ids)  # somebody may have leased it before it was held
        if undo.status is Status.READY:
            desk.mark(_in(flow, [COMPENSATION]), StepState.WAITING)
            return flow
    if undo.status in LIVE:
        desk.mark(_in(flow, [COMPENSATION]), StepState.OPEN)
        state, ended_at = WorkflowState.COMPENSATING, None
    else:
        done = undo.status is Status.DONE
        desk.mark(_in(flow, [COMPENSATION]), StepState.DONE if done else StepState.FAILED)
        state, ended_at = WorkflowState.COMPENSATED if done else WorkflowState.FAILED, now
    return flow if flow.state in STOPPED else replace(flow, state=state, ended_at=ended_at)


def wants_compensation(desk: FlowDesk, flow: Workflow) -> bool:
    """Whether the workflow has failed, and nothing of it runs any more that may still do something to undo."""
    return flow.policy is Policy.COMPENSATE and flow.state is WorkflowState.FAILED and not desk.count_open(flow.id)
