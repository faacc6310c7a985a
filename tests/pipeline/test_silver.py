"""Errors by class and fingerprint, and attempts with their times put right."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.pipeline.lives import NOON

from taskharbor.core import fingerprints
from taskharbor.pipeline import silver
from taskharbor.pipeline.fingerprint import error_class, fingerprint, normalised
from taskharbor.pipeline.schemas import HISTORY
from taskharbor.pipeline.silver_files import Layout, lay_out, parted

if TYPE_CHECKING:
    import random

    from pyspark.sql import DataFrame, SparkSession

TRACE = 'Traceback (most recent call last):\n  File "/app/{}.py", line {}, in charge\n    raise CardError(x)\n'
SAME = [
    ("user 17 not found", "user 99182 not found"),
    ("job 0191f3ab-77aa-7000-8000-0123456789ab is gone", "job ffffffff-0000-7000-8000-0123456789ab is gone"),
    ("object at 0x7f00aa", "object at 0x1"),
    ("digest deadbeef01234567 differs", "digest 0123456789abcdef0011 differs"),
    ("no key 'ada' in table", "no key 'grace hopper' in table"),
    ('bad "a" value', 'bad "b c" value'),
    ("cannot reach https://a.example/x?y=1", "cannot reach https://b.example/z"),
    ("mail to ada@example.com bounced", "mail to bob@mail.example.org bounced"),
    ("connect 10.0.0.1:5432 refused", "connect 192.168.7.20:6543 refused"),
    ("cannot open /var/data/a.csv", "cannot open /tmp/x/y/z.csv"),
    (
        TRACE.format("pay", 3) + "shop.CardError: card '1' declined",
        TRACE.format("till", 44) + "shop.CardError: card '2' declined",
    ),
]
DIFFERENT = [
    ("ValueError: bad", "TypeError: bad"),
    ("cannot open the door", "cannot close the door"),
    ("it isn't there and it won't be", "it isn't here and it won't be"),
]
CLASSES = [
    (TRACE.format("pay", 3) + "shop.errors.CardError: card declined", "retried", "CardError"),
    (TRACE.format("pay", 3) + "KeyboardInterrupt", "retried", "KeyboardInterrupt"),
    (TRACE.format("a", 1) + "ValueError: x\n\nDuring handling of the above exception, another exception occurred:\n\n"
     + TRACE.format("b", 2) + "KeyError: 'k'", "dead", "KeyError"),
    ("ValueError: 3 is odd", "retried", "ValueError"),
    ("timed out after 3 s", "retried", "Timeout"),
    ("no such card", "dead", "Error"),
    ("the lease ended before the worker settled it", "lapsed", "Lapsed"),
    (None, "succeeded", None),
]  # fmt: skip


def _prints(spark: SparkSession, texts: list[str]) -> list[str]:
    rows = spark.createDataFrame([(text,) for text in texts], "error string")
    kind = error_class(F.col("error"), F.lit("retried"))
    return [row[0] for row in rows.select(fingerprint(F.col("error"), kind)).collect()]


def test_errors_that_differ_only_in_details_have_one_fingerprint(spark: SparkSession) -> None:
    first, second = (_prints(spark, [pair[side] for pair in SAME]) for side in (0, 1))
    assert first == second
    assert len(set(first)) == len(SAME)


ODD = [
    "", " ", "\n", "E", "E:", "E: ", "E:\n", "a.B: c", "Traceback", "Traceback\nX", "Traceback\nX\n",
    "Traceback\r\nX: y\r\n", "Traceback\nX: a\u2028b", "Traceback\nX\u0085", "Ünicode: größer als 12,5 µs",
    "日本語のエラー: 42 件", "K\u212aelvin 0xDEADBEEF", "\U0001f600 at 0x1f", "x" * 3_000, "é" * 2_001, "10.0.0.1",
    "A.b.C.D:80 and a.example:443", "'it''s' \"q\" `r`", "don't 'quote' me", "C:\\dir\\file.txt", "../a/b ./c /d~e",
    "1e-5 +3 -2.5 12:30:01 1,000", "deadbeef cafebabe1 0123abcd", "\t tabs \x0b and \x0c feeds  ", "<path> /x",
    "a@b.co ü@x.de", "٣٤٥ digits of others", "line one\nline two 7\n", "timed out after 3 s",
    "\u00a0no-break\u00a0space 1",
]  # fmt: skip


def test_plain_python_gives_the_same_class_and_fingerprint_as_spark(spark: SparkSession, rng: random.Random) -> None:
    """The dashboard groups the DLQ by itself; its groups must be those of triage and of the lake."""
    texts = [text for pair in (*SAME, *DIFFERENT) for text in pair] + ODD + [each[0] for each in CLASSES if each[0]]
    words = [*"aZ0.:/'\"`@-_ \n\r\tü", "Traceback", "Error: ", "0x", "::", "//", "10.1.2.3", "\u2028", "deadbeef9"]
    texts += ["".join(rng.choices(words, k=rng.randrange(1, 30))) for _ in range(1_500)]
    rows = spark.createDataFrame(list(enumerate(texts)), "n int, error string")
    kind = error_class(F.col("error"), F.lit("dead"))
    found = rows.select("n", kind, normalised(F.col("error")), fingerprint(F.col("error"), kind)).orderBy("n").collect()
    for (_, *of_spark), text in zip(found, texts, strict=True):
        expected = [fingerprints.error_class(text), fingerprints.normalised(text), fingerprints.fingerprint(text)]
        assert of_spark == expected, repr(text)


def test_errors_that_differ_in_words_have_two(spark: SparkSession) -> None:
    first, second = (_prints(spark, [pair[side] for pair in DIFFERENT]) for side in (0, 1))
    assert not set(first) & set(second)


def test_the_class_of_an_error_is_what_was_raised_last(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(error, outcome) for error, outcome, _ in CLASSES], "error string, outcome string")
    found = rows.select(error_class(F.col("error"), F.col("outcome"))).collect()
    assert [row[0] for row in found] == [kind for _, _, kind in CLASSES]


def test_a_normalised_error_can_still_be_read(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("ValueError: user 17 has no file /a/b in 'x'",)], "error string")
    assert (
        rows.select(normalised(F.col("error"))).collect()[0][0] == "ValueError: user <n> has no file <path> in <text>"
    )


def _fact(**given: Any) -> dict[str, Any]:
    usual = dict.fromkeys(HISTORY.fieldNames())
    now = {"at": NOON + timedelta(seconds=9), "due_at": NOON, "claimed_at": NOON + timedelta(seconds=2)}
    names = {"store_id": "s", "job_id": "j", "type": "t", "queue": "q", "tenant_id": "a", "lease_token": "x"}
    return usual | names | now | {
        "seq_no": 1, "outcome": "succeeded", "status": "done", "final": True, "attempt_no": 1, "delivery": 1,
        "created_at": NOON, "started_at": NOON + timedelta(seconds=4),
    } | given  # fmt: skip


def _parted(bronze: DataFrame, batch: int = 1, **layout: Any) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Attempts, whole jobs and parts of jobs, as a run would write them."""
    judged = silver.judged(bronze).toArrow()
    return parted(judged, Layout("", "s", batch, "", "", "", **layout))


