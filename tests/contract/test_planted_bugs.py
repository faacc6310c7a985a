"""A test of the tests: every planted bug is found by the contract test that is named for it."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.contract import planted, planted_ends, planted_schedules, planted_surveys

from taskharbor.drivers.memory import MemoryDriver
from taskharbor.testing import DriverContract, helpers
from taskharbor.testing.contract import listening

CAUGHT_BY: Final[dict[type[MemoryDriver], str]] = {
    planted.TokenCheckDropped: "test_a_stale_lease_cannot_complete_the_next_attempt",
    planted.LeaseLastsAMomentTooLong: "test_a_lease_has_expired_from_its_very_end",
    planted.ExtendAfterTheEnd: "test_a_lease_has_expired_from_its_very_end",
    planted.MismatchBeforeExpired: "test_expired_goes_before_mismatch",
    planted.OneTokenForAll: "test_every_reserve_gives_a_fresh_random_token_of_128_bits",
    planted.ReclaimMissing: "test_a_job_is_reservable_from_the_very_end_of_its_lease",
    planted.ReclaimAMomentTooLate: "test_a_job_is_reservable_from_the_very_end_of_its_lease",
    planted.RunAtKeptOnReclaim: "test_a_reclaimed_job_has_no_run_at_any_more",
    planted.DeliveriesNotRaised: "test_a_reclaim_raises_the_deliveries_and_not_the_attempts",
    planted.CrashLoopNeverEnds: "test_a_job_that_always_brings_its_worker_down_ends_in_the_dlq",
    planted.ReleaseBurnsAnAttempt: "test_a_released_job_is_runnable_at_once_and_burns_no_attempt",
    planted.RepeatedAckFails: "test_a_settle_repeated_with_its_token_succeeds_and_changes_nothing",
    planted.RepeatedAckOfAnybody: "test_a_settle_repeated_with_another_token_fails",
    planted.BatchFailsItsNeighbours: "test_one_stale_lease_does_not_fail_its_neighbours",
    planted.BatchWithoutAttempts: (
        "test_a_batch_settle_leaves_one_attempt_for_each_job_it_settled_and_none_for_the_others"
    ),
    planted.RetryLeavesNoHistory: "test_every_finished_attempt_is_a_row",
    planted.ErrorTextStoredAsItComes: "test_long_error_text_is_capped_and_keeps_both_ends",
    planted.DoubleInsertOnDuplicateKey: "test_the_same_key_again_answers_with_the_first_job_and_changes_nothing",
    planted.KeySharedAcrossTenants: "test_a_key_is_never_shared_across_tenants",
    planted.KeyIgnoresCase: "test_keys_are_compared_byte_by_byte",
    planted.ReplacedWithThePayloadOfAnotherId: (
        "test_a_payload_that_depends_on_its_job_is_made_for_the_one_that_is_replaced"
    ),
    planted.BatchHalfStored: "test_one_conflict_keeps_its_whole_batch_out_and_takes_no_key",
    planted.PayloadCutShort: "test_a_payload_of_one_mebibyte_is_kept_whole_and_one_byte_more_is_refused",
    planted.PriorityLostInsideABatch: "test_priority_holds_inside_a_batch",
    planted.LowerPriorityFirst: "test_higher_priority_runs_first",
    planted.ScheduledJobsRunEarly: "test_a_scheduled_job_runs_at_its_moment_and_not_before",
    planted.TypesIgnored: "test_only_the_asked_types_are_handed_out",
    planted.PauseIgnored: "test_a_paused_queue_gives_no_jobs",
    planted_ends.CancelledJobReservedAgain: "test_a_ready_job_is_cancelled_at_once",
    planted_ends.CancelForgottenWhenTheLeaseEnds: "test_a_lease_that_ends_after_a_cancel_was_asked_for_ends_the_job",
    planted_ends.ExpiryForgotten: "test_a_job_is_never_started_from_the_moment_it_expires",
    planted_ends.RedriveMakesANewJob: "test_a_redriven_job_runs_again_under_the_same_id",
    planted_ends.DlqRecordStays: "test_the_dlq_record_goes_away_with_a_redrive",
    planted_ends.PurgeKeepsTheKey: "test_purge_frees_the_idempotency_key",
    planted_ends.PruneRemovesTheDlq: "test_prune_leaves_the_dlq_and_its_history_alone",
    planted_ends.FeedSkipsARow: "test_following_the_cursor_meets_every_row_once",
    planted_ends.FeedRepeatsARow: "test_following_the_cursor_meets_every_row_once",
    planted_ends.FenceLooksOnlyBefore: (
        "test_a_producer_that_was_stopped_on_its_way_in_gets_nothing_into_a_store_that_is_shut"
    ),
    planted_ends.TwoLeaders: "test_nobody_else_wins_while_a_term_lasts",
    planted_ends.EpochNotRaised: "test_the_epoch_rises_with_every_new_term",
    planted_ends.EndedTermRenewed: "test_a_term_that_is_over_cannot_be_renewed",
    planted_ends.OrphansKeepTheirLeases: "test_the_jobs_of_a_dead_worker_run_again_before_their_leases_end",
    planted_ends.WorkersNeverDie: "test_a_worker_is_dead_after_thirty_seconds_of_silence",
    planted_ends.WorksAfterClose: "test_every_operation_of_a_closed_driver_is_refused",
    planted_schedules.TickAdvancedWithoutComparing: "test_a_tick_that_is_no_longer_the_next_one_advances_nothing",
    planted_schedules.TickComparedOutsideTheLock: "test_of_many_who_advance_one_tick_exactly_one_wins",
    planted_schedules.PauseLostByAPut: "test_a_pause_survives_a_put",
    planted_schedules.LastTickLostByAPut: "test_the_last_tick_survives_a_put",
    planted_schedules.TickKeptWhenTheTimesChange: "test_the_next_tick_is_the_given_one_when_the_times_change",
    planted_schedules.TickMovedByEveryPut: "test_the_next_tick_survives_a_put_that_leaves_the_times_alone",
    planted_schedules.DeafListener: "test_a_new_job_ends_a_wait",
    planted_schedules.WakeForgottenUnlessSomebodyWaits: "test_a_wake_before_the_wait_ends_the_next_one_at_once",
    planted_surveys.TenantIgnored: "test_only_jobs_of_the_asked_tenant_are_handed_out",
    planted_surveys.TenantPickedAfterTheClaim: ("test_a_tenant_is_found_behind_many_jobs_of_others_in_several_queues"),
    planted_surveys.CensusWithoutFinishedJobs: (
        "test_the_census_counts_by_tenant_queue_and_status_over_live_and_finished_jobs"
    ),
    planted_surveys.CensusTakesScheduledJobsForDue: (
        "test_the_census_tells_what_is_not_due_yet_and_when_the_first_of_the_others_became_due"
    ),
    planted_surveys.CountBeyondItsLimit: "test_counting_stops_at_the_limit",
    planted_surveys.CountForgetsTheTenant: "test_count_takes_every_filter_that_list_takes",
    planted_surveys.TextNotFoundInPayloads: "test_text_is_found_in_ids_types_and_payloads",
    planted_surveys.NewestFirst: "test_the_newest_rows_come_in_the_order_of_the_feed",
    planted_surveys.LatestCursorStaysBehind: "test_the_cursor_of_the_newest_rows_is_the_end_of_the_feed",
    planted_surveys.LatestSkipsToTheEnd: "test_latest_and_history_go_on_where_the_other_has_come_to",
    planted_surveys.TokenReplaced: "test_an_id_is_taken_once",
    planted_surveys.RevokedAgainAndAgain: "test_a_token_is_revoked_once",
    planted_surveys.RevokedTokensForgotten: "test_a_revoked_token_is_known_and_opens_nothing",
}


def cases(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments of every case of a contract test beside the driver."""
    choices: list[list[dict[str, Any]]] = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names, values = mark.args[0], mark.args[1]
            listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
            choices.append([dict(zip(listed, _unpacked(value, len(listed)), strict=True)) for value in values])
    for chosen in itertools.product(*choices):
        yield {name: value for choice in chosen for name, value in choice.items()}


