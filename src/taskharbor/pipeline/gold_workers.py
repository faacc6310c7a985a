"""gold/workers and gold/slo: who was how busy, and whether what was promised was kept; by the hour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from taskharbor.pipeline.slo import Objective

if TYPE_CHECKING:
    from taskharbor.pipeline.gold import Asked

_SUMS: Final = ("attempts", "succeeded", "lapsed", "busy_s")
_WORKER: Final = "store_id, worker, bucket, day"
_SLO: Final = "store_id, bucket, queue, type, day, objective, threshold_s, target"


def workers(asked: Asked) -> str:
    """Busy is what lies between a start and an end. When an attempt of a lost worker ended nobody knows: it is counted,
    and neither as busy nor as a sign of life later than its start."""
    from taskharbor.pipeline.gold import number_of, sums, time_of

    bucket, measured = time_of("hour", "hour"), f"{', '.join(_SUMS)}, first_at, last_at"
    rows = f"""SELECT {asked.store_id} AS store_id, worker, {bucket} AS bucket, to_date({bucket}) AS day, {measured}
        FROM (
          SELECT worker, {number_of("hour", "finished_at")} AS hour, count(*) AS attempts,
            count_if(success) AS succeeded, count_if(outcome = 'lapsed') AS lapsed,
            sum(CASE WHEN outcome <> 'lapsed' THEN ran_s ELSE 0.0D END) AS busy_s, min(started_at) AS first_at,
            max(CASE WHEN outcome <> 'lapsed' THEN finished_at ELSE started_at END) AS last_at
          FROM {asked.attempts} WHERE worker IS NOT NULL AND worker <> '' GROUP BY 1, 2)"""
    if asked.old is not None:
        both = asked.both(f"SELECT {_WORKER}, {measured} FROM {asked.old}", rows)
        rows = f"""SELECT {_WORKER}, {sums(_SUMS)}, min(first_at) AS first_at, max(last_at) AS last_at
            FROM {both} GROUP BY {_WORKER}"""
    return f"""SELECT *, busy_slots / greatest(ceil(busy_slots), 1) AS busy_share, lapsed / attempts AS crash_rate
        FROM (SELECT *, CASE WHEN span_s > 0 THEN busy_s / span_s ELSE 0.0D END AS busy_slots,
            CASE WHEN span_s > 0 THEN succeeded / span_s ELSE 0.0D END AS throughput
          FROM (SELECT *, (unix_micros(last_at) - unix_micros(first_at)) / 1e6 AS span_s FROM ({rows})))"""


def slo(asked: Asked) -> str:
    from taskharbor.pipeline.gold import number_of, time_of

    wait, target, success = (_chosen(asked.objectives, name) for name in ("wait_s", "wait_target", "success_target"))
    rows = f"""SELECT {asked.store_id} AS store_id, bucket, queue, type, to_date(bucket) AS day, promise.objective,
          promise.threshold_s, promise.target, promise.good, total FROM (
          SELECT {time_of("hour", "hour")} AS bucket, queue, type, total, explode(array(
            named_struct('objective', 'wait', 'threshold_s', {wait}, 'target', {target}, 'good', in_time),
            named_struct('objective', 'success', 'threshold_s', 0.0D, 'target', {success}, 'good', succeeded)
          )) AS promise FROM (
            SELECT {number_of("hour", "finished_at")} AS hour, queue, type, count_if(waited_s <= {wait}) AS in_time,
              count_if(success) AS succeeded, count(*) AS total
            FROM {asked.attempts} WHERE outcome IN ('succeeded', 'retried', 'dead', 'lapsed') GROUP BY 1, 2, 3))"""
    if asked.old is not None:
        both = asked.both(f"SELECT {_SLO}, good, total FROM {asked.old}", rows)
        rows = f"SELECT {_SLO}, sum(good) AS good, sum(total) AS total FROM {both} GROUP BY {_SLO}"
    return f"""SELECT *, (1 - attainment) / (1 - target) AS burn_rate
        FROM (SELECT *, good / total AS attainment FROM ({rows}))"""


def _chosen(objectives: tuple[Objective, ...], name: str) -> str:
    """The value of the first objective that fits the row; the last fits all."""
    value = f"{getattr(objectives[-1], name)!r}D"
    cases = [f"WHEN {_fits(each)} THEN {getattr(each, name)!r}D" for each in objectives[:-1]]
    return f"CASE {' '.join(cases)} ELSE {value} END" if cases else value


def _fits(objective: Objective) -> str:
    from taskharbor.pipeline.gold import text

    named = {"queue": objective.queue, "type": objective.type}
    return " AND ".join(f"{name} = {text(value)}" for name, value in named.items() if value is not None) or "true"
