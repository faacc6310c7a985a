"""gold/latency: how long attempts waited and ran, as log-spaced histograms that add up, and percentiles from them.

A bin is five per cent wide, so a percentile is at most two and a half per cent off; the greatest is exact.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskharbor.pipeline.gold import Asked

GROWTH: Final = 1.05
SHARES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_MEASURES: Final = ("wait", "run")
_KEY: Final = "store_id, grain, bucket, queue, type, day, part"


def latency(asked: Asked) -> str:
    """Add the new bins to the unfolded histograms, fold them, and read the percentiles off."""
    bins = f"({_binned(asked)})"
    if asked.old is not None:
        bins = asked.both(_unfolded(asked.old), _binned(asked))
    shares = ", ".join(f"{_percentiles(name)} AS {name}_shares" for name in _MEASURES)
    folded = f"SELECT *, {shares} FROM ({_folded(bins)})"
    read = [
        f"least({measure}_shares[{place}], {measure}_max_s) AS {measure}_{name}_s"
        for measure in _MEASURES
        for place, name in enumerate(SHARES)
    ]
    return f"SELECT *, {', '.join(read)} FROM ({folded})"


def bin_of(seconds: str) -> str:
    return (
        f"CAST(CASE WHEN {seconds} < 0.001D THEN 0 "
        f"ELSE 1 + floor(ln({seconds} * 1000) / {math.log(GROWTH)!r}D) END AS int)"
    )


def _percentiles(measure: str) -> str:
    """For each share, the middle of the bin that it falls into."""
    start = "named_struct('seen', 0L, 'bin', CAST(NULL AS int))"
    middle = f"CASE WHEN known.bin = 0 THEN 0.0D ELSE 0.001D * pow({GROWTH}D, known.bin - 0.5D) END"
    return f"""transform(array({", ".join(f"{share}D" for share in SHARES.values())}), share ->
        aggregate({measure}_histogram, {start}, (known, each) -> named_struct(
          'seen', known.seen + each.count,
          'bin', CASE WHEN known.bin IS NULL AND known.seen + each.count >= ceil(attempts * share)
            THEN each.bin ELSE known.bin END), known -> {middle}))"""


def _binned(asked: Asked) -> str:
    """One row for each hour and each day, queue, type, measure and bin of the new attempts."""
    from taskharbor.pipeline.gold import WHOLE_DAY, number_of, part_of, time_of

    hour = time_of("hour", "hour")
    grains = f"""explode(array(
        named_struct('grain', 'hour', 'bucket', {hour}, 'part', {part_of(hour)}),
        named_struct('grain', 'day', 'bucket', date_trunc('day', {hour}), 'part', '{WHOLE_DAY}')))"""
    return f"""SELECT {asked.store_id} AS store_id, place.grain AS grain, place.bucket AS bucket, queue, type,
          to_date(place.bucket) AS day, place.part AS part, measure, bin, count, sum_s, max_s
        FROM (SELECT *, {grains} AS place FROM (
          SELECT hour, queue, type, measure, {bin_of("s")} AS bin, count(*) AS count, sum(s) AS sum_s, max(s) AS max_s
          FROM (SELECT {number_of("hour", "finished_at")} AS hour, queue, type,
                  stack(2, 'wait', waited_s, 'run', ran_s) AS (measure, s) FROM {asked.attempts})
          GROUP BY 1, 2, 3, 4, 5))"""


def _unfolded(old: str) -> str:
    """The histograms of published rows as rows. Sums and the greatest go with the first bin."""
    folded = ", ".join(f"'{name}', {name}_histogram, {name}_sum_s, {name}_max_s" for name in _MEASURES)
    return f"""SELECT {_KEY}, measure, each.bin AS bin, each.count AS count,
          CASE WHEN place = 0 THEN sum_s ELSE 0.0D END AS sum_s, max_s
        FROM (SELECT {_KEY}, measure, sum_s, max_s, posexplode(histogram) AS (place, each)
              FROM (SELECT {_KEY}, stack(2, {folded}) AS (measure, histogram, sum_s, max_s) FROM {old}))"""


def _folded(bins: str) -> str:
    """Bins that belong together as one row for each hour or day, queue and type."""
    columns = ", ".join(
        f"""sum(CASE WHEN measure = '{name}' THEN sum_s END) AS {name}_sum_s,
        max(CASE WHEN measure = '{name}' THEN max_s END) AS {name}_max_s,
        array_sort(collect_list(CASE WHEN measure = '{name}' THEN struct(bin, count) END)) AS {name}_histogram"""
        for name in _MEASURES
    )
    return f"""SELECT {_KEY}, sum(CASE WHEN measure = 'wait' THEN count END) AS attempts, {columns}
        FROM (SELECT {_KEY}, measure, bin, sum(count) AS count, sum(sum_s) AS sum_s, max(max_s) AS max_s
              FROM {bins} GROUP BY {_KEY}, measure, bin)
        GROUP BY {_KEY}"""
