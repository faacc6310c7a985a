"""What can be wrong with a PostgreSQL server, as far as a queue is concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from taskharbor.cli.findings import Finding, ok, problem, warning
from taskharbor.cli.peek import select

LONG_S: Final = 60
NOTIFY_WAIT_S: Final = 2.0
MANY_DEAD_ROWS: Final = 100_000

_SERVER: Final = """
SELECT current_setting('server_version'), current_setting('autovacuum'),
       current_setting('synchronous_commit'), current_setting('track_counts')
"""
_LONG: Final = """
SELECT pid, COALESCE(usename, ''), COALESCE(application_name, ''), state,
       EXTRACT(epoch FROM clock_timestamp() - xact_start)::float, backend_xid IS NOT NULL
FROM pg_stat_activity
WHERE xact_start < clock_timestamp() - make_interval(secs => :seconds) AND pid <> pg_backend_pid()
  AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 5
"""
_PREPARED: Final = """
SELECT gid, EXTRACT(epoch FROM clock_timestamp() - prepared)::float FROM pg_prepared_xacts
WHERE prepared < clock_timestamp() - make_interval(secs => :seconds) ORDER BY prepared LIMIT 5
"""
_SLOTS: Final = """
SELECT slot_name, age(COALESCE(catalog_xmin, xmin)) FROM pg_replication_slots
WHERE NOT active AND xmin IS NOT NULL LIMIT 5
"""
_READ_ONLY: Final = "SELECT current_setting('transaction_read_only'), pg_is_in_recovery(), current_user"
# Those that every enqueue, claim and worker writes to. An identity needs no privilege of its own.
_REFUSED: Final = """
SELECT privilege, string_agg(name, ', ' ORDER BY name)
FROM unnest(ARRAY['th_jobs', 'th_history', 'th_keys', 'th_workers', 'th_leader', 'th_queues']) AS name,
     unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) AS privilege
WHERE (privilege = 'INSERT' OR name = 'th_jobs') AND NOT has_table_privilege(to_regclass(name), privilege)
GROUP BY privilege ORDER BY privilege = 'INSERT' DESC, privilege
"""
_TABLES: Final = """
SELECT c.relname, COALESCE(array_to_string(c.reloptions, ','), ''), COALESCE(s.n_dead_tup, 0), COALESCE(s.n_live_tup, 0)
FROM pg_class c LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.oid IN (to_regclass('th_jobs'), to_regclass('th_history'))
"""


def server(driver: Any) -> Iterator[Finding]:
    version, autovacuum, commit, counts = select(driver, _SERVER)[0]
    yield ok("version", f"PostgreSQL {version}")
    if autovacuum != "on" or counts != "on":
        cure = "ALTER SYSTEM SET autovacuum = on (and track_counts = on), then SELECT pg_reload_conf()"
        yield problem("autovacuum", "off: the tables of a queue grow, and claims become slow", cure)
    else:
        yield from _tables(driver)
    if commit in ("off", "local"):
        yield warning(
            "durability",
            f"synchronous_commit is {commit}: a crash may lose the last jobs",
            "set it to on for this role",
        )


def writable(driver: Any) -> Iterator[Finding]:
    """Asked, and not tried."""
    read_only, standby, user = select(driver, _READ_ONLY)[0]
    if standby:
        yield problem("writable", "no: this is a standby, which takes no writes", "use the URL of the primary")
        return
    if read_only == "on":
        cure = (
            "take default_transaction_read_only = on back where it is set: the role, the database, the server, the URL"
        )
        yield problem("writable", "no: transactions of this login are read-only", cure)
        return
    refused = select(driver, _REFUSED)
    if refused:
        said = "; ".join(f"{privilege} is not granted on {tables}" for privilege, tables in refused)
        schema = select(
            driver, "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('th_jobs')"
        )
        cure = f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema[0][0]} TO "{user}"'
        yield problem("writable", f"not by the role {user}: {said}", cure)
    else:
        yield ok("writable", f"by the role {user}")


def _tables(driver: Any) -> Iterator[Finding]:
    rows = select(driver, _TABLES)
    switched_off = [name for name, options, _, _ in rows if "autovacuum_enabled=false" in options]
    buried = [(name, dead) for name, _, dead, live in rows if dead > MANY_DEAD_ROWS and dead > live]
    for name in switched_off:
        yield problem("autovacuum", f"off for {name}", f"ALTER TABLE {name} RESET (autovacuum_enabled)")
    for name, dead in buried:
        cure = f"VACUUM {name}; if it removes nothing, see `transactions`"
        yield warning("autovacuum", f"{name} has {dead:,} dead rows that it could not clear away yet", cure)
    if not switched_off and not buried:
        yield ok("autovacuum", "on")


def transactions(driver: Any) -> Iterator[Finding]:
    """Whatever is open for long holds back cleanup; if it has written, the history feed as well."""
    from taskharbor.cli.form import span

    clear = True
    for pid, user, program, state, seconds, wrote in select(driver, _LONG, seconds=LONG_S):
        clear = False
        who = " ".join(part for part in (user, program) if part)
        held = "cleanup and the history feed" if wrote else "cleanup"
        cure = f"end it in its program, or: SELECT pg_terminate_backend({pid})"
        yield warning("transactions", f"{pid} ({who}) {state} since {span(seconds)}: holds back {held}", cure)
    for name, seconds in select(driver, _PREPARED, seconds=LONG_S):
        clear = False
        said = f"prepared transaction {name} since {span(seconds)}: holds back cleanup and the history feed"
        yield warning("transactions", said, "COMMIT PREPARED or ROLLBACK PREPARED it")
    for name, age in select(driver, _SLOTS):
        clear = False
        said = f"replication slot {name}, unused, holds back cleanup by {age:,} transactions"
        yield warning("transactions", said, f"SELECT pg_drop_replication_slot('{name}'), if nobody needs it")
    if clear:
        yield ok("transactions", "none open for over a minute")


def notify(driver: Any) -> Iterator[Finding]:
    """Say something on one connection and see whether it is heard on another."""
    from taskharbor.core.ids import new_id

    channel = f"th_doctor_{new_id()[-12:]}"
    with driver._session.dedicated() as listener:
        pooled = listener.execute("SELECT pg_backend_pid()").fetchone()[0] != listener.info.backend_pid
        listener.execute(f"LISTEN {channel}")
        select(driver, "SELECT pg_notify(:channel, 'heard')", channel=channel)
        heard = list(listener.notifies(timeout=NOTIFY_WAIT_S, stop_after=1))
    if pooled or not heard:
        said = "a pooler is in between" if pooled else "what one connection says, another does not hear"
        cure = "nothing must be done: workers look every second; for less delay give them a URL past the pooler"
        yield warning("NOTIFY", said, cure)
    else:
        yield ok("NOTIFY", "heard")


CHECKS: Final[tuple[Callable[[Any], Iterator[Finding]], ...]] = (server, writable, transactions, notify)
