"""`move`: everything from one store to another, from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import enqueued, killed

from taskharbor.cli import main
from taskharbor.core.carrying import NOTE
from taskharbor.core.contract import Driver
from taskharbor.core.model import NewJob
from taskharbor.drivers import open_driver
from taskharbor.drivers.base import BaseDriver
from taskharbor.drivers.movement import Mark
from taskharbor.drivers.moving import End, Move

Run = Callable[..., Any]
Say = Callable[..., str]
SOURCE, TARGET, THIRD = "sqlite:///taskharbor.db", "json:///new", "sqlite:///third.db"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process has to hear that a store is shut."""
    monkeypatch.setattr("taskharbor.drivers.movement.Pace.settle_s", 0.0)


def seen(url: str) -> str:
    """A store here as it reads from every directory."""
    scheme, _, path = url.partition(":///")
    return f"{scheme}:///{Path(path).absolute()}"


def test_everything_moves_and_the_old_store_sends_people_to_the_new_one(driver: Driver, run: Run, say: Say) -> None:
    ids = enqueued(driver, NewJob("email.send", b"{}"), NewJob("email.send", b"{}"))
    dead = killed(driver, 1)
    planned = run("move", SOURCE, TARGET, "--dry-run")
    assert (planned["dry_run"], planned["rows"]["jobs"], planned["rows"]["history"]) == (True, 3, 1)
    assert not Path("new").exists()
    moved = run("move", SOURCE, TARGET)
    assert moved["rows"] == planned["rows"]
    assert set(moved["checksums"]) == set(moved["rows"])
    found = run("--url", TARGET, "jobs", "list")
    assert {job["id"] for job in found["jobs"]} == {*ids, *dead}
    assert f"moved to {seen(TARGET)}" in say("--url", SOURCE, "enqueue", "email.send", code=1)
    assert f"this store was moved to {seen(TARGET)}" in say("--url", SOURCE, "doctor", code=1)
    assert "already: nothing to do" in say("move", SOURCE, TARGET)


