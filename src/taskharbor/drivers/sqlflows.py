"""Workflows in the SQL stores: the same steps on each of them, in statements of the same names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from taskharbor.core.intake import Batch
from taskharbor.core.model import Status
from taskharbor.core.workflow import (
    Policy,
    Step,
    StepCounts,
    StepResult,
    StepState,
    Workflow,
    WorkflowState,
)
from taskharbor.drivers.fence import FenceShut
from taskharbor.drivers.flowing import Ending, Place, StepRow

Row = Sequence[Any]
Values = Mapping[str, Any]
Columns = Mapping[str, Sequence[Any]]

_BEFORE_ALL: Final = -1_000
"""A number that is less than that of any step."""


class SqlFlows(ABC):
    """`flows.Desk` in SQL."""

    @abstractmethod
    def _rows(self, statement: str, values: Values, columns: Columns | None = None) -> Sequence[Row]: ...

    @abstractmethod
    def _run(self, statement: str, values: Values, columns: Columns | None = None) -> None: ...

    @abstractmethod
    def insert_jobs(self, batch: Batch, *, fenced: bool = False) -> None: ...

    def refuse_shut(self) -> None:
        self._run("hold_fence", {})
        if self._rows("is_shut", {}):
            raise FenceShut

    def _read_time(self, value: Any) -> datetime | None:
        """A time as the store's rows have it."""
        moment: datetime | None = value
        return moment

    def _workflow(self, row: Row) -> Workflow:
        id, name, tenant_id, policy, state, total, done, failed, created_at, ended_at = row
        created = self._read_time(created_at)
        assert created is not None
        ended = self._read_time(ended_at)
        return Workflow(id, name, tenant_id, Policy(policy), WorkflowState(state), total, done, failed, created, ended)

    # --- Starting ----------------------------------------------------------------------------------------------

    def insert_workflow(self, flow: Workflow, compensation: str | None) -> None:
        values = {
            "id": flow.id,
            "name": flow.name,
            "tenant_id": flow.tenant_id,
            "policy": flow.policy.value,
            "state": flow.state.value,
            "total": flow.total,
            "created_at": flow.created_at,
            "compensation": compensation,
        }
        self._run("flow_insert", values)

    def insert_steps(self, steps: Sequence[StepRow]) -> None:
        ids, numbers, names, parts, job_ids, waitings, states = zip(*steps, strict=True)
        columns: Columns = {
            "numbers": numbers,
            "names": names,
            "parts": parts,
            "ids": job_ids,
            "waitings": waitings,
            "states": [state.value for state in states],
        }
        self._run("flow_add_steps", {"workflow_id": ids[0]}, columns)

    def insert_edges(self, workflow_id: str, edges: Sequence[tuple[int, int]]) -> None:
        if edges:
            causes, effects = zip(*edges, strict=True)
            self._run("flow_add_edges", {"workflow_id": workflow_id}, {"causes": causes, "effects": effects})

    # --- Moving on ---------------------------------------------------------------------------------------------

    def workflows_of(self, job_ids: Sequence[str]) -> Sequence[str]:
        return [row[0] for row in self._rows("flow_of", {}, {"ids": job_ids})]

    def lock_workflows(self, ids: Sequence[str]) -> Sequence[Workflow]:
        return [self._workflow(row) for row in self._rows("flow_lock", {}, {"ids": sorted(ids)})]

    def endings(self, job_ids: Sequence[str]) -> Sequence[Ending]:
        rows = self._rows("flow_endings", {}, {"ids": job_ids})
        return [
            Ending(id, number, job_id, StepState(state), waiting, _status(status))
            for id, number, job_id, state, waiting, status in rows
        ]

    def mark(self, steps: Sequence[Place], state: StepState) -> None:
        if steps:
            self._run("flow_mark", {"state": state.value}, _columns(steps))

    def count_down(self, steps: Sequence[Place]) -> None:
        self._run("flow_count_down", {}, _columns(steps))

    def count_up(self, steps: Sequence[Place]) -> None:
        self._run("flow_count_up", {}, _columns(steps))

    def returning(self, workflow_id: str) -> bool:
        return bool(self._rows("flow_returning", {"workflow_id": workflow_id}))

    def held(self, workflow_ids: Sequence[str], most: int) -> Sequence[tuple[str, int, str]]:
        rows = self._rows("flow_held", {"most": most}, {"ids": sorted(workflow_ids)})
        return [(id, number, job_id) for id, number, job_id in rows]

    def let_go(self, job_ids: Sequence[str], now: datetime) -> None:
        self._run("flow_let_go", {"now": now}, {"ids": sorted(job_ids)})

    def waiting_jobs(self, workflow_id: str, most: int) -> Sequence[tuple[int, str]]:
        return self._numbered("flow_waiting_jobs", workflow_id, most)

    def hold_back(self, job_ids: Sequence[str]) -> None:
        ids = sorted(job_ids)
        self._run("flow_hold_back", {}, {"ids": ids})
        self._leave_bench(ids)

    def _leave_bench(self, job_ids: Sequence[str]) -> None:
        self._run("leave_bench", {}, {"ids": job_ids})

    def count_open(self, workflow_id: str) -> int:
        return int(self._rows("flow_count_open", {"workflow_id": workflow_id})[0][0])

    def compensation(self, workflow_id: str) -> str | None:
        rows = self._rows("flow_compensation", {"id": workflow_id})
        return rows[0][0] if rows else None

    def forget_compensation(self, id: str) -> None:
        self._run("flow_forget_compensation", {"id": id})

    def save(self, flows: Sequence[Workflow]) -> None:
        columns: Columns = {
            "ids": [flow.id for flow in flows],
            "states": [flow.state.value for flow in flows],
            "counts": [flow.done for flow in flows],
            "failures": [flow.failed for flow in flows],
            "ends": [flow.ended_at for flow in flows],
        }
        self._run("flow_save", {}, columns)

    # --- Looking -----------------------------------------------------------------------------------------------

    def get(self, id: str) -> Workflow | None:
        rows = self._rows("flow_get", {"id": id})
        return self._workflow(rows[0]) if rows else None

    def page(self, before: str | None, limit: int) -> Sequence[Workflow]:
        return [self._workflow(row) for row in self._rows("flow_page", {"before": before, "most": limit})]

    def steps(self, id: str, after: int | None, limit: int) -> Sequence[Step]:
        return [
            Step(number, name, part, job_id, StepState(state), waiting, _status(status))
            for number, name, part, job_id, state, waiting, status in self._behind("flow_steps", id, after, limit)
        ]

    def counts(self, id: str) -> Sequence[StepCounts]:
        rows = self._rows("flow_counts", {"workflow_id": id})
        return [StepCounts(part, StepState(state), steps) for part, state, steps in rows]

    def edges(self, id: str, limit: int) -> Sequence[tuple[int, int]]:
        rows = self._rows("flow_edges", {"workflow_id": id, "most": limit})
        return [(cause, effect) for cause, effect in rows]

    def results(self, id: str, part: str | None, after: int | None, limit: int) -> Sequence[StepResult]:
        rows = self._behind("flow_results", id, after, limit, part=part)
        return [StepResult(number, job_id, _status(status), result) for number, job_id, status, result in rows]

    def unfinished(self, id: str, limit: int) -> Sequence[tuple[int, str]]:
        return self._numbered("flow_unfinished", id, limit)

    def failed(self, id: str, after: int, limit: int) -> Sequence[tuple[int, str]]:
        return [(number, job_id) for number, job_id in self._behind("flow_failed", id, after, limit)]

    def stranded(self, id: str, limit: int) -> Sequence[tuple[int, Status | None]]:
        rows = self._rows("flow_stranded", {"workflow_id": id, "most": limit})
        return [(number, _status(status)) for number, status in rows]

    def lost(self, limit: int) -> Sequence[str]:
        return [row[0] for row in self._rows("flow_lost", {"most": limit})]

    def stuck(self, limit: int) -> Sequence[str]:
        return [row[0] for row in self._rows("flow_stuck", {"most": limit})]

    def abandoned(self, before: datetime, limit: int) -> Sequence[str]:
        return [row[0] for row in self._rows("flow_abandoned", {"before": before, "most": limit})]

    def cancelling(self, limit: int) -> Sequence[str]:
        return [row[0] for row in self._rows("flow_cancelling", {"most": limit})]

    def over(self, before: datetime, limit: int) -> Sequence[str]:
        return sorted(row[0] for row in self._rows("flow_over", {"before": before, "most": limit}))

    def prune(self, ids: Sequence[str]) -> None:
        for table in ("edges", "steps", "workflows"):
            self._run(f"flow_prune_{table}", {}, {"ids": ids})

    def _numbered(self, statement: str, id: str, most: int) -> Sequence[tuple[int, str]]:
        rows = self._rows(statement, {"workflow_id": id, "most": most})
        return [(number, job_id) for number, job_id in rows]

    def _behind(self, statement: str, id: str, after: int | None, most: int, **more: Any) -> Sequence[Row]:
        number = _BEFORE_ALL if after is None else after
        return self._rows(statement, {"workflow_id": id, "after": number, "most": most, **more})


def _columns(steps: Sequence[Place]) -> Columns:
    """In one order for all who lock them."""
    workflow_ids, numbers = zip(*sorted(steps), strict=True)
    return {"workflow_ids": workflow_ids, "numbers": numbers}


def _status(value: str | None) -> Status | None:
    return None if value is None else Status(value)
