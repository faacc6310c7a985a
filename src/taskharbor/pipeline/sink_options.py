"""What a write to the format `taskharbor` asks for: its options and columns, checked before any row is looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import InvalidInput, InvalidURL
from taskharbor.core.intake import admit, dedupe_scope
from taskharbor.core.limits import Limits
from taskharbor.core.model import NewJob

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FIELDS: Final = (
    "type", "queue", "tenant_id", "priority", "run_at", "expires_at", "max_attempts", "timeout", "meta",
)  # fmt: skip
"""What a column or an option may say of a job, beside its payload and its key."""
_PAYLOADS: Final = ("payload", "args")
_OTHERS: Final = (
    "url",
    "key",
    "unique",
    "run",
    "mode",
    "rejects",
    "lake",
    "report",
    "staging",
    "path",
    "source",
    "nulls",
    "checkpointlocation",
)
_INNER: Final = ("tasks", "progress")
"""Only `load` gives these."""
_NUMBERS: Final = ("priority", "max_attempts")
_ALIASES: Final = {"tenant": "tenant_id", "idempotency_key": "key", "max_retries": "max_attempts"}
_COLUMN_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "type": ("string",),
    "queue": ("string",),
    "tenant_id": ("string",),
    "priority": ("tinyint", "smallint", "int", "bigint"),
    "max_attempts": ("tinyint", "smallint", "int", "bigint"),
    "timeout": ("tinyint", "smallint", "int", "bigint", "float", "double"),
    "run_at": ("timestamp", "string"),
    "expires_at": ("timestamp", "string"),
    "payload": ("string", "binary"),
}
_CASTS: Final = {"priority": "INT", "max_attempts": "INT", "timeout": "DOUBLE", "run_at": "TIMESTAMP",
                 "expires_at": "TIMESTAMP"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Words:
    """How whoever asked for the write says an option, and makes another column of one."""

    option: str
    column: str
    unchecked: str = "check=False"

    def say(self, name: str) -> str:
        return self.option.format(name)

    def make(self, column: str, expression: str) -> str:
        return self.column.format(column, expression)


_IN_SPARK: Final = '.withColumn("{0}", expr("{1}"))'
AS_OPTIONS: Final = Words('.option("{}", "…")', _IN_SPARK)
AS_KEYWORDS: Final = Words('{}="…"', _IN_SPARK)
AS_FLAGS: Final = Words("--{} …", "--map '{0}={1}'", "--no-check")


@dataclass(frozen=True, slots=True)
class TaskRules:
    """What is known of the task that will run the jobs of a type."""

    fields: dict[str, Any] = field(default_factory=dict)
    """What its jobs have where neither an option nor a column says otherwise."""
    optional: tuple[str, ...] = ()
    """Arguments with a default: a null is left out, so that the default counts."""
    needed: tuple[str, ...] = ()
    """Arguments that have none and take no null: a row without one is refused."""
    left_out: tuple[str, ...] = ()
    """Columns of the key that are no arguments."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked write. It pickles: executors work from it."""

    url: str
    run_id: str | None
    """None in a stream, where each micro-batch is a run of its own."""
    identity: str
    """Sets the keys that rows get by their content apart from those of another run."""
    constants: dict[str, Any]
    columns: tuple[str, ...]
    """The fields of a job that are columns."""
    payload: str
    """`payload`, `args`, or empty when all the other columns make up the arguments."""
    arguments: tuple[str, ...]
    key_columns: tuple[str, ...]
    unique: tuple[str, ...]
    scope: str | None
    """The scope of keys, when it is the same for all rows."""
    failfast: bool
    rejects: str | None
    lake: str | None
    report: str | None
    progress: str | None
    """Where executors note how many rows they have done: a directory of `load`, which removes it."""
    staging: str | None
    source: str
    limits: Limits
    omit_nulls: bool = False
    tasks: dict[str, TaskRules] = field(default_factory=dict)
    """By type. Empty where nothing is known of tasks; else a type that is not here is refused."""

    def fields(self, type: str | None = None) -> dict[str, Any]:
        """What all jobs, or those of a type, have that no column says: the options, else what the task says."""
        rules = self.tasks.get(self.constants.get("type", "") if type is None else type)
        return {**rules.fields, **self.constants} if rules else dict(self.constants)

    @property
    def varies(self) -> bool:
        """Whether more differs from job to job than the columns say, because the jobs are of different tasks."""
        return bool(self.tasks) and "type" in self.columns


