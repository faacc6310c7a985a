"""The REST API. Each module has a `router` that carries its own prefix; `web/app.py` includes them."""

from __future__ import annotations

from typing import Final

from taskharbor.web import convertors as convertors  # the addresses below use them

API: Final = "/api/v1"
