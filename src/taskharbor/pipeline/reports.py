"""Reports: gold tables in, numbers out, and a page of them.

`measure` is pure: from the rows of gold to a `Report`. The page shows it, `--json` prints it, and whoever wants to draw
something else starts from it.
"""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from taskharbor.core.errors import InvalidInput
from taskharbor.pipeline import report_parts, report_sums
from taskharbor.pipeline.report_findings import findings
from taskharbor.pipeline.report_gold import Gold, read_gold
from taskharbor.pipeline.report_numbers import Lag, Report, Window
from taskharbor.pipeline.report_words import moment


def report(
    lake: str | Path,
    *,
    since: timedelta | datetime | None = timedelta(days=7),
    url: str | None = None,
    now: datetime | None = None,
) -> Report:
    """What the lake knows from `since` on: a time, a length of time before now, or None for everything.

    Starts no Spark. Raises NotALake, LakeTooNew, LakeCorrupt, and NoGold before the first run.
    """
    now = now or datetime.now(UTC)
    if isinstance(since, timedelta):
        since = now - since
    elif since is not None and since.tzinfo is None:
        raise InvalidInput("since must be a time with its offset, such as datetime.now(UTC)")
    return measure(read_gold(lake, since=since, url=url), now)


def measure(gold: Gold, now: datetime) -> Report:
    """The numbers of the gold that was read."""
    buckets = report_sums.throughput(gold)
    latency = report_sums.Latency(gold.latency)
    whole = latency.by().get((), {"wait": None, "run": None, "compute_s": 0.0})
    totals = report_sums.totals(gold, whole, whole["compute_s"])
    types, types_in_all = report_sums.types(latency)
    first, last = report_sums.window_of(buckets, gold.grain)
    sizes = {size.name: size.rows for size in gold.sizes}
    found = Report(
        lake=gold.lake,
        lake_version=gold.version,
        stores=gold.stores,
        generated_at=now,
        window=Window(gold.since, first, last, gold.grain),
        lag=_lag(gold, now),
        empty=_empty(gold, bool(buckets)),
        rows={
            "facts": sizes.get("bronze/history", 0),
            "attempts": sizes.get("silver/attempts", 0),
            "jobs": sizes.get("silver/jobs", 0),
        },
        totals=totals,
        throughput=buckets,
        latency=report_sums.latency_buckets(latency),
        queues=report_sums.queues(gold, latency),
        types=types,
        types_in_all=types_in_all,
        failures=report_parts.failures(gold, totals.counts),
        tenants=report_parts.tenants(gold),
        workers=report_parts.workers(gold),
        slo=report_parts.promises(gold),
        arrivals=report_parts.arrivals(gold),
        audit=report_parts.audit(gold),
    )
    found.findings.extend(findings(found))
    return found


def _lag(gold: Gold, now: datetime) -> Lag:
    ended = gold.last_run.get("ended_at")
    # Gold has no finer times that are cheap to reach, but failures and workers keep exact ones.
    seen = [each for each in (_last(gold.workers, "last_at"), _last(gold.failures, "last_seen"), gold.newest) if each]
    newest = max(seen) if seen else None
    return Lag(
        newest_at=newest,
        newest_age_s=(now - newest).total_seconds() if newest else None,
        last_run_at=datetime.fromisoformat(ended) if ended else None,
        last_run_rows=gold.last_run.get("rows"),
        last_run_problem=gold.last_run.get("failed") or None,
        under_way=gold.under_way,
        store_rows=gold.store.get("rows"),
        store_s=gold.store.get("seconds"),
        store_problem=gold.store.get("problem"),
    )


def _last(rows: object, name: str) -> datetime | None:
    import pyarrow.compute as pc

    found: datetime | None = pc.max(rows[name]).as_py()  # type: ignore[index]
    return found


def _empty(gold: Gold, has_rows: bool) -> str | None:
    if has_rows:
        return None
    if gold.newest is not None and gold.since is not None:
        return (
            f"Nothing in this lake is from {moment(gold.since)} UTC or later: the newest is from the hour of "
            f"{moment(gold.newest)}. Ask for more with a longer --since, or with --since all."
        )
    return "Gold has no rows: no batch has passed its checks yet, or nothing has ended."


def check_place(out: str | os.PathLike[str]) -> Path:
    """Where the page is to be. Raises InvalidInput for what cannot be a file."""
    if not os.fspath(out).strip():
        raise InvalidInput("--out is empty: name a file, such as report.html, or leave it out")
    path = Path(out).absolute()
    if path.is_dir():
        raise InvalidInput(f"{path} is a directory: name a file, such as {path / 'report.html'}")
    return path


def write_page(text: str, out: str | os.PathLike[str]) -> Path:
    """Write the page so that it appears whole or not at all. Raises InvalidInput for a directory."""
    path = check_place(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)  # as any new file, and not for its owner alone
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
