"""The life of a job: one table says what is legal, and every move keeps to it."""

from __future__ import annotations

import inspect
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor import NewJob
from taskharbor.core import transitions
from taskharbor.core.errors import JobNotInflight, LeaseExpired, LeaseMismatch
from taskharbor.core.intake import admit
from taskharbor.core.limits import Limits
from taskharbor.core.model import Extension, Job, Outcome, Progress, Reason, RetryUpdate, Settle, Settlement, Status
from taskharbor.core.transitions import LEGAL, TERMINAL, Moved, check_lease, repeats
from taskharbor.drivers.rows import job_from_admitted
from taskharbor.testing.times import HOUR, MICROSECOND, MINUTE, NOON, SECOND

LIMITS = Limits(crash_allowance=2)
THEN = NOON + 10 * SECOND
TOKEN = "a" * 32


def ready(**changes: Any) -> Job:
    job = job_from_admitted(admit([NewJob("t", b"{}", max_attempts=3)], NOON, LIMITS).fresh[0])
    return job._replace(**changes)


def inflight(**changes: Any) -> Job:
    held = transitions.reserve(ready(), token=TOKEN, owner="ada", now=NOON, lease_for=MINUTE)
    return held._replace(**changes)


def settlement(kind: Settle) -> Settlement:
    match kind:
        case Settle.ACK:
            return Settlement.ack("id", TOKEN, result=b"1")
        case Settle.RETRY:
            update = RetryUpdate(run_at=THEN + HOUR, attempts=1, last_error="boom", failed_at=THEN)
            return Settlement.retry("id", TOKEN, update=update)
        case Settle.FAIL:
            return Settlement.fail("id", TOKEN, reason="boom", code="no_handler")
        case Settle.RELEASE:
            return Settlement.release("id", TOKEN)
        case Settle.SNOOZE:
            return Settlement.snooze("id", TOKEN, run_at=THEN + HOUR)
        case Settle.CANCEL:
            return Settlement.cancel("id", TOKEN, reason="no longer wanted")


def settled(kind: Settle, job: Job | None = None) -> Moved:
    return transitions.settle(job or inflight(), settlement(kind), THEN)


def dead() -> Job:
    return settled(Settle.FAIL).job


def moves() -> list[tuple[Status, str, Job]]:
    """Every move function, from every job it may be given: where it starts, its name in the table, what comes out."""
    asked = inflight(cancel_requested_at=NOON)
    crashing = inflight(deliveries=5)
    return [
        (Status.READY, "reserve", inflight()),
        (Status.READY, "expire", transitions.expire(ready(), THEN).job),
        (Status.READY, "cancel", transitions.cancel(ready(), THEN).job),
        (Status.INFLIGHT, "extend", transitions.extend(inflight(), Extension("id", TOKEN, MINUTE), THEN)),
        (Status.INFLIGHT, "request_cancel", transitions.cancel(inflight(), THEN).job),
        *((Status.INFLIGHT, kind.value, settled(kind).job) for kind in Settle),
        *((Status.INFLIGHT, kind.value, settled(kind, asked).job) for kind in Settle),
        *(
            (Status.INFLIGHT, "lapse", transitions.lapse(job, THEN, LIMITS, "").job)
            for job in (inflight(), asked, crashing)
        ),
        (Status.DLQ, "redrive", transitions.redrive(dead(), THEN, run_at=None, reset_attempts=False)),
    ]


# --- The table ---------------------------------------------------------------------------------------------


def test_every_move_ends_where_the_table_allows() -> None:
    for start, move, after in moves():
        assert after.status in LEGAL[start, move], f"{move} of a {start} job gave {after.status}"


def test_every_line_of_the_table_is_reached_by_a_move_and_no_move_is_missing_from_it() -> None:
    reached: dict[tuple[Status, str], set[Status]] = {}
    for start, move, after in moves():
        reached.setdefault((start, move), set()).add(after.status)
    assert reached == {line: set(ends) for line, ends in LEGAL.items()}


