"""Databases and files of the four source systems, as their documents describe them, with a job in every state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from taskharbor.testing.emptying import connect

DATA = Path(__file__).parent / "data"
TASKHARBOR_GO = (DATA / "taskharbor_go.sql").read_text("utf-8")
TASK_ORCHESTRATOR = (DATA / "task_orchestrator.sql").read_text("utf-8")


def _mq(blob: str, serial: str) -> str:
    text = (DATA / "mq.sql").read_text("utf-8")
    words = {"<blob>": blob, "<serial>": serial, "<time>": "TIMESTAMP", "<null_time>": "TIMESTAMP NULL"}
    for mark, word in words.items():
        text = text.replace(mark, word)
    return text


MQ_POSTGRES = _mq("BYTEA", "BIGSERIAL PRIMARY KEY")
MQ_MYSQL = _mq("BLOB", "BIGINT PRIMARY KEY AUTO_INCREMENT")

JOBS_JSON: dict[str, Any] = {
    "jobs": [
        {"id": "j-pending", "status": "pending", "payload": '{"n":1}', "retries": 0, "max_retries": 3,
         "idempotency_key": "k1", "tenant_id": "acme", "created_at": "2025-01-01T10:00:00.000Z",
         "updated_at": "2025-01-01T10:00:00.000Z"},
        {"id": "j-retry", "status": "pending", "payload": '{"n":2}', "retries": 1, "max_retries": 3,
         "tenant_id": "acme", "created_at": "2025-01-01T10:00:00.000Z", "updated_at": "2025-01-01T10:05:00.000Z",
         "error_message": "slow"},
        {"id": "j-running", "status": "running", "payload": '{"n":3}', "retries": 0, "max_retries": 3,
         "tenant_id": "default", "created_at": "2025-01-01T10:00:00.000Z", "updated_at": "2025-01-01T10:01:00.000Z",
         "leased_at": "2025-01-01T10:01:00.000Z"},
        {"id": "j-done", "status": "done", "payload": '{"n":4}', "retries": 1, "max_retries": 3,
         "tenant_id": "acme", "created_at": "2025-01-01T10:00:00.000Z", "updated_at": "2025-01-01T10:02:00.000Z",
         "leased_at": "2025-01-01T10:01:00.000Z", "completed_at": "2025-01-01T10:02:00.000Z", "result": '{"ok":true}'},
        {"id": "j-failed", "status": "failed", "payload": '{"n":5}', "retries": 3, "max_retries": 3,
         "tenant_id": "acme", "created_at": "2025-01-01T10:00:00.000Z", "updated_at": "2025-01-01T10:03:00.000Z",
         "error_message": "boom"},
        {"id": "j-odd", "status": "sleeping", "created_at": "2025-01-01T10:00:00.000Z"},
    ],
    "dlq": [
        {"id": "d-1", "job_id": "j-failed", "payload": '{"n":5}', "retries": 3, "last_error": "boom at last",
         "failed_at": "2025-01-01T10:03:00.000Z", "tenant_id": "acme"},
        {"id": "d-2", "job_id": "j-gone", "payload": '{"n":6}', "retries": 2, "last_error": "gone",
         "failed_at": "2025-01-01T09:00:00.000Z", "tenant_id": "beta"},
    ],
}  # fmt: skip


def fill(url: str, script: str) -> str:
    """Run a script of statements, each ended by a semicolon at the end of its line."""
    connection = connect(url)
    try:
        cursor = connection.cursor()
        if url.startswith(("mysql", "mariadb")):
            cursor.execute("SET time_zone = '+00:00'")
        for statement in script.split(";\n"):
            if statement.strip():
                cursor.execute(statement)
        connection.commit()
    finally:
        connection.close()
    return url


def jobs_file(directory: Path) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "jobs.json"
    path.write_text(json.dumps(JOBS_JSON), "utf-8")
    return str(path)
