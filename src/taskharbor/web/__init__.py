"""HOW PEOPLE AND PROGRAMS SEE IT: the REST API and the dashboard. Needs the extra `web`."""

from __future__ import annotations

from taskharbor.web.app import create_app, from_environment
from taskharbor.web.settings import Settings

__all__ = ["Settings", "create_app", "from_environment"]
