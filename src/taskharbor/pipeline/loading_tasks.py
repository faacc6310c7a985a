"""What an application knows of the jobs of a load: its tasks, their arguments, and what they say of queue and so on.

All of it is looked at before a row is written: a load whose columns no task takes would only fill the DLQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from taskharbor.app.annotations import Check
from taskharbor.app.errors import InvalidArguments
from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline.sink_options import Plan, TaskRules, Words

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from taskharbor.app import Harbor
    from taskharbor.app.task import Task

_FIELDS: Final = ("queue", "tenant_id", "priority", "max_attempts", "timeout", "meta")
_TEXTS: Final = (
    "", "a", "1", "1.5", "true", "2031-05-01", "2031-05-01T09:00:00+00:00", "09:00:00",
    "019d3f2a-7c1e-7b45-9a70-5be0c1a4d2f3", "P1D",
)  # fmt: skip
_SAMPLES: Final[dict[str, tuple[Any, ...]]] = {
    "text": _TEXTS,
    "a whole number": (0, 1, 100),
    "a number": (0.5, 1.0),
    "true or false": (True, False),
}
"""What values of a kind look like in a payload. A column whose like a task takes in none of these shapes, and which in
another shape it would take, is a mistake for sure."""
_KINDS: Final = {
    "string": "text", "date": "text", "timestamp": "text", "timestamp_ntz": "text", "binary": "text",
    "tinyint": "a whole number", "smallint": "a whole number", "int": "a whole number", "bigint": "a whole number",
    "float": "a number", "double": "a number", "boolean": "true or false",
}  # fmt: skip
_FRACTIONS: Final = (0.5, 1.5, 100.5)
"""What takes one of these takes a number; a cast to whole ones would cut the fraction off."""
_CASTS: Final = {"text": "STRING", "a whole number": "BIGINT", "a number": "DOUBLE", "true or false": "BOOLEAN"}


def task_of(harbor: Harbor, name: str, words: Words) -> Task[Any, Any]:
    task = harbor.tasks.get(name)
    if task is None:
        near = get_close_matches(name, harbor.tasks, n=1)
        known = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(harbor.tasks)) or 'none'}."
        raise InvalidInput(
            f"the application has no task {name!r}: {known} With {words.unchecked} its jobs are loaded all the same"
        )
    return task


def rules_of(harbor: Harbor, plan: Plan, now: datetime) -> dict[str, TaskRules]:
    """The rules for each type that the load may have: the one that it names, or with a column all of them."""
    named = plan.constants.get("type")
    names = [named] if named is not None and "type" not in plan.columns else list(harbor.tasks)
    return {name: _rules(harbor.tasks[name], plan, now) for name in names}


def _rules(task: Task[Any, Any], plan: Plan, now: datetime) -> TaskRules:
    terms, binding = task._terms, task.binding
    fields = {name: terms.fields[name] for name in _FIELDS if terms.fields.get(name) is not None}
    if isinstance(fields.get("timeout"), timedelta):
        fields["timeout"] = fields["timeout"].total_seconds()
    if terms.expires_in is not None:
        fields["expires_at"] = (now + terms.expires_in).isoformat()
    optional = tuple(name for name in binding.names if name not in binding._required)
    needed = tuple(name for name in binding.names if name in binding._required and not _takes(binding._checks[name]))
    own = () if binding._extra is not None else plan.key_columns
    return TaskRules(fields, optional, needed, tuple(name for name in own if name not in binding._checks))


def _takes(check: Check, values: tuple[Any, ...] = (None,)) -> bool:
    """Whether it takes any of these."""
    return any(_fits(check, value) for value in values)


def _fits(check: Check, value: Any) -> bool:
    try:
        check.load(value)
    except Exception:  # Mismatch; a model of somebody else's may raise anything
        return False
    return True


def check_arguments(task: Task[Any, Any], plan: Plan, schema: StructType, words: Words) -> None:
    """InvalidArguments if the columns are no arguments of the task. A payload, which is text, or a map of arguments,
    is known row by row only."""
    given = _given(plan, schema)
    if given is None:
        return
    binding = task.binding
    unknown = [name for name in given if name not in binding._checks and name not in plan.key_columns]
    if unknown and binding._extra is None:
        near = get_close_matches(unknown[0], [name for name in binding.names if name not in given], n=1)
        cure = f"name the columns to take with {words.say('columns')}"
        if near:
            cure = f"if it is meant for {near[0]!r}, {words.make(near[0], unknown[0])}"
        takes = ", ".join(binding.names) or "none"
        raise InvalidArguments(f"the column {unknown[0]!r} is no argument of {task.name}, which takes {takes}: {cure}")
    missing = [name for name in binding.names if name in binding._required and name not in given]
    if missing:
        raise InvalidArguments(
            f"{task.name} needs the argument {missing[0]!r}, and there is no such column: "
            f"the source has {', '.join(given) or 'none'}"
        )
    for name, kind in given.items():
        if name in binding._checks:
            _check_kind(task.name, name, kind.simpleString(), binding._checks[name], words)


def _given(plan: Plan, schema: StructType) -> Mapping[str, DataType] | None:
    kinds = {field.name: field.dataType for field in schema.fields}
    if plan.payload == "payload":
        return None
    if plan.payload == "args":
        fields = getattr(kinds["args"], "fields", None)
        return None if fields is None else {field.name: field.dataType for field in fields}
    return {name: kinds[name] for name in plan.arguments}


def _check_kind(task: str, name: str, spark: str, check: Check, words: Words) -> None:
    kind = "text" if spark.startswith("decimal") else _KINDS.get(spark)
    if kind is None or _takes(check, _SAMPLES[kind]):
        return
    other = _wanted(check)
    if other is not None:
        cure = words.make(name, f"CAST({name} AS {_CASTS[other]})")
        raise InvalidArguments(
            f"{task} takes {other} as {name!r}, and the column is {spark}: cast it with {cure}. One cell that cannot "
            f"be cast ends the load, and nothing is loaded; TRY_CAST makes it null, and a default of the task steps in"
        )


def _wanted(check: Check) -> str | None:
    if not _takes(check, _TEXTS) and _takes(check, _FRACTIONS):
        return "a number"
    return next((each for each, samples in _SAMPLES.items() if _takes(check, samples)), None)


def decimals(task: Task[Any, Any], plan: Plan, schema: StructType) -> list[str]:
    """The columns of decimals that are numbers to the task. Payloads have decimals as text, which it would not take;
    a key stays as exact as it is."""
    checks = task.binding._checks
    found = [field.name for field in schema.fields if field.dataType.simpleString().startswith("decimal")]
    own = [name for name in found if name in plan.arguments and name in checks and name not in plan.key_columns]
    return [name for name in own if not _takes(checks[name], _TEXTS) and _takes(checks[name], _FRACTIONS)]
