"""The dashboard: pages that are made here and work without a script; scripts only make them quicker.

Each module is one page, or a few that belong together, and what can be done on it.
"""

from __future__ import annotations

from taskharbor.web.pages.dashboard import install, router

__all__ = ["install", "router"]
