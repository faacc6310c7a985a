"""`json:///directory`: the whole store in one directory of JSON files, for small local use."""

from taskharbor.drivers.jsonfile.driver import JsonDriver

__all__ = ["JsonDriver"]
