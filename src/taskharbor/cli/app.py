"""`-A module:harbor`: from the words to the application's Harbor."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from taskharbor.core.errors import InvalidInput, TaskHarborError

if TYPE_CHECKING:
    from taskharbor.app import Harbor


class BrokenApplication(TaskHarborError):
    """The module of the application is there, and raised an error while it was imported."""


class MissingApplication(InvalidInput):
    """There is no such module where it was looked for."""


def required_app(arguments: argparse.Namespace) -> Harbor:
    if not arguments.app:
        raise InvalidInput(
            "this needs the application's handlers: name where its Harbor is, such as -A shop.jobs:harbor, "
            "or set TASKHARBOR_APP"
        )
    return load_app(arguments)


def load_app(arguments: argparse.Namespace) -> Harbor:
    """The Harbor that `-A` names, on the store that `--url` names if the application leaves it open."""
    from taskharbor.cli.options import given_url
    from taskharbor.drivers.opening import redacted

    asked = given_url(arguments)
    if asked or arguments.url:
        # `Harbor()` looks here, and so do the processes that a worker may start.
        os.environ["TASKHARBOR_URL"] = asked or arguments.url
    announce_keys(arguments)
    harbor = find_harbor(arguments.app, arguments.app_directory)
    if asked is not None and harbor.url != asked:
        raise InvalidInput(
            f"{arguments.app} keeps its jobs in {redacted(harbor.url)}, which is not --url: leave --url out, or write "
            "Harbor() without a store, so that the command line and the environment decide"
        )
    return harbor


def announce_keys(arguments: argparse.Namespace) -> None:
    """For applications that leave their keys open, as for the store: where a flag or taskharbor.toml says they are."""
    if arguments.encryption_keys:
        os.environ["TASKHARBOR_ENCRYPTION_KEYS"] = arguments.encryption_keys


def find_harbor(name: str, directory: str | None = None) -> Harbor:
    """The Harbor of that name. Its module is looked for in the current directory too, or in the one given."""
    from taskharbor.app import Harbor

    module_name, _, attribute = name.partition(":")
    if not module_name or (":" in name and not attribute):
        raise InvalidInput(f"-A takes MODULE:HARBOR, such as shop.jobs:harbor, got {name!r}")
    module = _import(module_name, directory or str(Path.cwd()))
    if attribute:
        found = module
        for part in attribute.split("."):
            if not hasattr(found, part):
                raise InvalidInput(f"{module_name} has no {attribute!r}: {_cure(module, Harbor)}")
            found = getattr(found, part)
        if not isinstance(found, Harbor):
            raise InvalidInput(f"{name} is no Harbor but of the type {type(found).__name__}: {_cure(module, Harbor)}")
        return found
    names = _harbors(module, Harbor)
    different = {id(getattr(module, each)) for each in names}
    if len(different) == 1:
        harbor: Harbor = getattr(module, names[0])
        return harbor
    if names:
        raise InvalidInput(f"{module_name} has several: say which, as -A {module_name}:{names[0]} ({', '.join(names)})")
    raise InvalidInput(f"{module_name} has no Harbor in it: {_cure(module, Harbor)}")


def _import(name: str, here: str) -> ModuleType:
    if here not in sys.path and ("" not in sys.path or here != str(Path.cwd())):
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            hint = " (a module's name has dots, and no .py)" if "/" in name or name.endswith(".py") else ""
            raise MissingApplication(
                f"there is no module {missing!r}{hint}: run this where it can be imported from, now {here}, "
                "or put its directory into PYTHONPATH"
            ) from None
        raise BrokenApplication(
            f"{name} cannot be imported: it needs the module {missing!r}, which is not installed"
        ) from error
    except TaskHarborError:
        raise
    except (Exception, SystemExit) as error:
        # A module may do anything while it is imported, even end the process.
        from taskharbor.drivers.opening import _LOGIN

        said = _LOGIN.sub(r"\1:***@", str(error))  # it may quote the URL of a store, or of anything else
        raise BrokenApplication(
            f"{name} cannot be imported: {type(error).__name__}: {said}; python -c 'import {name}' shows where"
        ) from error


def _harbors(module: ModuleType, kind: type) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, kind)]


def _cure(module: ModuleType, kind: type) -> str:
    """The Harbor that was probably meant, if importing the module has brought one: in it, or in its package."""
    start = f"{module.__name__}."
    below = [each for name, each in sorted(sys.modules.items()) if name.startswith(start) and each is not None]
    for place in (module, *below):
        if names := _harbors(place, kind):
            return f"did you mean {place.__name__}:{names[0]}?"
    return "write harbor = Harbor(…) there, or name the module that has one, such as -A shop.jobs:harbor"
