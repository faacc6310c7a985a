"""Ids and names inside addresses. They may have slashes and line breaks in them, like any name of a job or a queue.

The address of a thing, `/jobs/{id:thing}`, is told from that of what can be done to it, `/jobs/{id:whole}/cancel`, by
its end.
"""

from __future__ import annotations

from starlette.convertors import StringConvertor, register_url_convertor


class _Whole(StringConvertor):
    regex = r"(?s:.*)"


class _Thing(StringConvertor):
    regex = r"(?s:(?!bulk\Z)(?!.*/(?:cancel|retry)\Z).+)"


register_url_convertor("whole", _Whole())
register_url_convertor("thing", _Thing())
