"""Run the comparisons and print the table: `make bench`, `make bench ARGS="--quick --only sqlite"`."""

from __future__ import annotations

import argparse
import dataclasses
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import cargo, crew, endurance, limits, ours, scenarios, stores, web
from bench.harness import Result, as_json, say, table
from bench.spark import bed, beside, lake, loading, reading
from bench.stores import FULL, QUICK, Scale, Store
from taskharbor.testing.servers import ServerUnavailable, mysql_server, postgres_server

Scenario = Callable[[Store, Scale], list[Result]]

CARGO: tuple[Scenario, ...] = (cargo.workflows, cargo.unique_jobs, cargo.batch_tasks, cargo.encryption)
ON_POSTGRES: tuple[Scenario, ...] = (
    scenarios.single_enqueue,
    scenarios.bulk_and_drain,
    scenarios.two_processes,
    scenarios.latency,
    crew.idle,
    crew.many_coroutines,
    endurance.backlog,
    endurance.size,
    endurance.held_snapshot,
    limits.limits,
    *CARGO,
)
ON_SQLITE: tuple[Scenario, ...] = (
    scenarios.bulk_and_drain,
    scenarios.latency,
    crew.idle,
    crew.start_up,
    endurance.backlog,
    limits.limits,
    *CARGO,
)
WEB_ON_POSTGRES: tuple[Scenario, ...] = (web.enqueue_over_http, web.questions)
WEB_ON_SQLITE: tuple[Scenario, ...] = (web.questions,)
ON_MYSQL: tuple[Scenario, ...] = (scenarios.bulk_and_drain, endurance.backlog)
MYSQL_SETTINGS = {"innodb-buffer-pool-size": "1G"}
"""MariaDB keeps pages nowhere else, and has 128 MB for them by default; the others have the machine's memory."""
ON_SPARK = (reading.reading, loading.loading, lake.lake, beside.beside)


def options_given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: to see that it runs, not how fast")
    parser.add_argument(
        "--only",
        choices=("postgres", "sqlite", "mysql", "web", "spark"),
        action="append",
        help="one store, the server, or Spark; may repeat",
    )
    names = sorted({scenario.__name__ for scenario in (*ON_POSTGRES, *ON_SQLITE, *WEB_ON_POSTGRES, *ON_SPARK)})
    parser.add_argument("--scenario", choices=names, action="append", help="one scenario; may repeat")
    parser.add_argument(
        "--hold", type=float, metavar="SECONDS", help=f"how long P10 holds its snapshot; {FULL.hold_s:g} by default"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser.parse_args()


def main() -> int:
    options = options_given()
    scale = QUICK if options.quick else FULL
    if options.hold is not None:
        scale = dataclasses.replace(scale, hold_s=options.hold)
    results: list[Result] = []
    notes = [
        f"Beside plain SQL, ours is the driver; beside peers it is {ours.WORK_IS}.",
        "Just filled: the drain follows the load at once.",
        "Analyzed: VACUUM ANALYZE and CHECKPOINT come between, as autovacuum does; beside plain SQL it is always so.",
        "Goals beside peers are for the first of the two, because the design has measured the peers so.",
    ]

    def chosen(name: str) -> bool:
        return options.scenario is None or name in options.scenario

    def run(store: Store, every: tuple[Scenario, ...]) -> None:
        notes.extend(f"{peer.name}: {peer.settings}." for peer in store.peers)
        notes.extend(f"{peer.name}: did not run; the reason was said at the start." for peer in store.absent)
        for scenario in every:
            if chosen(scenario.__name__):
                results.extend(scenario(store, scale))

    def run_on_spark(server: Any) -> None:
        reason = bed.missing()
        if reason is not None:
            say(f"bench: without Spark: {reason}")
            return
        if not any(chosen(scenario.__name__) for scenario in ON_SPARK):
            return
        with bed.made(server) as made:
            for scenario in ON_SPARK:
                if chosen(scenario.__name__):
                    results.extend(scenario(made, bed.QUICK if options.quick else bed.FULL))

    def wanted(name: str) -> bool:
        return options.only is None or name in options.only

    try:
        if wanted("postgres"):
            with postgres_server() as server:
                run(stores.postgres(server), ON_POSTGRES)
        if wanted("sqlite"):
            with tempfile.TemporaryDirectory(prefix="taskharbor-bench-") as directory:
                run(stores.sqlite(Path(directory)), ON_SQLITE)
        if wanted("mysql"):
            notes.append("MariaDB has 1 GB for its pages, and its defaults in all else.")
            with mysql_server(settings=MYSQL_SETTINGS) as server:
                run(stores.mysql(server), ON_MYSQL)
        if wanted("web"):
            with postgres_server() as server:
                run(stores.postgres(server), WEB_ON_POSTGRES)
            with tempfile.TemporaryDirectory(prefix="taskharbor-bench-") as directory:
                run(stores.sqlite(Path(directory)), WEB_ON_SQLITE)
        if wanted("spark"):
            with postgres_server() as server:
                run_on_spark(server)
    except ServerUnavailable as error:
        say(f"bench: {error}")
        return 1
    about = {"python": platform.python_version(), "machine": platform.machine(), "quick": options.quick}
    print(as_json(results, notes, about) if options.json else table(results, notes))
    return 0 if options.quick or all(result.met is not False for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
