"""Tokens: kept without their secrets, found by id, revoked for good."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

import pytest

from taskharbor.core.contract import Driver
from taskharbor.core.errors import InvalidInput
from taskharbor.core.tokens import ALL_TENANTS, Role, Token, matches, new_token, read_secret
from taskharbor.testing.helpers import in_threads
from taskharbor.testing.times import DAY, HOUR, NOON

KATHMANDU = timezone(timedelta(hours=5, minutes=45))
WRONG_TOKENS: dict[str, dict[str, Any]] = {
    "an id of another form": {"id": "admin"},
    "no hash": {"secret_hash": "secret"},
    "no name": {"name": ""},
    "a long name": {"name": "n" * 256},
    "no tenant": {"tenant_id": ""},
    "an unknown role": {"role": "root"},
    "a naive time": {"created_at": NOON.replace(tzinfo=None)},
    "a producer for all tenants": {"role": Role.PRODUCER, "tenant_id": ALL_TENANTS},
}


def kept(driver: Driver, name: str = "ci", *, role: str = "viewer", **fields: Any) -> Token:
    """A token that the store keeps."""
    token, _ = new_token(name, fields.pop("tenant_id", "acme"), role, fields.pop("now", NOON), **fields)
    driver.add_token(token)
    return token


class AccessContract:
    """`add_token`, `tokens`, `get_tokens` and `revoke_token`."""

    def test_a_token_is_kept_as_it_was_given(self, driver: Driver) -> None:
        made = [kept(driver, "\N{SNOWMAN} 'x' %s", role=role, expires_at=NOON + DAY) for role in Role]
        made.append(kept(driver, tenant_id=ALL_TENANTS, role="admin"))
        assert sorted(driver.tokens(), key=made.index) == made
        assert {type(token.role) for token in driver.tokens()} == {Role}

    def test_the_times_of_a_token_are_moments_in_utc(self, driver: Driver) -> None:
        kept(driver, now=NOON.astimezone(KATHMANDU), expires_at=(NOON + HOUR).astimezone(KATHMANDU))
        (token,) = driver.tokens()
        assert (token.created_at, token.expires_at, token.revoked_at) == (NOON, NOON + HOUR, None)
        assert token.created_at.utcoffset() == timedelta(0)

    def test_what_a_user_shows_opens_with_the_token_that_the_store_keeps(self, driver: Driver) -> None:
        token, shown = new_token("ci", "acme", "worker", NOON)
        driver.add_token(token)
        read = read_secret(shown)
        assert read is not None
        id, secret_hash = read
        (found,) = driver.get_tokens([id])
        assert matches(found, secret_hash, NOON)
        assert shown.rpartition(id)[2].strip("_") not in repr(found), "the store never has the secret"

    def test_tokens_come_in_the_order_of_their_making(self, driver: Driver) -> None:
        assert list(driver.tokens()) == []
        times = [NOON + number * HOUR for number in (2, 0, 1)]
        made = [kept(driver, now=now) for now in times]
        assert list(driver.tokens()) == [made[1], made[2], made[0]]

    def test_get_tokens_finds_those_that_there_are(self, driver: Driver) -> None:
        made = {token.id: token for token in (kept(driver) for _ in range(3))}
        first, second, _ = made
        found = driver.get_tokens([first, "0" * 12, second, first, "", first.upper() + "x"])
        assert {token.id: token for token in found} == {first: made[first], second: made[second]}
        assert len(found) == 2
        assert (list(driver.get_tokens([])), list(driver.get_tokens(["nobody"]))) == ([], [])

    def test_get_tokens_takes_many_ids_at_once(self, driver: Driver) -> None:
        token = kept(driver)
        assert list(driver.get_tokens([*(f"{number:012x}" for number in range(2_000)), token.id])) == [token]

    def test_an_id_is_taken_once(self, driver: Driver) -> None:
        token = kept(driver)
        with pytest.raises(InvalidInput):
            driver.add_token(replace(token, name="another", role=Role.ADMIN))
        assert list(driver.tokens()) == [token]

    def test_a_revoked_token_is_known_and_opens_nothing(self, driver: Driver) -> None:
        token, other = kept(driver), kept(driver, now=NOON + HOUR)
        assert driver.revoke_token(token.id, now=NOON + DAY)
        revoked = replace(token, revoked_at=NOON + DAY)
        assert (list(driver.tokens()), list(driver.get_tokens([token.id]))) == ([revoked, other], [revoked])
        assert not matches(revoked, token.secret_hash, NOON + DAY)

    def test_a_token_is_revoked_once(self, driver: Driver) -> None:
        token = kept(driver)
        assert [driver.revoke_token(token.id, now=NOON + number * HOUR) for number in range(3)] == [True, False, False]
        assert not driver.revoke_token("nobody", now=NOON)
        assert driver.tokens()[0].revoked_at == NOON

    def test_of_many_who_revoke_a_token_one_is_told_so(self, driver: Driver) -> None:
        token = kept(driver)
        told = in_threads(8, lambda number: driver.revoke_token(token.id, now=NOON + number * HOUR))
        assert told.count(True) == 1

    @pytest.mark.parametrize("mistake", sorted(WRONG_TOKENS))
    def test_a_token_that_nobody_could_use_is_refused(self, driver: Driver, mistake: str) -> None:
        token, _ = new_token("ci", "acme", "viewer", NOON)
        with pytest.raises(InvalidInput):
            driver.add_token(replace(token, **WRONG_TOKENS[mistake]))
        assert list(driver.tokens()) == []
