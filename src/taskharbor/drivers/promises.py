"""The promises of the contract, where a user looks for them."""

from __future__ import annotations

from typing import TypeVar

from taskharbor.core.access import Access
from taskharbor.core.contract import Fleet, Inspection, Queueing, Scheduling, Workflows
from taskharbor.core.governing import Governing

T = TypeVar("T", bound=type)


def with_promises(driver: T) -> T:
    """Give each method without a docstring the one of its protocol: the promises are written once, there, and
    `help(driver.redrive)` shows them all the same."""
    for protocol in (Queueing, Inspection, Fleet, Scheduling, Governing, Workflows, Access):
        for name, promised in vars(protocol).items():
            if not name.startswith("_") and promised.__doc__:
                method = getattr(driver, name)
                method.__doc__ = method.__doc__ or promised.__doc__
    return driver