def _attempts(bronze: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _parted(bronze)[0].to_pylist()
    return found


@pytest.mark.parametrize(
    ("started_s", "waited_s", "ran_s"), [(4, 4.0, 5.0), (-60, 2.0, 7.0), (3600, 9.0, 0.0), (None, 2.0, 7.0)]
)
def test_a_start_from_a_wrong_clock_is_kept_between_claim_and_end(
    spark: SparkSession, started_s: int | None, waited_s: float, ran_s: float
) -> None:
    started = None if started_s is None else NOON + timedelta(seconds=started_s)
    bronze = spark.createDataFrame([_fact(started_at=started)], HISTORY)
    (row,) = _attempts(bronze)
    assert (row["waited_s"], row["ran_s"], row["success"], row["burned"]) == (waited_s, ran_s, True, False)


@pytest.mark.parametrize(
    ("given", "waited_s"),
    [
        # Due a month before it was made: a backfill.
        ({"due_at": NOON - timedelta(days=30)}, 4.0),
        ({"due_at": NOON - timedelta(days=30), "created_at": NOON - timedelta(days=40)}, 30 * 86_400 + 4.0),
        ({"due_at": NOON + timedelta(seconds=1)}, 3.0),
        # Not over, so that nothing but the id says when it was made.
        ({"due_at": NOON - timedelta(days=30), "job_id": "id-7"}, 30 * 86_400 + 4.0),
        ({"due_at": NOON - timedelta(days=30), "job_id": f"{int(NOON.timestamp() * 1000):012x}"}, 4.0),
        ({"due_at": NOON - timedelta(days=30), "job_id": f"{int(NOON.timestamp() * 2000):012x}"}, 30 * 86_400 + 4.0),
    ],
)
def test_a_wait_begins_when_the_job_is_due_and_not_before_it_is_made(
    spark: SparkSession, given: dict[str, Any], waited_s: float
) -> None:
    if "job_id" in given:
        digits = given["job_id"]
        name = f"{digits[:8]}-{digits[8:]}-7abc-8def-0123456789ab" if len(digits) == 12 else digits
        given = given | {"job_id": name, "created_at": None, "final": False, "outcome": "retried", "status": "ready"}
    (row,) = _attempts(spark.createDataFrame([_fact(**given)], HISTORY))
    assert (row["waited_s"], row["ran_s"]) == (waited_s, 5.0)


@pytest.mark.parametrize(("started_s", "ran_s"), [(None, 0.0), (2, 0.0), (4, 5.0)])
def test_an_attempt_that_lay_in_a_lost_worker_did_not_run(
    spark: SparkSession, started_s: int | None, ran_s: float
) -> None:
    started = None if started_s is None else NOON + timedelta(seconds=started_s)
    lost = _fact(outcome="lapsed", status="ready", final=False, started_at=started, created_at=None)
    (row,) = _attempts(spark.createDataFrame([lost], HISTORY))
    assert row["ran_s"] == ran_s


def test_facts_of_one_job_add_up_to_one_row(spark: SparkSession) -> None:
    first = _fact(outcome="retried", status="ready", final=False, error="ValueError: 1", created_at=None)
    second = _fact(seq_no=2, attempt_no=2, delivery=2, lease_token="y", at=NOON + timedelta(seconds=30))
    _, simple, others = _parted(spark.createDataFrame([first, second], HISTORY), batch=3)
    assert simple.num_rows == 0
    known, new = spark.createDataFrame([], silver.JOBS), spark.createDataFrame(others, silver.PARTS)
    (row,) = silver.merged_jobs(silver.pieces_of(new, known)).collect()
    assert (row["attempts"], row["failures"], row["status"], row["state"], row["known_batch"]) == (
        2,
        1,
        "done",
        "final",
        3,
    )
    assert (row["ran_s"], row["wasted_s"]) == (5.0 + 26.0, 5.0)


def test_a_single_fact_is_a_whole_job_unless_its_id_was_in_use_before(spark: SparkSession) -> None:
    expired = _fact(seq_no=2, job_id="e", outcome="expired", status="expired", attempt_no=None, delivery=0)
    bronze = spark.createDataFrame([_fact(), expired], HISTORY)
    attempts, simple, others = _parted(bronze, batch=4)
    assert (attempts["job_id"].to_pylist(), others.num_rows) == (["j"], 0)
    done, never = simple.to_pylist()
    assert (done["attempts"], done["ran_s"], done["cost_s"], done["wasted_s"]) == (1, 5.0, 7.0, 0.0)
    assert (never["attempts"], never["waited_s"], never["ran_s"], never["deliveries"]) == (0, 0.0, 0.0, 0)
    assert {(row["batch"], row["known_batch"], row["state"]) for row in (done, never)} == {(4, 4, "final")}
    assert {row["ended_at"] for row in (done, never)} == {NOON + timedelta(seconds=9)}
    _, simple, others = _parted(bronze, not_alone=frozenset("j"))
    assert (simple["job_id"].to_pylist(), others["job_id"].to_pylist()) == (["e"], ["j"])


def test_every_fact_is_counted_once_whatever_table_it_goes_to(spark: SparkSession, tmp_path: Path) -> None:
    retried = _fact(seq_no=2, job_id="r", outcome="retried", status="ready", final=False, created_at=None)
    early = _fact(seq_no=3, job_id="n", due_at=NOON + timedelta(seconds=3))
    bad = _fact(seq_no=4, outcome="flown")
    facts = silver.judged(spark.createDataFrame([_fact(), retried, early, bad], HISTORY)).toArrow()
    laid = lay_out(facts.to_batches(max_chunksize=1), Layout(str(tmp_path), "s", 1, "a", "b", "c"))
    hour = int(NOON.timestamp()) // 3600
    assert laid.profile == {
        "rows": 4, "rejected": 1, "attempts": 3, "final": 2, "other": 1, "negative_waits": 1, "ended": [hour],
        "created": [hour],
    }  # fmt: skip
    files = (laid.attempts, laid.jobs, laid.others)
    assert [sum(each.rows for each in some) for some in files] == [3, 2, 1]
    assert [each.values for each in laid.jobs] == [{"state": "final", "day": NOON.date().isoformat()}]