def test_every_public_move_function_stands_in_the_table() -> None:
    functions = {
        name
        for name, thing in inspect.getmembers(transitions, inspect.isfunction)
        if thing.__module__ == transitions.__name__ and not name.startswith("_")
    }
    # `settle` stands there as its kinds; `clone` makes a new job; the others only look.
    moving = functions - {"settle", "clone", "check_lease", "repeats"}
    assert moving <= {move for _, move in LEGAL}
    assert {kind.value for kind in Settle} <= {move for start, move in LEGAL if start is Status.INFLIGHT}


def test_nothing_leaves_a_terminal_state_but_a_redrive_from_the_dlq() -> None:
    assert {line for line in LEGAL if line[0] in TERMINAL} == {(Status.DLQ, "redrive")}


def test_every_status_is_reachable_and_the_live_ones_are_ready_and_inflight() -> None:
    assert {status for ends in LEGAL.values() for status in ends} == set(Status)
    assert set(Status) - TERMINAL == {Status.READY, Status.INFLIGHT}


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        LEGAL[Status.DONE, "reserve"] = frozenset()  # type: ignore[index]


# --- What holds after every move ---------------------------------------------------------------------------


def test_a_lease_is_whole_exactly_while_a_job_is_inflight() -> None:
    for _, move, after in moves():
        parts = {after.lease_token is not None, after.lease_expires_at is not None, after.lease_owner is not None}
        assert parts == {after.status is Status.INFLIGHT}, move


def test_dlq_metadata_is_whole_exactly_while_a_job_is_in_the_dlq() -> None:
    for _, move, after in moves():
        parts = {after.dlq_reason is not None, after.dlq_code is not None, after.dlq_failed_at is not None}
        assert parts == {after.status is Status.DLQ}, move


def test_a_job_has_an_end_exactly_when_it_is_terminal() -> None:
    for _, move, after in moves():
        assert (after.completed_at is not None) == (after.status in TERMINAL), move


def test_no_move_changes_what_the_caller_enqueued() -> None:
    kept = ("id", "type", "queue", "tenant_id", "payload", "meta", "priority", "expires_at", "timeout", "max_attempts")
    for _, move, after in moves():
        before = {name: getattr(ready(), name) for name in kept if name != "id"}
        assert {name: getattr(after, name) for name in kept if name != "id"} == before, move


def test_history_has_the_whole_job_exactly_when_the_move_was_terminal() -> None:
    for kind in Settle:
        moved = settled(kind)
        if moved.fact is not None:
            assert (moved.fact.job == moved.job) == (moved.job.status in TERMINAL)
            assert (moved.fact.job is None) == (moved.job.status not in TERMINAL)


# --- The lease ---------------------------------------------------------------------------------------------


def test_a_valid_lease_passes() -> None:
    check_lease(inflight(), TOKEN, NOON + MINUTE - MICROSECOND)


def test_a_lease_has_ended_at_the_very_moment_it_expires() -> None:
    with pytest.raises(LeaseExpired):
        check_lease(inflight(), TOKEN, NOON + MINUTE)


def test_expired_takes_precedence_over_mismatch() -> None:
    with pytest.raises(LeaseExpired):
        check_lease(inflight(), "another", NOON + MINUTE)
    with pytest.raises(LeaseMismatch):
        check_lease(inflight(), "another", NOON)


@pytest.mark.parametrize("job", [ready(), settled(Settle.ACK).job, dead()])
def test_a_job_that_is_not_inflight_has_no_lease(job: Job) -> None:
    with pytest.raises(JobNotInflight):
        check_lease(job, TOKEN, NOON)


def test_the_message_of_a_lost_lease_does_not_show_the_token_of_its_holder() -> None:
    with pytest.raises(LeaseMismatch) as caught:
        check_lease(inflight(), "another", NOON)
    assert TOKEN not in str(caught.value)


def test_a_reserve_counts_a_delivery_and_forgets_the_last_one() -> None:
    job = transitions.reserve(
        ready(deliveries=1, started_at=NOON, progress=Progress(1)), token="b", owner="bob", now=THEN, lease_for=MINUTE
    )
    assert (job.deliveries, job.claimed_at, job.started_at, job.progress) == (2, THEN, None, None)
    assert (job.lease_token, job.lease_owner, job.lease_expires_at) == ("b", "bob", THEN + MINUTE)


