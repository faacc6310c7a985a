"""The ids of all jobs that have ended, so that a batch can ask whether one of its own was in use before.

A store lets an id be used again once its job has been pruned or purged, and silver/jobs is much too large to look
every id up in it. So each batch leaves 64-bit digests of the ids that ended with it, sorted, in
`_taskharbor/ids/<store>/<first batch>-<last batch>.npy`; files of like size are merged, so there are few, and asking
takes a few probes in each. What is here follows from silver/jobs: where it is missing, it is made again from there.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from taskharbor.pipeline import delta
from taskharbor.pipeline.lake import Lake
from taskharbor.pipeline.lake_schemas import SILVER_JOBS
from taskharbor.pipeline.part_files import DataFile

ENDED: Final = ("dead", "final")
_AT_ONCE: Final = 100_000
_FACTOR: Final = 0x9E3779B97F4A7C15
_HALF: Final = 32


class _Run(NamedTuple):
    first: int
    last: int
    path: Path


class EndedIds:
    """Those of one store, as of the batch before `batch`."""

    def __init__(self, lake: Lake, store_id: str, batch: int) -> None:
        self._lake = lake
        self._store_id = store_id
        self._batch = batch
        self._home: Final = lake.home / "ids" / uuid.uuid5(uuid.NAMESPACE_OID, store_id).hex[:16]

    def known(self, asked: Any) -> Any:
        """Which of these digests belong to an id that ended before. Now and then one too many, never one too few."""
        import numpy as np

        found = np.zeros(len(asked), dtype=bool)
        for run in self._complete():
            digests = np.load(run.path, mmap_mode="r")
            if len(digests) and len(asked):
                places = np.minimum(np.searchsorted(digests, asked), len(digests) - 1)
                found |= digests[places] == asked
        return found

    def add(self, ending: Any) -> None:
        """What ends with the batch, before silver/jobs takes that in: too much does no harm, too little would."""
        runs = self._complete()
        runs.append(self._write(self._batch, self._batch, ending))
        while len(runs) > 1 and runs[-1].path.stat().st_size * 2 > runs[-2].path.stat().st_size:
            before, after = runs[-2:]
            runs[-2:] = [self._merged(before, after)]

    def _complete(self) -> list[_Run]:
        """The files that cover every batch before this one, made from silver/jobs if there are none."""
        runs: list[_Run] = []
        covered = 0
        for run in sorted(self._there(), key=lambda run: (run.first, -run.last)):
            if run.first == covered + 1 and run.last < self._batch:
                runs.append(run)
                covered = run.last
        if covered == self._batch - 1:
            return runs
        there = self._there()
        files = delta.files_of(delta.open_table(self._lake, SILVER_JOBS), SILVER_JOBS)
        made = self._write(1, self._batch - 1, self._digests_of(files))
        for run in there:
            if run.path != made.path:
                run.path.unlink(missing_ok=True)
        return [made]

    def _there(self) -> list[_Run]:
        found = []
        for path in self._home.glob("*-*.npy"):
            first, _, last = path.stem.partition("-")
            if first.isdecimal() and last.isdecimal():
                found.append(_Run(int(first), int(last), path))
        return found

    def _digests_of(self, files: Sequence[DataFile]) -> Any:
        import numpy as np
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        parts = [np.zeros(0, np.uint64)]
        for each in delta.chosen(files, {"state": ENDED}):
            rows = pq.ParquetFile(self._lake.path(SILVER_JOBS) / each.path).read(["store_id", "job_id"])
            parts.append(digests(rows.filter(pc.equal(rows["store_id"], self._store_id))["job_id"]))
        return np.concatenate(parts)

    def _merged(self, before: _Run, after: _Run) -> _Run:
        import numpy as np

        both = self._write(before.first, after.last, np.concatenate([np.load(run.path) for run in (before, after)]))
        for run in (before, after):
            run.path.unlink(missing_ok=True)
        return both

    def _write(self, first: int, last: int, found: Any) -> _Run:
        """It appears whole, and stays after a power cut."""
        import numpy as np

        self._home.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self._home, prefix=".ids-")
        with os.fdopen(handle, "wb") as file:
            np.save(file, np.sort(found))
            file.flush()
            os.fsync(file.fileno())
        path = self._home / f"{first:09d}-{last:09d}.npy"
        os.replace(temporary, path)  # noqa: PTH105
        return _Run(first, last, path)


def digests(ids: Any) -> Any:
    """A 64-bit digest of each text of an Arrow column. Ids are short, so words of eight bytes are mixed in one after
    the other, for all texts of the same length at once. Null is the empty text."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = pc.fill_null(ids, "").cast(pa.large_binary())
    parts = [np.zeros(0, np.uint64)]
    for chunk in whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]:
        parts += [_digests(chunk.slice(at, _AT_ONCE)) for at in range(0, len(chunk), _AT_ONCE)]
    return np.concatenate(parts)


def _digests(texts: Any) -> Any:
    import numpy as np

    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    found = np.zeros(len(texts), np.uint64)
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        padded = np.zeros((len(places), -(-int(length) // 8) * 8), np.uint8)
        if len(places) == len(texts):
            padded[:, :length] = letters[offsets[0] : offsets[-1]].reshape(len(places), length)
        else:
            padded[:, :length] = letters[offsets[places][:, None] + np.arange(length)]
        mixed = np.full(len(places), (int(length) + 1) * _FACTOR % 2**64, np.uint64)
        for word in padded.view("<u8").T:
            mixed = (mixed ^ word) * np.uint64(_FACTOR)
            mixed ^= mixed >> np.uint64(_HALF)
        found[places] = mixed * np.uint64(_FACTOR)
    return found
