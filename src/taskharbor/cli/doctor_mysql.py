"""What can be wrong with a MySQL or MariaDB server, as far as a queue is concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from taskharbor.cli.findings import Finding, ok, warning
from taskharbor.cli.peek import select

LONG_S: Final = 60

_SERVER: Final = """
SELECT VERSION(), @@GLOBAL.sql_mode, @@SESSION.sql_mode, @@innodb_flush_log_at_trx_commit, @@max_allowed_packet,
       @@read_only
"""
_ISOLATION: Final = "SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"
_LONG: Final = """
SELECT trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, trx_started, NOW()), trx_rows_modified
FROM information_schema.innodb_trx
WHERE trx_started < NOW() - INTERVAL 60 SECOND AND trx_mysql_thread_id <> CONNECTION_ID()
ORDER BY trx_started LIMIT 5
"""


def server(driver: Any) -> Iterator[Finding]:
    version, mode, ours, flush, packet, read_only = select(driver, _SERVER)[0]
    name = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    yield ok("version", f"{name} {version}")
    if "STRICT" in str(mode):
        yield ok("sql_mode", "strict")
    else:
        # Ours is set by the session; whoever enqueues with a connection of their own may not have it.
        cure = "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES')"
        state = "ours is" if "STRICT" in str(ours) else "neither is ours"
        yield warning("sql_mode", f"not strict ({state}): values that do not fit are cut short", cure)
    if int(flush) != 1:
        said = f"innodb_flush_log_at_trx_commit is {flush}: a crash may lose the last second of jobs"
        yield warning("durability", said, "set it to 1")
    if str(read_only) not in ("0", "OFF"):
        yield warning("role", "read_only is on: only privileged logins can write", "use the URL of the primary")
    needed = 4 * driver.limits.max_payload_bytes
    if int(packet) < needed:
        said = f"max_allowed_packet is {int(packet) // 1024**2} MiB: large payloads may be refused"
        yield warning("packets", said, f"set it to at least {-(-needed // 1024**2)} MiB")
    else:
        yield ok("packets", f"{int(packet) // 1024**2} MiB")


def isolation(driver: Any) -> Iterator[Finding]:
    levels = {str(value).upper() for _, value in select(driver, _ISOLATION)}
    if levels == {"READ-COMMITTED"}:
        yield ok("isolation", "READ COMMITTED in our sessions")
    else:
        said = f"{', '.join(sorted(levels))} in our sessions, where READ COMMITTED was asked for"
        yield warning("isolation", said, "see whether a proxy in between changes the settings of sessions")


def transactions(driver: Any) -> Iterator[Finding]:
    from taskharbor.cli.form import span

    rows = select(driver, _LONG)
    for thread, seconds, modified in rows:
        said = f"{thread} open since {span(float(seconds))}, {int(modified):,} rows changed: holds back cleanup"
        yield warning("transactions", said, f"end it in its program, or: KILL {thread}")
    if not rows:
        yield ok("transactions", "none open for over a minute")


CHECKS: Final[tuple[Callable[[Any], Iterator[Finding]], ...]] = (server, isolation, transactions)