def test_an_extension_counts_from_now_and_keeps_what_is_known() -> None:
    first = transitions.extend(inflight(), Extension("id", TOKEN, HOUR, started_at=THEN, progress=Progress(1, 2)), THEN)
    again = transitions.extend(first, Extension("id", TOKEN, SECOND), THEN + SECOND)
    assert again.lease_expires_at == THEN + 2 * SECOND
    assert (again.started_at, again.progress, again.lease_token) == (THEN, Progress(1, 2), TOKEN)


# --- Settling ----------------------------------------------------------------------------------------------


def test_an_ack_keeps_the_result_and_records_a_success() -> None:
    moved = settled(Settle.ACK)
    assert (moved.job.status, moved.job.result, moved.job.completed_at) == (Status.DONE, b"1", THEN)
    assert moved.fact is not None
    assert moved.fact.attempt is not None
    assert (moved.fact.outcome, moved.fact.attempt.number, moved.fact.attempt.worker) == (Outcome.SUCCEEDED, 1, "ada")


def test_a_retry_stores_what_core_decided_and_nothing_else() -> None:
    job = settled(Settle.RETRY).job
    assert (job.status, job.run_at, job.due_at) == (Status.READY, THEN + HOUR, THEN + HOUR)
    assert (job.attempts, job.last_error, job.failed_at) == (1, "boom", THEN)


def test_a_retry_without_a_time_is_due_at_once() -> None:
    moved = transitions.settle(inflight(), Settlement.retry("id", TOKEN, update=RetryUpdate(attempts=1)), THEN)
    assert (moved.job.run_at, moved.job.due_at) == (None, THEN)


def test_a_failure_goes_to_the_dlq_with_its_reason_and_code() -> None:
    job = dead()
    assert (job.status, job.dlq_reason, job.dlq_code, job.dlq_failed_at) == (Status.DLQ, "boom", "no_handler", THEN)
    assert (job.attempts, job.last_error) == (1, "boom")


@pytest.mark.parametrize("kind", [Settle.RELEASE, Settle.SNOOZE])
def test_release_and_snooze_burn_no_attempt(kind: Settle) -> None:
    job = settled(kind, inflight(attempts=2)).job
    assert (job.attempts, job.forgiven, job.deliveries) == (2, 1, 1)


def test_a_released_job_keeps_its_place_in_line() -> None:
    assert settled(Settle.RELEASE).job.due_at == NOON


def test_a_release_before_the_handler_started_leaves_no_attempt() -> None:
    assert settled(Settle.RELEASE).fact is None


def test_a_release_after_the_handler_started_leaves_an_attempt() -> None:
    fact = settled(Settle.RELEASE, inflight(started_at=NOON)).fact
    assert fact is not None
    assert fact.outcome is Outcome.RELEASED


@pytest.mark.parametrize("kind", [kind for kind in Settle if kind is not Settle.ACK])
def test_once_a_cancel_was_asked_for_every_way_to_stop_but_success_ends_the_job(kind: Settle) -> None:
    assert settled(kind, inflight(cancel_requested_at=NOON)).job.status is Status.CANCELLED


def test_success_counts_even_when_a_cancel_was_asked_for() -> None:
    assert settled(Settle.ACK, inflight(cancel_requested_at=NOON)).job.status is Status.DONE


@pytest.mark.parametrize("kind", [Settle.ACK, Settle.FAIL, Settle.CANCEL])
def test_the_same_settle_again_with_the_same_token_is_a_repeat(kind: Settle) -> None:
    moved = settled(kind)
    assert moved.fact is not None
    assert repeats(settlement(kind), moved.job.status, moved.fact.attempt)


def test_another_token_or_another_way_of_settling_is_no_repeat() -> None:
    moved = settled(Settle.ACK)
    assert moved.fact is not None
    assert not repeats(Settlement.ack("id", "another"), moved.job.status, moved.fact.attempt)
    assert not repeats(settlement(Settle.FAIL), moved.job.status, moved.fact.attempt)