def plan(options: Mapping[str, str], schema: StructType, run_id: str | None, words: Words = AS_OPTIONS) -> Plan:
    """InvalidInput for whatever is wrong with the options or the columns; nothing is opened."""
    from taskharbor.drivers.opening import parse_url

    given = {_ALIASES.get(name.lower(), name.lower()): value for name, value in options.items()}
    if not given.get("url"):
        raise InvalidInput(f"a write needs the store: {words.say('url')}")
    parsed = parse_url(given["url"])
    if parsed.scheme == "memory":
        raise InvalidURL("memory:// lives in one process, and Spark's executors are others: use sqlite:///jobs.db")
    unknown = sorted(set(given) - {*FIELDS, *_PAYLOADS, *_OTHERS, *_INNER})
    if unknown:
        raise InvalidInput(f"unknown option {unknown[0]!r}: a write takes {', '.join(sorted((*FIELDS, *_OTHERS)))}")
    names = [field.name for field in schema.fields]
    _check_columns(schema, words)
    constants: dict[str, Any] = {
        name: _constant(name, given[name]) for name in FIELDS if name in given and name not in names
    }
    columns = tuple(name for name in FIELDS if name in names)
    if "type" not in columns and "type" not in constants:
        raise no_type(words)
    payload, arguments = _payload(names)
    unique = _unique(given.get("unique"))
    where = [*("type", "tenant_id"), *(["queue"] if "queue" in unique else [])]
    fixed = not any(name in columns for name in where)
    tasks = _tasks(given.get("tasks"))
    rules = tasks.get(constants.get("type", ""))
    sample = NewJob(**{"type": "t", **(rules.fields if rules else {}), **constants})
    [admitted] = admit([sample], _early(), parsed.limits).fresh
    mode = given.get("mode", "keep").lower()
    if mode not in ("keep", "failfast"):
        raise InvalidInput(f"mode must be keep (refused rows go to the rejects) or failfast, got {mode!r}")
    return Plan(
        url=given["url"],
        run_id=run_id,
        identity=given.get("run", ""),
        constants=constants,
        columns=columns,
        payload=payload,
        arguments=arguments,
        key_columns=key_columns(given.get("key"), names, words),
        unique=unique,
        scope=dedupe_scope(admitted.tenant_id, admitted.queue, admitted.type, unique) if fixed else None,
        failfast=mode == "failfast",
        rejects=given.get("rejects") or None,
        lake=given.get("lake") or None,
        report=given.get("report") or None,
        progress=given.get("progress") or None,
        staging=given.get("staging") or None,
        source=given.get("source", ""),
        limits=parsed.limits,
        omit_nulls=_omits(given.get("nulls", "keep")),
        tasks=tasks,
    )


def no_type(words: Words) -> InvalidInput:
    return InvalidInput(f'each job needs a type, the name of its handler: a column "type", or {words.say("type")}')


def _omits(text: str) -> bool:
    if text not in ("keep", "omit"):
        raise InvalidInput(f"nulls must be keep (they are arguments) or omit (they are left out), got {text!r}")
    return text == "omit"


def tasks_text(tasks: Mapping[str, TaskRules]) -> str:
    """The rules as an option, which is text."""
    return json.dumps(
        {name: [rules.fields, rules.optional, rules.needed, rules.left_out] for name, rules in tasks.items()}
    )


def _tasks(text: str | None) -> dict[str, TaskRules]:
    found = {}
    for name, (fields, *lists) in json.loads(text or "{}").items():
        values = {field: _constant(field, value) for field, value in fields.items()}
        found[name] = TaskRules(values, *map(tuple, lists))
    return found


def _early() -> Any:
    from taskharbor.core.clock import EPOCH

    return EPOCH


def _check_columns(schema: StructType, words: Words) -> None:
    for column in schema.fields:
        name, kind = column.name, column.dataType.simpleString()
        if kind == "timestamp_ntz" and name in ("run_at", "expires_at"):
            cure = words.make(name, f"CAST({name} AS TIMESTAMP)")
            raise InvalidInput(
                f"the column {name} is without a time zone (timestamp_ntz): {cure} makes it one of UTC, or give the "
                f"reader another type"
            )
        wanted = _COLUMN_TYPES.get(name)
        if wanted and kind not in wanted and kind != "void":
            nested = kind.startswith(("struct", "map", "array"))
            new = f"to_json({name})" if nested else f"CAST({name} AS {_CASTS.get(name, 'STRING')})"
            raise InvalidInput(
                f"the column {name} is {kind}, it must be {' or '.join(wanted)}: cast it with {words.make(name, new)}"
            )
        if name == "args" and not kind.startswith(("struct", "map")):
            raise InvalidInput(f"the column args is {kind}, it must be a struct or a map: name JSON text payload")
        if name == "meta" and not kind.startswith(("struct", "map", "string", "void")):
            raise InvalidInput(f"the column meta is {kind}, it must be a map of texts, or JSON text")


def _payload(names: list[str]) -> tuple[str, tuple[str, ...]]:
    extra = [name for name in names if name not in FIELDS and name not in _PAYLOADS and name != "key"]
    present = [name for name in _PAYLOADS if name in names]
    if len(present) == 2:
        raise InvalidInput("payload and args are two ways to say the same: give one of the columns")
    return (present[0], ()) if present else ("", tuple(extra))


def key_columns(option: str | None, names: Sequence[str], words: Words) -> tuple[str, ...]:
    if option is None:
        return ("key",) if "key" in names else ()
    columns = tuple(part.strip() for part in option.split(","))
    missing = [name for name in columns if name not in names]
    if missing:
        near = get_close_matches(missing[0], names, n=1)
        has = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise InvalidInput(f"there is no column {missing[0]!r} to take the key from ({words.say('key')}): {has}")
    return columns


def _unique(option: str | None) -> tuple[str, ...]:
    parts = ("tenant", "type") if option is None else tuple(part.strip() for part in option.split(",") if part.strip())
    dedupe_scope("t", "q", "t", parts)
    return parts


def _constant(name: str, text: str) -> Any:
    """An option is text; what it stands for may be something else."""
    from taskharbor.pipeline.sink_values import meta_value, moment_value, number_value

    if name in _NUMBERS:
        return number_value(text, name)
    if name in ("run_at", "expires_at"):
        return moment_value(text, name)
    if name == "timeout":
        try:
            return float(text)
        except ValueError:
            raise InvalidInput(f"timeout must be a number of seconds, got {text!r}") from None
    return meta_value(text) if name == "meta" else text
