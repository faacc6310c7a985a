"""The wheel: complete, and working where nothing else is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process]

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "taskharbor"


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy, so that building leaves nothing in the checkout.
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(SOURCE, copy / "src" / "taskharbor", ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", out]
    run(*build, copy, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel in it, and nothing but the wheel."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", wheel, cwd=home)
    return python


def test_the_wheel_has_every_source_file_and_every_statement(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    kept = {path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*") if _ships(path)}
    assert inside == kept
    assert {name.split("/")[2] for name in inside if name.endswith(".sql")} == {"sqlite", "postgres", "mysql"}


def _ships(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def test_the_wheel_carries_the_license_and_asks_for_nothing(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("dist-info/METADATA"))
    assert any(name.endswith("licenses/LICENSE") for name in names)
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert required == []


def test_a_bare_install_imports_and_its_command_works(bare_python: Path, tmp_path: Path) -> None:
    run(bare_python, "-c", "import taskharbor, taskharbor.drivers, taskharbor.cli", cwd=tmp_path)
    assert run(bare_python.parent / "taskharbor", "--version", cwd=tmp_path).startswith("taskharbor ")
    assert "Counts: 10 done, 1 cancelled" in run(bare_python.parent / "taskharbor", "demo", cwd=tmp_path)


# SQLite is what the demo above is on.
@pytest.mark.parametrize("url", ["memory://", "json:///store"])
def test_a_bare_install_can_use_every_store_that_needs_no_server(bare_python: Path, tmp_path: Path, url: str) -> None:
    run(bare_python, "-m", "taskharbor", "demo", "--url", url, cwd=tmp_path)


@pytest.mark.parametrize(("scheme", "extra"), [("postgresql", "postgres"), ("mysql", "mysql")])
def test_a_bare_install_names_the_extra_that_a_store_needs(
    bare_python: Path, tmp_path: Path, scheme: str, extra: str
) -> None:
    command = [str(bare_python), "-m", "taskharbor", "--url", f"{scheme}://u@h/d", "migrate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"taskharbor: {scheme}:// needs an extra: pip install 'taskharbor[{extra}]'\n"


@pytest.mark.parametrize("scheme", ["sqlite", "postgresql", "mysql"])
def test_a_bare_install_prints_the_sql_of_every_dialect(bare_python: Path, tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}:///jobs" if scheme == "sqlite" else f"{scheme}://u@h/d"
    printed = run(bare_python, "-m", "taskharbor", "--url", url, "migrate", "--sql", cwd=tmp_path)
    assert "CREATE TABLE" in printed
    assert "th_jobs" in printed


def test_the_summary_claims_nothing_that_is_not_there(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    head = metadata.partition("\n\n")[0]
    (summary,) = (line for line in head.splitlines() if line.startswith("Summary:"))
    assert "spark" not in summary.lower()
