"""Pipelines that end without a word of psycopg's to the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection


@contextmanager
def pipeline(connection: Connection[Any]) -> Iterator[None]:
    """A pipeline in which the first error is the one that is raised. psycopg tells its log of those that come of it
    when it leaves a block with an error ("error ignored terminating <psycopg.Pipeline …>"), and where a program has not
    set up logging that is a line on its standard error. So the block is left in good order, whatever happened in it."""
    failure: psycopg.Error | None = None
    try:
        with connection.pipeline():
            try:
                yield
            except psycopg.Error as error:
                failure = error
    except psycopg.Error:
        if failure is None:
            raise
    if failure is not None:
        raise failure
