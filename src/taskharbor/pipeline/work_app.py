"""The application of Spark workers: found by the name that its operator gives, checked, and packed for executors.

Executors import the same module under the same name. Nothing of a job decides what is imported.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from taskharbor.app import Harbor
from taskharbor.core.errors import InvalidInput, InvalidURL, TaskHarborError
from taskharbor.drivers.opening import parse_url

if TYPE_CHECKING:
    from types import ModuleType

    from pyspark.sql import SparkSession

    from taskharbor.core.contract import Driver

LARGEST_PACKAGE: Final = 256 * 2**20
"""More than this is no code: somebody keeps data, or an environment, beside it."""
_LEFT_OUT: Final = frozenset({"__pycache__", ".git", ".hg", ".venv", "venv", "node_modules", ".mypy_cache"})
_NOT_SHIPPED: Final = frozenset({"taskharbor", "pyspark", "py4j", "__main__"})


class ApplicationNotFound(InvalidInput):
    """There is no such application here, or not where executors look. The message says what to do."""


def find_harbor(app: str) -> Harbor:
    """The Harbor that `module:name` names."""
    module_name, colon, attribute = app.partition(":")
    if not module_name or not colon or not attribute:
        raise ApplicationNotFound(f"an application is named MODULE:HARBOR, such as shop.jobs:harbor, got {app!r}")
    if module_name == "__main__":
        raise ApplicationNotFound("executors cannot import __main__: put the tasks into a module of their own")
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ApplicationNotFound(f"there is no module {missing!r}: is its directory in PYTHONPATH?") from None
        raise ApplicationNotFound(
            f"{module_name} needs the module {missing!r}, which is not there: install it, or ship it with --py-files"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ApplicationNotFound(f"{module_name} has no {attribute!r}")
        found = getattr(found, part)
    if not isinstance(found, Harbor):
        raise ApplicationNotFound(f"{app} is no Harbor but of the type {type(found).__name__}")
    return found


# --- What can work at all ----------------------------------------------------------------------------------------


def check_store(url: str, master: str) -> str:
    """The URL as executors can use it. Raises InvalidURL for a store that they cannot share."""
    parsed = parse_url(url)
    if parsed.scheme == "memory":
        raise InvalidURL(
            "memory:// lives inside one process, and Spark's executors are others: use sqlite:///jobs.db on one "
            "machine, or a PostgreSQL or MySQL server"
        )
    if parsed.scheme == "json":
        raise InvalidURL(
            "json:// is written by one process at a time, and Spark's executors are several: use sqlite:///jobs.db on "
            "one machine, or a PostgreSQL or MySQL server"
        )
    if parsed.scheme != "sqlite":
        return url
    if not master.startswith("local"):
        raise InvalidURL(
            f"sqlite:// is a file of this machine, which executors on {master} do not have: use a PostgreSQL or MySQL "
            "server, or --master 'local[*]'"
        )
    # Executors stand in directories of their own.
    head, mark, query = url.partition("?")
    path = head.partition("://")[2].removeprefix("/")
    return f"sqlite:///{Path(path).absolute()}{mark}{query}"


def check_harbor(harbor: Harbor, app: str) -> None:
    if not harbor.tasks:
        raise InvalidInput(f"{app} has no tasks: workers without handlers would run nothing")
    if harbor._store._given:
        raise InvalidInput(f"{app} was given a driver of this process: write Harbor(url), which executors can open too")


def check_queues(queues: Sequence[str], harbor: Harbor, driver: Driver) -> None:
    """Refuse a queue that neither the application nor the store has heard of: it would be drained at once."""
    if not queues:
        raise InvalidInput("name the queue to work on")
    named = {"default", harbor._terms.fields["queue"], *(task.queue for task in harbor.tasks.values())}
    unsure = [queue for queue in queues if queue not in named]
    if not unsure:
        return
    stored = {*driver.counts().queues, *(each.name for each in driver.queues())}
    for queue in unsure:
        if queue not in stored:
            known = sorted(named | stored)
            near = get_close_matches(queue, known, n=1)
            meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise InvalidInput(f"no task names the queue {queue!r}, and no job waits in one: {meant}")


# --- Shipping ----------------------------------------------------------------------------------------------------


def ship(spark: SparkSession, app: str, py_files: Sequence[str], place: Path) -> list[str]:
    """Give executors the application's own code, and the files that the caller names; returns their names."""
    shipped = []
    for name in py_files:
        if "://" not in name and not Path(name).exists():
            raise InvalidInput(f"there is no file {name} to give to the executors")
        shipped.append(name)
    if (packed := pack(app.partition(":")[0], place)) is not None:
        shipped.insert(0, str(packed))
    before = list(sys.path)
    try:
        for name in shipped:
            spark.sparkContext.addPyFile(name)
    finally:
        sys.path[:] = before  # Spark puts the copies in front here as well, where the originals are
    return shipped


def pack(module_name: str, place: Path) -> Path | None:
    """A zip of the package that the module belongs to, and of the modules beside it that it has imported. None for
    one that is installed: executors must have it installed too."""
    top = module_name.partition(".")[0]
    places = _places(sys.modules[top])
    if not places or any(_is_installed(each) for each in places):
        return None
    root = places[0].parent
    names = {top, *(name for name in sys.modules if "." not in name and _is_beside(name, root))} - _NOT_SHIPPED
    files = sorted({found for name in names for found in _files(_places(sys.modules[name]))})
    size = sum(path.stat().st_size for path, _ in files if path.is_file())
    if size > LARGEST_PACKAGE:
        raise InvalidInput(
            f"the code of {module_name} has {size / 2**20:,.0f} MB in {root}, too much to ship: install it where the "
            "executors run, or move what is no code out of the package"
        )
    digest = hashlib.sha256()
    made = place / "packing.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, inside in files:
            digest.update(inside.encode())
            if path.is_dir():
                archive.writestr(zipfile.ZipInfo(f"{inside}/"), b"")  # packages without __init__ are found by these
            else:
                data = path.read_bytes()
                digest.update(data)
                archive.writestr(zipfile.ZipInfo(inside), data, zipfile.ZIP_DEFLATED)
    # Named after what is in it: Spark takes a name for the same file, whatever it holds.
    return made.rename(place / f"taskharbor-app-{digest.hexdigest()[:16]}.zip")


def _places(module: ModuleType | None) -> list[Path]:
    """Where a module lies: its directories if it is a package, else its file."""
    if module is None:
        return []
    if paths := list(getattr(module, "__path__", ())):
        return [Path(path).absolute() for path in paths if Path(path).is_dir()]
    file = getattr(module, "__file__", None)
    return [Path(file).absolute()] if file and file.endswith(".py") and Path(file).is_file() else []


def _is_beside(name: str, root: Path) -> bool:
    places = _places(sys.modules[name])
    return bool(places) and all(each.parent == root and not _is_installed(each) for each in places)


def _is_installed(path: Path) -> bool:
    homes = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    resolved = path.resolve()
    return any(resolved.is_relative_to(Path(home).resolve()) for home in homes if home)


def _files(places: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Each file and directory with its name in the archive."""
    for place in places:
        if place.is_file():
            yield place, place.name
            continue
        for directory, inner, files in os.walk(place):
            inner[:] = sorted(name for name in inner if name not in _LEFT_OUT)
            here = Path(directory)
            yield here, here.relative_to(place.parent).as_posix()
            for name in sorted(files):
                if not name.endswith((".pyc", ".pyo")):
                    yield here / name, (here / name).relative_to(place.parent).as_posix()


class WorkFailed(TaskHarborError):
    """Spark could not run the workers. The message says why; the jobs are where they were."""