@pytest.mark.parametrize(
    "words",
    ["stats", "jobs list", "queues list", "workflows list", "workers", "schedules list", "dlq list", "token list"],
)
def test_whoever_looks_at_a_store_that_was_moved_is_told_so_once_and_beside_the_output(
    driver: Driver, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    enqueued(driver, NewJob("email.send", b"{}"))
    looked = ["--json", "--url", SOURCE, *words.split()]
    assert main(looked) == 0
    assert capsys.readouterr().err == ""
    assert main(["move", SOURCE, TARGET]) == 0
    capsys.readouterr()
    assert main(looked) == 0
    said = capsys.readouterr()
    assert f"this store was moved to {seen(TARGET)}: use that one; what is shown here is as it was then" in said.err
    assert said.err.count("\n") == 1
    json.loads(said.out)


def test_whoever_changes_nothing_in_a_store_that_was_moved_is_told_too_and_an_error_is_not_said_twice(
    driver: Driver, say: Say
) -> None:
    [id] = enqueued(driver, NewJob("email.send", b"{}"))
    say("move", SOURCE, TARGET)
    assert say("--url", SOURCE, "dlq", "redrive", "--all").count(f"was moved to {seen(TARGET)}") == 1
    assert say("--url", SOURCE, "jobs", "cancel", id, code=1).count(f"was moved to {seen(TARGET)}") == 1


def test_a_store_that_is_being_moved_says_so(driver: Driver, say: Say) -> None:
    assert isinstance(driver, BaseDriver)
    driver.carrier().write_notes({NOTE: '{"to": "1", "to_url": "postgresql://app:secret@db/shop"}'})
    driver.shut(True)
    for words in (["stats"], ["doctor"]):
        said = say("--url", SOURCE, *words, code=int(words == ["doctor"]))
        assert "is being moved to postgresql://app:***@db/shop: use that one when the move has ended" in said


def test_the_doctor_sends_nobody_to_work_in_a_store_that_was_moved(driver: Driver, say: Say) -> None:
    enqueued(driver, NewJob("email.send", b"{}"))
    assert "start one: taskharbor" in say("--url", SOURCE, "doctor")
    say("move", SOURCE, TARGET)
    said = say("--url", SOURCE, "doctor", code=1)
    assert f"this store was moved to {seen(TARGET)}" in said
    assert "worker" not in said


@pytest.mark.parametrize("flags", [[], ["--drain"]], ids=["run", "drain"])
def test_a_worker_with_the_url_of_a_store_that_was_moved_ends_with_an_error(
    driver: Driver, say: Say, app: str, flags: list[str]
) -> None:
    enqueued(driver, NewJob("email.send", b"{}", queue="mail"))
    say("move", SOURCE, TARGET)
    said = say("--url", SOURCE, "-A", app, "worker", *flags, code=1)
    assert f"taskharbor: this store was moved to {seen(TARGET)}: use that one" in said
    assert driver.workers() == []


@pytest.mark.parametrize("flags", [[], ["--drain"]], ids=["run", "drain"])
def test_several_processes_of_a_worker_are_not_started_again_on_a_store_that_was_moved(
    driver: Driver, say: Say, app: str, flags: list[str]
) -> None:
    say("move", SOURCE, TARGET)
    command = [sys.executable, "-m", "taskharbor", "--url", SOURCE, "-A", app, "worker", "--processes", "2", *flags]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.count(f"this store was moved to {seen(TARGET)}") == 2
    assert "starting it again" not in ended.stderr


def test_people_are_told_what_was_moved(driver: Driver, say: Say) -> None:
    enqueued(driver, NewJob("email.send", b"{}"))
    said = say("move", SOURCE, TARGET)
    assert "jobs                    1" in said
    assert f"moved to {seen(TARGET)}, and compared row by row" in said


def test_wrong_stores_are_refused_and_left_as_they_are(driver: Driver, say: Say) -> None:
    enqueued(driver, NewJob("email.send", b"{}"))
    assert "same store" in say("move", SOURCE, SOURCE, code=2)
    assert "lives and ends with its process" in say("move", "memory://", SOURCE, code=2)
    assert "does not exist" in say("move", "sqlite:///missing.db", TARGET, code=1)
    assert not Path("missing.db").exists()
    used = open_driver("sqlite:///used.db")
    used.migrate()
    enqueued(used, NewJob("email.send", b"{}"))
    used.close()
    assert "not empty: it has jobs" in say("move", SOURCE, "sqlite:///used.db", code=2)
    driver.reserve("default", lease_for=3600)
    assert f"1 jobs of {seen(SOURCE)} are running" in say("move", SOURCE, TARGET, code=1)


def test_a_store_is_drained_while_its_workers_run(driver: Driver, run: Run, say: Say) -> None:
    enqueued(driver, NewJob("email.send", b"{}"), NewJob("email.send", b"{}"))
    assert "goes with --live" in say("move", SOURCE, TARGET, "--until-idle", "1s", code=2)
    moved = run("move", SOURCE, TARGET, "--live", "--until-idle", "0.2s")
    assert (moved["rows"]["jobs"], moved["repeated"]) == (2, 0)
    assert len(run("--url", TARGET, "jobs", "list")["jobs"]) == 2
    assert f"moved to {seen(TARGET)}" in say("--url", SOURCE, "enqueue", "email.send", code=1)


def test_options_that_go_with_another_way_of_moving_are_refused(driver: Driver, say: Say) -> None:
    [id] = enqueued(driver, NewJob("email.send", b"{}"))
    assert "--wait goes with --live" in say("move", SOURCE, TARGET, "--wait", "10s", code=2)
    assert "cannot be rehearsed" in say("move", SOURCE, TARGET, "--give-up", "--dry-run", code=2)
    assert not Path("new").exists()
    assert driver.reserve("default", lease_for=1)[0].job.id == id


def test_a_move_that_was_killed_is_not_given_up_for_a_rehearsal(driver: Driver, say: Say) -> None:
    target = open_driver(TARGET)
    target.migrate()
    move = Move(End(driver, SOURCE), End(target, TARGET))  # type: ignore[arg-type]
    move._shut(Mark(move._source.identity))
    target.close()
    assert "cannot be rehearsed" in say("move", SOURCE, TARGET, "--give-up", "--dry-run", code=2)
    assert "moved" in say("--url", SOURCE, "enqueue", "email.send", code=1)


def test_people_are_told_where_a_store_has_gone_on_to(driver: Driver, run: Run, say: Say) -> None:
    enqueued(driver, NewJob("email.send", b"{}"))
    run("move", SOURCE, TARGET)
    assert run("move", SOURCE, TARGET, "--dry-run")["done_before"]
    assert f"was moved to {seen(TARGET)}: move that one" in say("move", SOURCE, "sqlite:///typo.db", code=2)
    run("move", TARGET, THIRD)
    assert run("move", SOURCE, TARGET)["moved_on"] == seen(THIRD)
    assert f"has gone on to {seen(THIRD)}" in say("move", SOURCE, TARGET)
    assert f"moved to {seen(THIRD)}" in say("--url", TARGET, "enqueue", "email.send", code=1)
    assert f"moved to {seen(TARGET)}" in say("--url", SOURCE, "queues", "pause", "mail", code=1)


def test_a_move_that_is_given_up_leaves_the_source_in_use(driver: Driver, run: Run, say: Say) -> None:
    enqueued(driver, NewJob("email.send", b"{}"))
    target = open_driver(TARGET)
    target.migrate()
    move = Move(End(driver, SOURCE), End(target, TARGET))  # type: ignore[arg-type]
    move._shut(Mark(move._source.identity))  # as far as it came before it was killed
    target.close()
    assert f"not to {seen('sqlite:///typo.db')}" in say("move", SOURCE, "sqlite:///typo.db", "--give-up", code=2)
    assert not Path("typo.db").exists()
    assert "moved" in say("--url", SOURCE, "enqueue", "email.send", code=1)
    assert run("move", SOURCE, TARGET, "--give-up")["given_up"]
    assert run("--url", SOURCE, "enqueue", "email.send")


# --- From other directories --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["json:///new", "sqlite:///new.db?busy_timeout=5", "sqlite:///../here/./new.db"])
@pytest.mark.parametrize("flags", [[], ["--live"]], ids=["shut", "live"])
def test_whoever_stands_in_another_directory_is_sent_to_the_store_that_was_meant(
    target: str, flags: list[str], run: Run, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "else where"
    for directory in (here, elsewhere):
        directory.mkdir()
    monkeypatch.chdir(here)
    id = run("enqueue", "email.send")["id"]
    moved = run("move", SOURCE, target, *flags)
    meant = f"{target.partition(':')[0]}:///{here}/new{target.partition('new')[2]}"
    assert (moved["source"], moved["target"]) == (seen(SOURCE), meant)
    source = seen(SOURCE)
    monkeypatch.chdir(elsewhere)
    assert f"was moved to {meant}: use that one" in say("--url", source, "enqueue", "email.send", code=1)
    assert run("--url", meant, "jobs", "show", id)["job"]["id"] == id


def test_a_move_that_was_begun_with_relative_urls_is_the_same_one_from_another_directory(
    driver: Driver, run: Run, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueued(driver, NewJob("email.send", b"{}"))
    source, target = seen(SOURCE), seen(TARGET)
    begin(driver, TARGET)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert run("move", source, "json:///../new")["resumed"]
    assert run("move", source, target)["done_before"]
    assert run("move", "sqlite:///../taskharbor.db", target, "--live")["done_before"]


def test_a_move_whose_target_was_lost_is_given_up_from_another_directory(
    driver: Driver, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = seen(SOURCE)
    begin(driver, TARGET)
    shutil.rmtree("new")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert run("move", source, "json:///../new", "--give-up")["given_up"]
    assert run("--url", source, "enqueue", "email.send")


def begin(source: Driver, url: str) -> None:
    """A move to there, as far as it came before it was killed."""
    target = open_driver(url)
    target.migrate()
    move = Move(End(source, SOURCE), End(target, url))  # type: ignore[arg-type]
    move._shut(move._take_target())
    target.close()
