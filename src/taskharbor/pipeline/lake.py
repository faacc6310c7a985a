"""The lake as a directory: where its tables are, which version its layout has, and what keeps two runs apart.

<lake>/bronze/history  silver/{attempts,jobs,rejects}  gold/{throughput,latency,failures,…}
<lake>/_taskharbor/lake.json   the version of the layout
                  /lock        who writes at the moment
                  /plans/      the range of the feed that each batch covers
                  /notes/      what commits say of the last batches
                  /ids/        digests of the ids of ended jobs
                  /last_run.json, slo.toml, archived.json, manifests/
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskharbor.core.errors import InvalidInput, TaskHarborError
from taskharbor.pipeline.schemas import LAKE_VERSION

if TYPE_CHECKING:
    from taskharbor.pipeline.lake_schemas import TableSpec

HOME: Final = "_taskharbor"
LAYERS: Final = ("bronze", "silver", "gold")
DEFAULT_LAKE: Final = "taskharbor-lake"


class LakeError(TaskHarborError):
    """The lake did not do what was asked of it."""


class NotALake(LakeError):
    """The directory holds something else. Nothing was written there."""


class LakeTooNew(LakeError):
    """The lake was written by a newer TaskHarbor: upgrade this one."""


class LakeCorrupt(LakeError):
    """What is there is torn."""


class Lake:
    """A lake's directory. Nothing is read or made before `open` or `create`."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        text = os.fspath(place)
        if not text.strip():
            raise InvalidInput("--lake is empty: give it a directory, such as ./lake, or leave it out")
        text = text.removeprefix("file://")
        if "://" in text:
            raise InvalidInput(
                f"{text.partition('://')[0]}:// cannot hold a lake yet: mount the object store, and give its directory"
            )
        if odd := set(text) & set("[]{}*?%"):
            raise InvalidInput(
                f"the path of a lake cannot have {' '.join(sorted(odd))} in it, which Spark and Delta take for a "
                f"pattern: {text}"
            )
        self.root: Final = Path(os.path.normpath(Path(text).absolute()))
        self.home: Final = self.root / HOME
        self.opened: Final[dict[str, Any]] = {}
        """Its Delta tables, as `delta.open_table` saw them last."""

    def __repr__(self) -> str:
        return f"Lake({str(self.root)!r})"

    def path(self, spec: TableSpec | str) -> Path:
        return self.root / (spec if isinstance(spec, str) else spec.name)

    def exists(self) -> bool:
        """Whether a lake is there. Raises NotALake where something else is."""
        if (self.home / "lake.json").exists():
            return True
        if self.root.exists():
            if not self.root.is_dir():
                raise NotALake(
                    f"{self.root} is a file, not a lake: name a lake, or for a new one a directory that is empty"
                )
            # Tables alone are a lake that others have put something into before its first run.
            others = [each.name for each in self.root.iterdir() if each.name not in (HOME, *LAYERS)]
            if others:
                raise NotALake(
                    f"{self.root} is not a lake (it holds {', '.join(sorted(others)[:3])}, and no {HOME}/lake.json): "
                    "name a lake, or for a new one a directory that is empty or not there yet"
                )
        return False

    def version(self) -> int:
        """Of the layout. Raises LakeTooNew and LakeCorrupt."""
        version = self.read_json("lake.json").get("version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise LakeCorrupt(f"{self.home / 'lake.json'} names no version: restore it from a backup")
        if version > LAKE_VERSION:
            raise LakeTooNew(
                f"the lake {self.root} has version {version}, this TaskHarbor knows {LAKE_VERSION}: upgrade taskharbor"
            )
        return version

    def check(self) -> None:
        """That a lake of this version, or an older one, is here."""
        if not self.exists():
            raise NotALake(f"there is no lake at {self.root} yet: taskharbor pipeline run makes one")
        self.version()

    def create(self) -> None:
        """Make the lake, or what is missing of it. Whoever calls this holds the lock."""
        from taskharbor.pipeline.delta import ensure_table
        from taskharbor.pipeline.lake_schemas import TABLES

        if self.exists():
            migrate(self)
        else:
            self.write_json("lake.json", {"version": LAKE_VERSION, "created_at": datetime.now(UTC).isoformat()})
        for spec in TABLES.values():
            ensure_table(self, spec)
        for name in ("plans", "manifests"):
            (self.home / name).mkdir(parents=True, exist_ok=True)

    def read_json(self, name: str) -> dict[str, Any]:
        path = self.home / name
        try:
            value = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            raise LakeCorrupt(f"{path} is torn: it is not JSON") from None
        if not isinstance(value, dict):
            raise LakeCorrupt(f"{path} is torn: it is not an object")
        return value

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """It appears whole, and stays after a power cut."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105


# --- Older lakes -----------------------------------------------------------------------------------------------


def _add_missing_columns(lake: Lake) -> None:
    """Version 0 is what the first drafts wrote: tables with fewer columns. Old rows show null in the new ones."""
    from taskharbor.pipeline.delta import add_missing_columns
    from taskharbor.pipeline.lake_schemas import TABLES

    for spec in TABLES.values():
        add_missing_columns(lake, spec)


def _part_days(lake: Lake) -> None:
    """Version 1 had two tables of gold by the day alone. What was written towards its end has the parts already."""
    from taskharbor.pipeline.delta import part_days
    from taskharbor.pipeline.lake_schemas import GOLD_LATENCY, GOLD_THROUGHPUT

    part_days(lake, GOLD_THROUGHPUT, "minute")
    part_days(lake, GOLD_LATENCY, "hour")


MIGRATIONS: Final[dict[int, Callable[[Lake], None]]] = {0: _add_missing_columns, 1: _part_days}
"""What brings a lake of that version to the next. Each may be interrupted and run again."""


def migrate(lake: Lake) -> list[int]:
    """Bring the lake to this version, one step after the other; returns the versions that it left behind."""
    left = []
    while (version := lake.version()) < LAKE_VERSION:
        step = MIGRATIONS.get(version)
        if step is None:
            raise LakeCorrupt(f"the lake {lake.root} has version {version}, which never was: restore lake.json")
        step(lake)
        lake.write_json("lake.json", {**lake.read_json("lake.json"), "version": version + 1})
        left.append(version)
    return left
