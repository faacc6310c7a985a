"""Encrypted bytes: they open for the job they were written for, whole and unchanged, and for nobody else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor import DecryptionFailed, EncryptionError, EncryptionKeyMissing, Job, Keyring, NewJob, Status
from taskharbor.core import envelope
from taskharbor.core.codec import JsonCodec
from taskharbor.core.envelope import MAGIC, is_sealed, key_id_of, parse, payload_hash
from taskharbor.core.errors import InvalidPayload

RING = Keyring({"2026-05": bytes(range(32)), "2026-11": bytes(range(32, 64))}, active="2026-11")
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\1"), min_size=1, max_size=20)


@dataclass
class Place:
    """Where a ciphertext is."""

    tenant: str
    id: str
    type: str

    def job(self, payload: bytes = b"", result: bytes | None = None, **meta: str) -> Job:
        fields: dict[str, Any] = dict.fromkeys(Job._fields)
        fields |= {"id": self.id, "type": self.type, "tenant_id": self.tenant, "payload": payload, "result": result}
        return Job(**{**fields, "meta": meta, "status": Status.READY, "created_at": NOON})


places = st.builds(Place, names, names, names)


def sealed(place: Place, payload: bytes, *, keyed: bool = False) -> bytes:
    return RING.seal_payload(payload, tenant=place.tenant, id=place.id, type=place.type, keyed=keyed)


@given(places, st.binary(max_size=200), st.booleans())
def test_what_was_sealed_opens_where_it_belongs(place: Place, payload: bytes, keyed: bool) -> None:
    data = sealed(place, payload, keyed=keyed)
    assert is_sealed(data)
    assert key_id_of(data) == "2026-11"
    assert RING.open_payload(place.job(data)) == payload
    assert RING.open_result(place.job(result=RING.seal_result(place.job(), payload))) == payload


@given(places, places, st.binary(max_size=50))
def test_it_opens_nowhere_else(here: Place, there: Place, payload: bytes) -> None:
    data = sealed(here, payload)
    if here != there:
        with pytest.raises(DecryptionFailed):
            RING.open_payload(there.job(data))
    with pytest.raises(DecryptionFailed):
        RING.open_result(here.job(result=data))
    with pytest.raises(DecryptionFailed):
        RING.open_payload(here.job(RING.seal_result(here.job(), payload)))


@given(st.binary(min_size=1, max_size=50), st.booleans(), st.data())
def test_no_changed_bit_and_no_missing_byte_goes_unnoticed(payload: bytes, keyed: bool, data: st.DataObject) -> None:
    place = Place("acme", "1", "send")
    whole = sealed(place, payload, keyed=keyed)
    at = data.draw(st.integers(len(MAGIC), len(whole) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :]
    for wrong in (changed, whole[:at], whole + b"\0"):
        with pytest.raises(EncryptionError):
            RING.open_payload(place.job(wrong))


@given(st.binary(max_size=120))
def test_any_bytes_behind_the_mark_are_read_or_refused(rest: bytes) -> None:
    data = MAGIC + rest
    assert len(payload_hash(data)) == 64
    assert key_id_of(data) is not None
    with pytest.raises(EncryptionError):
        RING.open_payload(Place("acme", "1", "send").job(data))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(names, inner),
        max_leaves=5,
    )
)
def test_no_json_is_taken_for_encrypted(value: Any) -> None:
    assert not is_sealed(JsonCodec().encode(value))


def test_encrypted_bytes_are_no_json() -> None:
    with pytest.raises(InvalidPayload):
        JsonCodec().decode(sealed(Place("a", "b", "c"), b"{}"))


@given(st.binary(max_size=50), st.binary(max_size=50))
def test_equal_payloads_of_a_key_have_equal_hashes_though_no_two_ciphertexts_are_equal(one: bytes, two: bytes) -> None:
    first, again = sealed(Place("acme", "1", "send"), one, keyed=True), sealed(Place("acme", "2", "x"), one, keyed=True)
    assert first != again
    assert payload_hash(first) == payload_hash(again)
    other = sealed(Place("acme", "3", "send"), two, keyed=True)
    assert (payload_hash(first) == payload_hash(other)) == (one == two)


def test_hashes_of_two_tenants_cannot_be_compared() -> None:
    first = sealed(Place("acme", "1", "send"), b"{}", keyed=True)
    assert payload_hash(first) != payload_hash(sealed(Place("other", "1", "send"), b"{}", keyed=True))


def test_a_job_without_a_key_carries_nothing_that_equal_payloads_share() -> None:
    first, again = (sealed(Place("acme", "1", "send"), b"{}") for _ in range(2))
    assert parse(first).fingerprint is None
    assert payload_hash(first) != payload_hash(again)


def test_the_parts_of_two_places_cannot_be_mixed_up() -> None:
    data = sealed(Place("ab", "c", "d"), b"{}")
    with pytest.raises(DecryptionFailed):
        RING.open_payload(Place("a", "c", "bd").job(data))


def test_a_later_format_is_no_damage() -> None:
    data = bytearray(sealed(Place("acme", "1", "send"), b"{}"))
    data[len(MAGIC)] = 2
    with pytest.raises(EncryptionKeyMissing, match="upgrade"):
        RING.open_payload(Place("acme", "1", "send").job(bytes(data)))


def test_another_key_under_the_same_id_is_told_from_damage() -> None:
    other = Keyring({"2026-11": os.urandom(32)})
    with pytest.raises(EncryptionKeyMissing, match="another key than the one that is called '2026-11' here"):
        other.open_payload(Place("acme", "1", "send").job(sealed(Place("acme", "1", "send"), b"{}")))


def test_a_schedules_payload_opens_for_its_own_jobs_only() -> None:
    data = RING.seal_schedule(b"{}", tenant="acme", type="send", name="nightly")
    place = Place("acme", "any", "send")
    assert RING.open_payload(place.job(data, schedule="nightly")) == b"{}"
    for wrong in (
        place.job(data),
        place.job(data, schedule="other"),
        Place("b", "any", "send").job(data, schedule="nightly"),
    ):
        with pytest.raises(DecryptionFailed):
            RING.open_payload(wrong)


def test_every_message_has_a_nonce_of_its_own() -> None:
    nonces = {parse(sealed(Place("acme", "1", "send"), b"{}")).nonce for _ in range(1_000)}
    assert len(nonces) == 1_000


def test_a_key_that_has_sealed_enough_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskharbor.app.encryption.MOST_MESSAGES", 10)
    ring, place = Keyring({"a": bytes(32)}), Place("acme", "1", "send")
    messages = [ring.seal_payload(b"{}", tenant="acme", id="1", type="send") for _ in range(95)]
    assert len({parse(each).salt for each in messages}) == 10
    again = Keyring({"a": bytes(32)})  # as in another process
    assert {again.open_payload(place.job(each)) for each in messages} == {b"{}"}


def test_every_process_seals_with_a_key_of_its_own() -> None:
    rings = [Keyring({"a": bytes(32)}) for _ in range(5)]
    assert len({parse(each.seal_payload(b"", tenant="a", id="b", type="c")).salt for each in rings}) == 5


def test_a_job_that_no_store_would_take_is_left_for_the_store_to_refuse() -> None:
    odd = NewJob("send", "text")  # type: ignore[arg-type]
    assert RING.seal_job(odd) is odd


def test_the_format_stays_readable() -> None:
    """Bytes as the first release wrote them. If this fails, jobs that wait in stores would not open."""
    place = Place("acme", "0198c7a2-6f0e-7d5b-9a51-3f4de1c4e6aa", "email.send")
    data = bytes.fromhex(KEPT)
    assert RING.open_payload(place.job(data)) == b'{"to":"ada"}'
    assert envelope.parse(data).kind == envelope.Kind.PAYLOAD


KEPT = (
    "f554481a01010107323032362d31316e3a97c2ec0c78ccf6e95e81c2a6cb755c52106fc34d10a6e4e1f0532420b77c596bcd"
    "691e95ac5c350d5dfe1f08ca43c9f9b50ab3ad2ce886f482a3a91fec237ff20d6c065d04ce3abc02a3fa3363f37209f840b4"
    "6d7439724335c3"
)
