"""An application with keys, whose handlers run in processes of their own."""

from __future__ import annotations

import os

from taskharbor import Context, Harbor, Keyring

harbor = Harbor("memory://encrypted-app", encryption=Keyring({"2026-11": bytes(range(32))}))


@harbor.task(pool="process")
def whisper(text: str, context: Context) -> list[object]:
    return [text, os.getpid(), context.job.payload.decode()]
