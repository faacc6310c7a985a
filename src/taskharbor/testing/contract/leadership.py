"""Leader election: at most one, and each newer than the last."""

from __future__ import annotations

from taskharbor.core.contract import Driver
from taskharbor.core.fleet import Leadership
from taskharbor.testing.times import DAY, HOUR, MICROSECOND, MINUTE, NOON, SECOND


def won(driver: Driver, holder: str, *, now: object = NOON, name: str = "scheduler") -> Leadership:
    """A bid that must win, for a minute."""
    leadership = driver.elect(name, holder, now, MINUTE)  # type: ignore[arg-type]
    assert leadership is not None, f"{holder} should have won {name} at {now}"
    return leadership


class LeadershipContract:
    """`elect`, `resign` and `leaders`."""

    def test_the_first_bid_wins_until_its_term_ends(self, driver: Driver) -> None:
        leadership = won(driver, "ann")
        assert (leadership.name, leadership.holder, leadership.until) == ("scheduler", "ann", NOON + MINUTE)
        assert leadership.epoch >= 1

    def test_nobody_else_wins_while_a_term_lasts(self, driver: Driver) -> None:
        won(driver, "ann")
        assert driver.elect("scheduler", "bob", NOON, MINUTE) is None
        assert driver.elect("scheduler", "bob", NOON + MINUTE - MICROSECOND, MINUTE) is None

    def test_a_term_is_over_at_the_very_moment_it_ends(self, driver: Driver) -> None:
        first = won(driver, "ann")
        second = won(driver, "bob", now=NOON + MINUTE)
        assert (second.holder, second.until) == ("bob", NOON + 2 * MINUTE)
        assert second.epoch > first.epoch

    def test_a_lost_bid_changes_nothing(self, driver: Driver) -> None:
        first = won(driver, "ann")
        driver.elect("scheduler", "bob", NOON + SECOND, HOUR)
        assert list(driver.leaders()) == [first]

    def test_the_epoch_rises_with_every_new_term(self, driver: Driver) -> None:
        holders = ["ann", "bob", "bob", "ann", "cid"]
        epochs = [won(driver, holder, now=NOON + number * HOUR).epoch for number, holder in enumerate(holders)]
        assert epochs == sorted(set(epochs))

    def test_the_holder_renews_its_term_and_keeps_its_epoch(self, driver: Driver) -> None:
        first = won(driver, "ann")
        renewed = won(driver, "ann", now=NOON + 30 * SECOND)
        assert (renewed.epoch, renewed.until) == (first.epoch, NOON + 30 * SECOND + MINUTE)
        assert driver.elect("scheduler", "bob", NOON + MINUTE, MINUTE) is None

    def test_the_holder_renews_by_showing_its_epoch(self, driver: Driver) -> None:
        first = won(driver, "ann")
        renewed = driver.elect("scheduler", "ann", NOON + SECOND, MINUTE, epoch=first.epoch)
        assert renewed == Leadership("scheduler", "ann", first.epoch, NOON + SECOND + MINUTE)
        assert list(driver.leaders()) == [renewed]

    def test_a_renewal_with_another_epoch_fails(self, driver: Driver) -> None:
        first = won(driver, "ann")
        for epoch in (first.epoch - 1, first.epoch + 1):
            assert driver.elect("scheduler", "ann", NOON, MINUTE, epoch=epoch) is None
        assert list(driver.leaders()) == [first]

    def test_a_renewal_by_somebody_else_fails(self, driver: Driver) -> None:
        first = won(driver, "ann")
        for holder in ("bob", "Ann", "ann "):
            assert driver.elect("scheduler", holder, NOON, MINUTE, epoch=first.epoch) is None

    def test_a_term_that_is_over_cannot_be_renewed(self, driver: Driver) -> None:
        first = won(driver, "ann")
        assert driver.elect("scheduler", "ann", NOON + MINUTE, MINUTE, epoch=first.epoch) is None
        assert driver.elect("scheduler", "ann", NOON + DAY, MINUTE, epoch=first.epoch) is None

    def test_a_leadership_that_never_was_cannot_be_renewed(self, driver: Driver) -> None:
        assert driver.elect("scheduler", "ann", NOON, MINUTE, epoch=1) is None
        assert list(driver.leaders()) == []

    def test_a_former_leader_cannot_renew_under_its_successor(self, driver: Driver) -> None:
        first = won(driver, "ann")
        won(driver, "bob", now=NOON + MINUTE)
        assert driver.elect("scheduler", "ann", NOON + MINUTE, MINUTE, epoch=first.epoch) is None
        assert driver.elect("scheduler", "ann", NOON + MINUTE, MINUTE) is None

    def test_a_holder_that_wins_again_after_its_term_has_a_new_epoch(self, driver: Driver) -> None:
        first = won(driver, "ann")
        assert won(driver, "ann", now=NOON + MINUTE).epoch > first.epoch

    def test_after_a_resignation_the_next_bid_wins_at_once_with_a_higher_epoch(self, driver: Driver) -> None:
        first = won(driver, "ann")
        driver.resign("scheduler", "ann", first.epoch)
        assert driver.elect("scheduler", "ann", NOON, MINUTE, epoch=first.epoch) is None
        assert won(driver, "bob").epoch > first.epoch

    def test_only_the_current_leader_can_resign(self, driver: Driver) -> None:
        first = won(driver, "ann")
        driver.resign("scheduler", "bob", first.epoch)
        driver.resign("scheduler", "ann", first.epoch + 1)
        driver.resign("another", "ann", first.epoch)
        assert driver.elect("scheduler", "bob", NOON, MINUTE) is None

    def test_a_former_leader_cannot_resign_for_its_successor(self, driver: Driver) -> None:
        first = won(driver, "ann")
        won(driver, "ann", now=NOON + MINUTE)
        driver.resign("scheduler", "ann", first.epoch)
        assert driver.elect("scheduler", "bob", NOON + MINUTE, MINUTE) is None

    def test_elections_of_different_names_do_not_touch(self, driver: Driver) -> None:
        won(driver, "ann", name="scheduler")
        won(driver, "bob", name="Scheduler")
        won(driver, "cid", name="janitor")
        assert [(leader.name, leader.holder) for leader in driver.leaders()] == [
            ("Scheduler", "bob"),
            ("janitor", "cid"),
            ("scheduler", "ann"),
        ]

    def test_leaders_shows_the_last_winner_even_after_its_term(self, driver: Driver) -> None:
        assert list(driver.leaders()) == []
        won(driver, "ann")
        second = won(driver, "bob", now=NOON + MINUTE)
        assert list(driver.leaders()) == [second]
