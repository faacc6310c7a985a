"""Run the comparisons and print the table: `make bench`, `make bench ARGS="--quick --only sqlite"`."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import scenarios
from bench.harness import Result, as_json, say, table
from bench.scenarios import FULL, QUICK, Scale, Store
from taskharbor.testing.servers import ServerUnavailable, mysql_server, postgres_server

Scenario = Callable[[Store, Scale], list[Result]]

EVERYWHERE: tuple[Scenario, ...] = (scenarios.bulk_and_drain, scenarios.backlog)
ON_POSTGRES: tuple[Scenario, ...] = (
    scenarios.single_enqueue,
    scenarios.two_processes,
    scenarios.size,
    scenarios.held_snapshot,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: to see that it runs, not how fast")
    parser.add_argument(
        "--only", choices=("postgres", "sqlite", "mysql"), action="append", help="one store; may repeat"
    )
    parser.add_argument("--scenario", action="append", help="one scenario by its function's name; may repeat")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    results: list[Result] = []

    def run(store: Store, chosen: tuple[Scenario, ...]) -> None:
        for scenario in chosen:
            if options.scenario is None or scenario.__name__ in options.scenario:
                results.extend(scenario(store, scale))

    def wanted(name: str) -> bool:
        return options.only is None or name in options.only

    try:
        if wanted("postgres"):
            with postgres_server() as server:
                run(scenarios.postgres(server), EVERYWHERE + ON_POSTGRES)
        if wanted("sqlite"):
            with tempfile.TemporaryDirectory(prefix="taskharbor-bench-") as directory:
                run(scenarios.sqlite(Path(directory)), EVERYWHERE)
        if wanted("mysql"):
            with mysql_server() as server:
                run(scenarios.mysql(server), EVERYWHERE)
    except ServerUnavailable as error:
        say(f"bench: {error}")
        return 1
    about = {"python": platform.python_version(), "machine": platform.machine(), "quick": options.quick}
    print(as_json(results, about) if options.json else table(results))
    return 0 if options.quick or all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
