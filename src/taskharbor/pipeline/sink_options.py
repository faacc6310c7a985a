"""What a write to the format `taskharbor` asks for: its options and columns, checked before any row is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    "checkpointlocation",
)
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
    staging: str | None
    source: str
    limits: Limits


def plan(options: Mapping[str, str], schema: StructType, run_id: str | None) -> Plan:
    """InvalidInput for whatever is wrong with the options or the columns; nothing is opened."""
    from taskharbor.drivers.opening import parse_url

    given = {_ALIASES.get(name.lower(), name.lower()): value for name, value in options.items()}
    if not given.get("url"):
        raise InvalidInput('a write needs the store: .option("url", "postgresql://…")')
    parsed = parse_url(given["url"])
    if parsed.scheme == "memory":
        raise InvalidURL("memory:// lives in one process, and Spark's executors are others: use sqlite:///jobs.db")
    unknown = sorted(set(given) - {*FIELDS, *_PAYLOADS, *_OTHERS})
    if unknown:
        raise InvalidInput(f"unknown option {unknown[0]!r}: a write takes {', '.join(sorted((*FIELDS, *_OTHERS)))}")
    names = [field.name for field in schema.fields]
    _check_columns(schema)
    constants: dict[str, Any] = {
        name: _constant(name, given[name]) for name in FIELDS if name in given and name not in names
    }
    columns = tuple(name for name in FIELDS if name in names)
    if "type" not in columns and "type" not in constants:
        raise InvalidInput('each job needs a type, the name of its handler: a column "type", or .option("type", "…")')
    payload, arguments = _payload(names)
    unique = _unique(given.get("unique"))
    where = [*("type", "tenant_id"), *(["queue"] if "queue" in unique else [])]
    fixed = not any(name in columns for name in where)
    sample = NewJob(type="t", **constants) if "type" not in constants else NewJob(**constants)
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
        key_columns=_key_columns(given.get("key"), names),
        unique=unique,
        scope=dedupe_scope(admitted.tenant_id, admitted.queue, admitted.type, unique) if fixed else None,
        failfast=mode == "failfast",
        rejects=given.get("rejects") or None,
        lake=given.get("lake") or None,
        report=given.get("report") or None,
        staging=given.get("staging") or None,
        source=given.get("source", ""),
        limits=parsed.limits,
    )


def _early() -> Any:
    from taskharbor.core.clock import EPOCH

    return EPOCH


def _check_columns(schema: StructType) -> None:
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind == "timestamp_ntz" and field.name in ("run_at", "expires_at"):
            raise InvalidInput(
                f"the column {field.name} is without a time zone (timestamp_ntz): cast it to timestamp, which is one"
            )
        wanted = _COLUMN_TYPES.get(field.name)
        if wanted and kind not in wanted and not (kind == "void"):
            raise InvalidInput(f"the column {field.name} is {kind}, it must be {' or '.join(wanted)}: cast it")
        if field.name == "args" and not kind.startswith(("struct", "map")):
            raise InvalidInput(f"the column args is {kind}, it must be a struct or a map: name JSON text payload")
        if field.name == "meta" and not kind.startswith(("struct", "map", "string", "void")):
            raise InvalidInput(f"the column meta is {kind}, it must be a map of texts, or JSON text")


def _payload(names: list[str]) -> tuple[str, tuple[str, ...]]:
    extra = [name for name in names if name not in FIELDS and name not in _PAYLOADS and name != "key"]
    present = [name for name in _PAYLOADS if name in names]
    if len(present) == 2:
        raise InvalidInput("payload and args are two ways to say the same: give one of the columns")
    return (present[0], ()) if present else ("", tuple(extra))


def _key_columns(option: str | None, names: list[str]) -> tuple[str, ...]:
    if option is None:
        return ("key",) if "key" in names else ()
    columns = tuple(part.strip() for part in option.split(","))
    missing = [name for name in columns if name not in names]
    if missing:
        raise InvalidInput(f"there is no column {missing[0]!r} to take the key from: key names one or more of {names}")
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
