"""`keys`, and what the other verbs do with encrypted payloads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import APPLICATION

from taskharbor import Harbor, Keyring
from taskharbor.core.contract import Driver
from taskharbor.core.envelope import key_id_of

Run = Callable[..., Any]
Say = Callable[..., str]
STORE = "sqlite:///taskharbor.db"


@pytest.fixture
def fresh(app: str, run: Run) -> Run:
    """`run` for one command after the other, each of which imports the application anew, as processes do."""

    def run_fresh(*words: str) -> Any:
        sys.modules.pop(app, None)
        return run(*words)

    return run_fresh


@pytest.fixture
def keys(say: Say) -> Path:
    path = Path("keys.txt")
    path.write_text(say("keys", "generate", "2026-11"))
    return path


def test_a_generated_line_is_a_key_of_that_name(say: Say, run: Run) -> None:
    assert Keyring.parse(say("keys", "generate", "2026-11")).ids == ("2026-11",)
    assert Keyring.parse(say("keys", "generate")).active.startswith("20")
    made = run("keys", "generate", "a")
    assert Keyring({made["id"]: made["key"]}).ids == ("a",)
    assert "a key id has" in say("keys", "generate", "a b", code=2)


def test_the_list_of_keys_shows_ids_and_no_key(keys: Path, say: Say, run: Run) -> None:
    with keys.open("a") as file:
        file.write(say("keys", "generate", "2027-05"))
    listed = run("--encryption-keys", str(keys), "keys", "list")["keys"]
    assert listed == [{"id": "2026-11", "active": False}, {"id": "2027-05", "active": True}]
    said = say("--encryption-keys", str(keys), "keys", "list")
    assert all(line.partition(":")[2] not in said for line in keys.read_text().split())
    assert "--encryption-keys" in say("keys", "list", code=2)
    assert "absent.txt" in say("--encryption-keys", "absent.txt", "keys", "list", code=2)


def test_a_job_that_was_enqueued_with_keys_is_shown_by_its_key_and_in_plain_when_asked(
    keys: Path, driver: Driver, run: Run, say: Say
) -> None:
    id = run("--encryption-keys", str(keys), "enqueue", "email.send", '{"to": "ada"}')["id"]
    assert key_id_of(driver.get(id).payload) == "2026-11"
    shown = run("jobs", "show", id)["job"]
    assert (shown["payload_encoding"], shown["payload_key"]) == ("encrypted", "2026-11")
    assert "encrypted with the key 2026-11" in say("jobs", "show", id)
    assert "--encryption-keys" in say("jobs", "show", id, "--decrypt", code=2)
    opened = run("--encryption-keys", str(keys), "jobs", "show", id, "--decrypt")["job"]
    assert (opened["payload"], opened["payload_key"]) == ({"to": "ada"}, None)
    assert '"to": "ada"' in say("--encryption-keys", str(keys), "dlq", "show", id, "--decrypt")
    Path("others.txt").write_text(say("keys", "generate", "1999-01"))
    assert "'2026-11'" in say("--encryption-keys", "others.txt", "jobs", "show", id, "--decrypt", code=1)


def test_lines_of_a_file_are_encrypted_too(keys: Path, driver: Driver, run: Run) -> None:
    Path("many.jsonl").write_text('{"to": "ada"}\n{"to": "bob"}\n')
    assert run("--encryption-keys", str(keys), "enqueue", "email.send", "--many", "many.jsonl")["enqueued"] == 2
    assert [key_id_of(job.payload) for job in driver.list().jobs] == ["2026-11"] * 2


def test_keys_named_in_the_file_of_settings_count_from_below_it(
    keys: Path, app: str, driver: Driver, fresh: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("taskharbor.toml").write_text(f'encryption-keys = "keys.txt"\nurl = "{STORE}"\napp = "{app}:harbor"\n')
    Path("below").mkdir()
    monkeypatch.chdir("below")
    id = fresh("enqueue", "email.send", '{"to": "ada"}')["id"]
    assert key_id_of(driver.get(id).payload) == "2026-11"
    fresh("worker", "--drain")
    assert key_id_of(driver.get(id).result) == "2026-11"
    assert fresh("jobs", "wait", id)["job"]["result_encoding"] == "encrypted"
    assert fresh("jobs", "wait", id, "--decrypt")["job"]["result"] == {"sent": "ada"}


def test_the_keys_of_the_application_count_where_it_has_its_own(
    keys: Path, tmp_path: Path, app: str, driver: Driver, fresh: Run
) -> None:
    own = "Harbor(encryption=Keyring.read('keys.txt'))"
    code = APPLICATION.replace("Harbor()", own).replace("import Harbor", "import Harbor, Keyring")
    (tmp_path / f"{app}.py").write_text(code)
    id = fresh("-A", f"{app}:harbor", "enqueue", "email.send", '{"to": "ada"}')["id"]
    assert key_id_of(driver.get(id).payload) == "2026-11"
    assert fresh("-A", f"{app}:harbor", "jobs", "show", id, "--decrypt")["job"]["payload"] == {"to": "ada"}
    assert fresh("-A", f"{app}:harbor", "keys", "list")["keys"] == [{"id": "2026-11", "active": True}]


def test_a_store_makes_no_copies_of_encrypted_jobs_which_would_not_open(keys: Path, driver: Driver, say: Say) -> None:
    with Harbor(STORE, encryption=Keyring.read(keys)) as harbor:
        job = harbor.enqueue("email.send", {"to": "ada"})
    leased = driver.reserve("default")[0]
    driver.fail(job.id, leased.lease.token, reason="boom")
    assert "cannot copy it" in say("dlq", "redrive", job.id, "--clone", code=2)
    assert len(driver.list().jobs) == 1
    assert "redriven: 1" in say("dlq", "redrive", job.id)


def test_an_application_without_keys_is_not_asked_for_again(
    keys: Path, app: str, driver: Driver, run: Run, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = run("--encryption-keys", str(keys), "enqueue", "email.send", '{"to": "ada"}')["id"]
    monkeypatch.setenv("TASKHARBOR_URL", STORE)
    said = say("-A", f"{app}:harbor", "jobs", "show", id, "--decrypt", code=2)
    assert f"{app}:harbor has none" in said and "--encryption-keys" in said
    assert "with -A" not in said
    assert f"{app}:harbor has none" in say("-A", f"{app}:harbor", "keys", "list", code=2)
    assert "with -A" in say("jobs", "show", id, "--decrypt", code=2)