def test_a_retry_or_a_release_is_never_a_repeat() -> None:
    for kind in (Settle.RETRY, Settle.RELEASE, Settle.SNOOZE):
        moved = settled(kind, inflight(started_at=NOON))
        assert moved.fact is not None
        assert not repeats(settlement(kind), moved.job.status, moved.fact.attempt)


# --- Leases that end by themselves, expiry, cancel, redrive ------------------------------------------------


def test_a_lapsed_job_is_ready_at_once_and_due_since_its_lease_ended() -> None:
    job = transitions.lapse(inflight(run_at=NOON), NOON + HOUR, LIMITS, "").job
    assert (job.status, job.run_at, job.due_at, job.attempts) == (Status.READY, None, NOON + MINUTE, 0)


def test_a_lease_taken_back_early_makes_the_job_due_now() -> None:
    assert transitions.lapse(inflight(), THEN, LIMITS, "").job.due_at == THEN


@pytest.mark.parametrize(("deliveries", "status"), [(4, Status.READY), (5, Status.DLQ), (6, Status.DLQ)])
def test_a_job_that_keeps_killing_its_workers_ends_in_the_dlq(deliveries: int, status: Status) -> None:
    job = transitions.lapse(inflight(deliveries=deliveries), THEN, LIMITS, "").job
    assert job.status is status
    assert job.dlq_code == (Reason.CRASH_LOOP if status is Status.DLQ else None)


def test_deliveries_that_were_forgiven_are_not_held_against_a_job() -> None:
    assert transitions.lapse(inflight(deliveries=9, forgiven=5), THEN, LIMITS, "").job.status is Status.READY


def test_a_job_that_was_to_be_cancelled_is_cancelled_when_its_lease_ends() -> None:
    moved = transitions.lapse(inflight(cancel_requested_at=NOON, deliveries=50), THEN, LIMITS, "")
    assert moved.job.status is Status.CANCELLED


def test_an_expired_job_was_not_attempted() -> None:
    fact = transitions.expire(ready(), THEN).fact
    assert fact is not None
    assert (fact.outcome, fact.attempt) == (Outcome.EXPIRED, None)


def test_cancelling_an_inflight_job_only_asks_and_remembers_the_first_asking() -> None:
    once = transitions.cancel(inflight(), THEN)
    twice = transitions.cancel(once.job, THEN + SECOND)
    assert (once.job.status, once.fact) == (Status.INFLIGHT, None)
    assert twice.job.cancel_requested_at == THEN


@pytest.mark.parametrize(("reset", "attempts"), [(False, 1), (True, 0)])
def test_a_redriven_job_starts_over_with_nothing_held_against_it(reset: bool, attempts: int) -> None:
    job = transitions.redrive(dead(), THEN, run_at=None, reset_attempts=reset)
    assert (job.attempts, job.deliveries, job.forgiven, job.due_at) == (attempts, 1, 1, THEN)


def test_a_clone_is_a_new_job_without_a_past_or_a_key() -> None:
    copy = transitions.clone(dead()._replace(idempotency_key="k", dedupe_scope="s"), THEN, id="new", run_at=None)
    assert (copy.id, copy.status, copy.created_at) == ("new", Status.READY, THEN)
    assert (copy.attempts, copy.deliveries, copy.forgiven, copy.last_error) == (0, 0, 0, "")
    assert (copy.idempotency_key, copy.dedupe_scope) == (None, None)


@given(st.sampled_from(list(Settle)), st.booleans(), st.booleans(), st.integers(1, 9))
def test_every_settle_of_every_inflight_job_keeps_to_the_table(
    kind: Settle, asked: bool, started: bool, deliveries: int
) -> None:
    job = inflight(
        cancel_requested_at=NOON if asked else None, started_at=NOON if started else None, deliveries=deliveries
    )
    moved = settled(kind, job)
    assert moved.job.status in LEGAL[Status.INFLIGHT, kind.value]
    assert moved.job.updated_at == THEN
    assert all(_is_aware(getattr(moved.job, name)) for name in Job._fields)


def _is_aware(value: object) -> bool:
    return not isinstance(value, datetime) or value.tzinfo is not None
