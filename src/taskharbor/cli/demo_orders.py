"""The shop of the demo's second half: orders are shipped, some fail, and a few bring down the process that runs them.

`taskharbor worker -A taskharbor.cli.demo_orders:harbor` runs it; the store comes from TASKHARBOR_URL."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Final

from taskharbor.app import Context, Harbor
from taskharbor.core.retry import Backoff

ORDERS: Final = 3_000
TENANTS: Final = {"umbrella": 70, "acme": 12, "globex": 9, "initech": 6, "hooli": 3}
"""Whose orders they are, in percent. The first one is noisy."""
CITIES: Final = ("Hamburg", "Rotterdam", "Valencia", "Gdynia", "Piraeus")
NOWHERE: Final = "Atlantis"
LOST_SHARE: Final = 0.01
FLAKY_SHARE: Final = 0.04
TOO_HEAVY_KG: Final = 9_000
"""What the scales cannot take: they bring down the process."""
HEAVY_ORDERS: Final = 2
BAD_ROWS: Final = 5
"""Rows with a time that has no offset from UTC."""

harbor = Harbor()


@harbor.task(name="order.ship", max_attempts=2, retry=Backoff(base=0.2, jitter="none"))
async def ship(order_id: int, city: str, weight_kg: int, *, context: Context) -> str:
    if weight_kg > TOO_HEAVY_KG:
        os._exit(1)  # as a library in C might end it: no exception, no goodbye
    await asyncio.sleep(0.002 + (order_id * 7919 % 100) / 4000)
    if city == NOWHERE:
        raise LookupError(f"order {order_id}: no port is called {city}")
    if context.attempt == 1 and order_id * 31 % 100 < FLAKY_SHARE * 100:
        raise TimeoutError(f"the carrier at 10.0.0.{order_id % 250} did not answer")
    return f"shipped to {city}"


def write_orders(path: Path, seed: int) -> None:
    """The data file: orders as some other system might export them, not all of them good."""
    chance = random.Random(seed)
    tenants, weights = list(TENANTS), list(TENANTS.values())
    heavy = set(chance.sample(range(1, ORDERS + 1), HEAVY_ORDERS))
    bad = set(chance.sample(sorted(set(range(1, ORDERS + 1)) - heavy), BAD_ROWS))
    with path.open("w", encoding="utf-8") as file:
        for number in range(1, ORDERS + 1):
            order = {
                "order_id": number,
                "tenant_id": chance.choices(tenants, weights)[0],
                "city": NOWHERE if chance.random() < LOST_SHARE else chance.choice(CITIES),
                "weight_kg": TOO_HEAVY_KG + 500 if number in heavy else chance.randint(1, 2_000),
                "run_at": "2026-05-01 10:00:00" if number in bad else None,
            }
            file.write(json.dumps(order) + "\n")
