"""What went wrong with a test server."""

from __future__ import annotations

from taskharbor.core.errors import TaskHarborError


class ServerUnavailable(TaskHarborError):
    """No server can be had here. The message says what would change that."""
