"""What can be said of a source without Spark, which takes its time to start: whether it is there, the names of its
columns, and after a failure the line that Spark stumbled over."""

from __future__ import annotations

import csv
import glob
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from taskharbor.core.errors import InvalidInput, TaskHarborError

FORMATS: Final = ("parquet", "csv", "json", "orc", "delta", "table", "sql")
_BY_SUFFIX: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".orc": "orc",
}  # fmt: skip
_FILES: Final = ("parquet", "csv", "json", "orc", "delta")
_REMOTE: Final = re.compile(r"[a-zA-Z][\w+.-]+:/")
_PATTERN: Final = re.compile(r"[*?\[{]")
_PLAIN_CSV: Final = frozenset(
    {"inferschema", "header", "sep", "delimiter", "nullvalue", "timestampformat", "dateformat"}
)
_LONGEST_LINE: Final = 32 * 2**20


class SourceUnreadable(TaskHarborError):
    """The source cannot be read. The message says why."""


def kind_of(source: str, format: str | None) -> str:
    """The format, as asked for or as the name says."""
    kind = format or guess_format(source)
    if kind not in FORMATS:
        raise InvalidInput(f"unknown format {kind!r}: use one of {', '.join(FORMATS)}")
    return kind


def guess_format(source: str) -> str:
    if source.lstrip().lower().startswith(("select ", "with ")):
        return "sql"
    path = Path(source)
    if (path / "_delta_log").is_dir():
        return "delta"
    names = [path.name, *(child.name for child in sorted(path.iterdir())[:100])] if path.is_dir() else [path.name]
    for name in names:
        for suffix, kind in _BY_SUFFIX.items():
            if name.removesuffix(".gz").endswith(suffix):
                return kind
    raise InvalidInput(f"cannot tell what {source} is: give the format, one of {', '.join(FORMATS)}")


def check_there(source: str, kind: str) -> None:
    """SourceUnreadable for a path of this machine where nothing is. Others are Spark's to find."""
    if kind not in _FILES or _REMOTE.match(source):
        return
    path = Path(source)
    if not path.exists() and not _matching(source) and "{" not in source:
        raise SourceUnreadable(f"there is no file or directory {source}: it was looked for at {path.absolute()}")
    if path.is_dir() and not any(path.iterdir()):
        raise SourceUnreadable(f"the directory {source} is empty: there is nothing to load")


def column_names(source: str, kind: str, reading: Mapping[str, str]) -> list[str] | None:
    """The columns, where a look at the first file tells; None where only Spark can say."""
    files = local_files(source)
    if not files:
        return None
    options = {name.lower(): value for name, value in reading.items()}
    with suppress(Exception):  # whatever is wrong with the file, Spark says it
        if kind == "parquet":
            import pyarrow.parquet as pq

            return list(pq.read_schema(files[0]).names)
        if kind == "csv" and options.keys() <= _PLAIN_CSV and options.get("header", "true").lower() == "true":
            with _opened(files[0]) as stream:
                first = stream.readline(_LONGEST_LINE).decode("utf-8-sig")
            names = next(csv.reader([first], delimiter=_separator(source, options)), [])
            return names if len(set(names)) == len(names) and all(names) else None
    return None


def _separator(source: str, options: Mapping[str, str]) -> str:
    return options.get("sep") or options.get("delimiter") or ("\t" if ".tsv" in source else ",")


def local_files(source: str) -> list[Path]:
    """The files of this machine that a path stands for, in order; none for what is elsewhere."""
    if _REMOTE.match(source):
        return []
    places = [Path(source)] if Path(source).exists() else _matching(source)
    found = []
    for place in places:
        inside = sorted(place.rglob("*")) if place.is_dir() else [place]
        found += [path for path in inside if path.is_file() and not path.name.startswith((".", "_"))]
    return found


def _matching(pattern: str) -> list[Path]:
    return [Path(name) for name in sorted(glob.glob(pattern))] if _PATTERN.search(pattern) else []  # noqa: PTH207


def row_count(source: str, kind: str) -> int | None:
    """How many rows there are, where that stands in the files and need not be counted."""
    if kind != "parquet":
        return None
    with suppress(Exception):
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(path).num_rows for path in local_files(source)) or None
    return None


def culprit(source: str, kind: str, reading: Mapping[str, str]) -> str | None:
    """The first line of the files that is no row, and what is wrong with it. Read again only when Spark has refused
    the source; None where the lines look right to us, or are not ours to judge."""
    options = {name.lower(): value for name, value in reading.items()}
    if options.get("multiline", "").lower() == "true":
        return None
    with suppress(OSError, EOFError, UnicodeError, csv.Error):
        for path in local_files(source):
            found = _bad_json(path) if kind == "json" else _bad_csv(path, source, options) if kind == "csv" else None
            if found is not None:
                return f"{path}, line {found[0]}: {found[1]}"
    return None


def _bad_json(path: Path) -> tuple[int, str] | None:
    first = True
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            if first and line.lstrip().startswith((b"[", b"{")) and line.rstrip().endswith((b"[", b"{", b",")):
                return (
                    number,
                    "is one document over several lines: the option multiLine=true of the reader takes such files",
                )
            where = f" at character {error.pos + 1} ({error.msg})" if isinstance(error, json.JSONDecodeError) else ""
            return number, f"is no JSON{where}"
        if not isinstance(value, dict | list):
            return number, f"is no JSON object but a {type(value).__name__}"
        first = False
    return None


def _bad_csv(path: Path, source: str, options: Mapping[str, str]) -> tuple[int, str] | None:
    if not options.keys() <= _PLAIN_CSV:
        return None
    texts = (line.decode() for _, line in _lines(path))
    rows = csv.reader(texts, delimiter=_separator(source, options))
    width = None
    for row in rows:
        width = len(row) if width is None else width
        if row and len(row) != width:
            return rows.line_num, f"has {len(row)} fields, and the first line has {width}"
    return None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with _opened(path) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(_LONGEST_LINE), b""), 1):
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")  # type: ignore[return-value]
