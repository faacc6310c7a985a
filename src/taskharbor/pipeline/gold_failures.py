"""gold/failures: errors by fingerprint and day, with what they cost and whom they hit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from taskharbor.pipeline.gold import Asked

MOST_TENANTS: Final = 50
SAMPLE_CHARACTERS: Final = 1000
_KEY: Final = "store_id, fingerprint, queue, type, day"
_COLUMNS: Final = f"{_KEY}, error_class, sample, failures, dead, burned_s, first_seen, last_seen, tenants"


def failures(asked: Asked) -> str:
    # The sample is the same one whatever order the rows come in. What went wrong stands at the end of a traceback.
    rows = f"""SELECT {asked.store_id} AS store_id, fingerprint, queue, type, day, min(error_class) AS error_class,
          right(max(error), {SAMPLE_CHARACTERS}) AS sample, count(*) AS failures,
          count_if(status = 'dlq') AS dead, sum(ran_s) AS burned_s, min(finished_at) AS first_seen,
          max(finished_at) AS last_seen, slice(array_sort(collect_set(tenant_id)), 1, {MOST_TENANTS}) AS tenants
        FROM {asked.attempts} WHERE burned AND fingerprint IS NOT NULL GROUP BY fingerprint, queue, type, day"""
    if asked.old is not None:
        both = asked.both(f"SELECT {_COLUMNS} FROM {asked.old}", rows)
        rows = f"""SELECT {_KEY}, min(error_class) AS error_class, max(sample) AS sample, sum(failures) AS failures,
              sum(dead) AS dead, sum(burned_s) AS burned_s, min(first_seen) AS first_seen, max(last_seen) AS last_seen,
              slice(array_sort(array_distinct(flatten(collect_list(tenants)))), 1, {MOST_TENANTS}) AS tenants
            FROM {both} GROUP BY {_KEY}"""
    return f"SELECT *, failures / sum(failures) OVER (PARTITION BY store_id, day) AS share FROM ({rows})"
