"""Where jobs are kept. `open_driver(url)` is the way in."""

from taskharbor.drivers.opening import open_driver

__all__ = ["open_driver"]