def _unpacked(value: Any, count: int) -> tuple[Any, ...]:
    if hasattr(value, "values") and hasattr(value, "marks"):  # pytest.param(…)
        return tuple(value.values)
    return (value,) if count == 1 else tuple(value)


def passes(test: Any, driver: MemoryDriver, arguments: dict[str, Any]) -> bool:
    try:
        test(DriverContract(), driver, **arguments)
    except (Exception, pytest.fail.Exception):
        return False
    finally:
        driver.close()
    return True


@pytest.mark.parametrize("bug", CAUGHT_BY, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_caught_by_the_test_named_for_it(
    bug: type[MemoryDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "FEED_PATIENCE_S", 0.05)  # a row that is missing here will not come later
    monkeypatch.setattr(listening, "PATIENCE_S", 1.0)  # nor will a hint
    test = getattr(DriverContract, CAUGHT_BY[bug])
    arguments = list(cases(test))
    assert all(passes(test, MemoryDriver(), chosen) for chosen in arguments), "the healthy driver must pass"
    assert not all(passes(test, bug(), chosen) for chosen in arguments), f"{CAUGHT_BY[bug]} let {bug.__name__} through"


def test_every_planted_bug_has_a_test_named_for_it() -> None:
    bugs = {
        bug
        for module in (planted, planted_ends, planted_schedules, planted_surveys)
        for name, bug in inspect.getmembers(module, inspect.isclass)
        if bug.__module__ == module.__name__ and not name.startswith("_")
    }
    assert bugs == set(CAUGHT_BY)


def test_no_promise_hides_another_of_the_same_name() -> None:
    # A mixin's test is lost without a word if another mixin has one of the same name.
    names = Counter(name for mixin in DriverContract.__mro__ for name in vars(mixin) if name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []
