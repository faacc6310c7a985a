"""An application that loads are checked against."""

from __future__ import annotations

from taskharbor import Harbor

harbor = Harbor("sqlite:///:nowhere:", queue="common")


@harbor.task(name="order.ship", queue="ship", max_attempts=9, priority=4, timeout=60, expires_in=3600)
def ship(order: int, to: str, express: bool = True, note: str | None = None) -> None: ...


@harbor.task(name="order.bill")
def bill(order: int, amount: float) -> None: ...
