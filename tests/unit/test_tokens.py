"""Tokens: what is made, what is shown once, and what opens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taskharbor.core.errors import InvalidInput, InvalidTime
from taskharbor.core.tokens import ALL_TENANTS, Role, matches, new_token, read_secret
from taskharbor.testing.times import HOUR, MICROSECOND, NOON


def test_what_is_shown_leads_back_to_the_token_and_opens_with_it() -> None:
    token, shown = new_token("ci", "acme", Role.WORKER, NOON)
    read = read_secret(shown)
    assert read == (token.id, token.secret_hash)
    assert matches(token, read[1], NOON)


def test_no_two_tokens_are_alike_and_none_holds_its_secret() -> None:
    made = [new_token("ci", "acme", "viewer", NOON) for _ in range(50)]
    assert len({token.id for token, _ in made}) == len({token.secret_hash for token, _ in made}) == 50
    for token, shown in made:
        assert len(shown.split("_", 2)[2]) == 43
        assert shown.split("_", 2)[2] not in repr(token)


def test_another_secret_opens_nothing() -> None:
    token, _ = new_token("ci", "acme", "viewer", NOON)
    _, other = new_token("ci", "acme", "viewer", NOON)
    read = read_secret(other)
    assert read is not None
    assert not matches(token, read[1], NOON)
    assert not matches(token, "", NOON)


def test_a_token_opens_until_it_expires_or_is_revoked() -> None:
    token, _ = new_token("ci", "acme", "viewer", NOON, NOON + HOUR)
    assert matches(token, token.secret_hash, NOON + HOUR - MICROSECOND)
    assert not matches(token, token.secret_hash, NOON + HOUR)
    assert not matches(replace(token, revoked_at=NOON), token.secret_hash, NOON)


@pytest.mark.parametrize(
    "text",
    ["", "th_", "Bearer th_1", "th_0123456789ab_", "th_0123456789AB_" + "a" * 43, "th_0123456789ab_" + "é" * 43],
)
def test_what_has_not_the_form_of_a_token_is_none(text: str) -> None:
    assert read_secret(text) is None
    assert read_secret(f"{new_token('ci', 'acme', 'viewer', NOON)[1]}\n") is None


def test_a_token_is_checked_when_it_is_made() -> None:
    for name, tenant, role in (("", "a", "viewer"), ("n", "", "viewer"), ("n", "a", "root"), ("n", "a" * 65, "admin")):
        with pytest.raises(InvalidInput):
            new_token(name, tenant, role, NOON)
    with pytest.raises(InvalidInput, match="later time"):
        new_token("n", "a", "viewer", NOON, NOON)
    with pytest.raises(InvalidTime):
        new_token("n", "a", "viewer", NOON.replace(tzinfo=None))


def test_a_producer_enqueues_for_one_tenant() -> None:
    with pytest.raises(InvalidInput, match="one tenant"):
        new_token("ci", ALL_TENANTS, "producer", NOON)
    for role in set(Role) - {Role.PRODUCER}:
        assert new_token("ci", ALL_TENANTS, role, NOON)[0].tenant_id == ALL_TENANTS
