"""Errors by class and fingerprint, and attempts with their times put right."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.pipeline.lives import NOON

from taskharbor.pipeline import silver
from taskharbor.pipeline.fingerprint import error_class, fingerprint, normalised
from taskharbor.pipeline.schemas import HISTORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@pytest.mark.parametrize(
    ("started_s", "waited_s", "ran_s"), [(4, 4.0, 5.0), (-60, 2.0, 7.0), (3600, 9.0, 0.0), (None, 2.0, 7.0)]
)
def test_a_start_from_a_wrong_clock_is_kept_between_claim_and_end(
    spark: SparkSession, started_s: int | None, waited_s: float, ran_s: float
) -> None:
    started = None if started_s is None else NOON + timedelta(seconds=started_s)
    bronze = spark.createDataFrame([_fact(started_at=started)], HISTORY)
    (row,) = silver.attempts(silver.facts(bronze), 1).collect()
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
    (row,) = silver.attempts(silver.facts(spark.createDataFrame([_fact(**given)], HISTORY)), 1).collect()
    assert (row["waited_s"], row["ran_s"]) == (waited_s, 5.0)


@pytest.mark.parametrize(("started_s", "ran_s"), [(None, 0.0), (2, 0.0), (4, 5.0)])
def test_an_attempt_that_lay_in_a_lost_worker_did_not_run(
    spark: SparkSession, started_s: int | None, ran_s: float
) -> None:
    started = None if started_s is None else NOON + timedelta(seconds=started_s)
    lost = _fact(outcome="lapsed", status="ready", final=False, started_at=started, created_at=None)
    (row,) = silver.attempts(silver.facts(spark.createDataFrame([lost], HISTORY)), 1).collect()
    assert row["ran_s"] == ran_s


def test_facts_of_one_job_add_up_to_one_row(spark: SparkSession) -> None:
    first = _fact(outcome="retried", status="ready", final=False, error="ValueError: 1", created_at=None)
    second = _fact(seq_no=2, attempt_no=2, delivery=2, lease_token="y", at=NOON + timedelta(seconds=30))
    facts = silver.facts(spark.createDataFrame([first, second], HISTORY))
    (row,) = silver.merged_jobs(facts, spark.createDataFrame([], silver.JOBS), 3).collect()
    assert (row["attempts"], row["failures"], row["status"], row["state"], row["known_batch"]) == (
        2,
        1,
        "done",
        "final",
        3,
    )
    assert (row["ran_s"], row["wasted_s"]) == (5.0 + 26.0, 5.0)
    assert silver.simple_jobs(facts, 3).count() == 0
