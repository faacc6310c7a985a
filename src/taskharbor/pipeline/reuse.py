"""Ids of a batch that were in use before: by a job that ended in an earlier batch, or by another one of this batch.

A job that was sent back from the DLQ comes up here too; whether an id has a new life, or goes on with the one it had,
is decided where its facts are put together (`silver.latest_life`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from taskharbor.pipeline.ended_ids import digests
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import BRONZE_HISTORY, SILVER_JOBS
from taskharbor.pipeline.part_files import DataFile

if TYPE_CHECKING:
    from taskharbor.pipeline.ended_ids import EndedIds


@dataclass(frozen=True, slots=True)
class Reuse:
    ended: frozenset[str]
    """Ids of the batch whose job ended in an earlier one."""
    not_alone: frozenset[str]
    """Ids with a fact that looks like all there is about its job, and is not all there is about the id."""
    within: bool
    """Whether an id may have had more than one life in this batch alone."""
    ending: Any
    """Digests of the ids whose jobs end with this batch."""


NONE: Final = Reuse(frozenset(), frozenset(), False, None)
"""For a batch whose jobs are in the lake already."""


def look(lake: Lake, files: Sequence[DataFile], known: EndedIds) -> Reuse:
    """Look every id of a batch up. Not by Spark, for the reason that `quality.duplicates` has."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if not files:
        return Reuse(frozenset(), frozenset(), False, np.zeros(0, np.uint64))
    columns = ["job_id", "seq_no", "final", "attempt_no", "delivery", "created_at"]
    places = [lake.path(BRONZE_HISTORY) / each.path for each in files]
    rows = pa.concat_tables(pq.ParquetFile(place).read(columns) for place in places)
    keys = digests(rows["job_id"])
    final = pc.fill_null(rows["final"], False).to_numpy()
    attempt = pc.is_valid(rows["attempt_no"]).to_numpy()
    delivery = pc.fill_null(rows["delivery"], -1).to_numpy()
    made = pc.fill_null(rows["created_at"].cast(pa.int64()), -1).to_numpy()
    ended = known.known(keys)
    again = _lived_again(keys, pc.fill_null(rows["seq_no"], 0).to_numpy(), final, attempt, delivery, made)
    alone = final & np.where(attempt, delivery == 1, delivery == 0)
    return Reuse(
        _texts(rows["job_id"], ended),
        _texts(rows["job_id"], alone & (ended | np.isin(keys, again))) if len(again) or ended.any() else frozenset(),
        bool(len(again)),
        keys[made >= 0],  # only the row with which a job ends says when it was made
    )


def _lived_again(keys: Any, places: Any, final: Any, attempt: Any, delivery: Any, made: Any) -> Any:
    """The keys of jobs of which something is said behind their end, or that were delivered from the first time on
    again, or made again. Most have a single fact, and are not looked at further."""
    import numpy as np

    order = np.argsort(keys)
    same = keys[order][1:] == keys[order][:-1]
    several = order[np.append(same, False) | np.insert(same, 0, False)] if len(same) else order[:0]
    if not len(several):
        return keys[:0]
    several = several[np.lexsort((places[several], keys[several]))]
    before, after = several[:-1], several[1:]
    fewer = delivery[after] < delivery[before]
    over = final[before] | fewer | ((delivery[after] == delivery[before]) & attempt[after] & attempt[before])
    dated = several[made[several] >= 0]
    other = (keys[dated][1:] == keys[dated][:-1]) & (made[dated][1:] != made[dated][:-1])
    behind = keys[after][(keys[after] == keys[before]) & over]
    return np.unique(np.concatenate([behind, keys[dated][1:][other]]))


def _texts(ids: Any, chosen: Any) -> frozenset[str]:
    import pyarrow as pa

    if not chosen.any():
        return frozenset()
    return frozenset(id for id in ids.filter(pa.array(chosen)).unique().to_pylist() if id)


def holding(
    lake: Lake, files: Iterable[DataFile], store_id: str, ids: frozenset[str]
) -> tuple[list[DataFile], frozenset[str]]:
    """Those of these files of silver/jobs that hold one of the ids, and the ids that none does. The latest are looked
    into first, and none any more once all are found."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    left, found = set(ids), []
    for each in sorted(files, key=lambda each: each.values["day"] or "", reverse=True):
        if not left:
            break
        rows = pq.ParquetFile(lake.path(SILVER_JOBS) / each.path).read(["store_id", "job_id"])
        ours = rows.filter(pc.equal(rows["store_id"], store_id))["job_id"]
        here = set(ours.filter(pc.is_in(ours, value_set=pa.array(sorted(left), pa.string()))).to_pylist())
        if here:
            found.append(each)
            left -= here
    return found, frozenset(left)
