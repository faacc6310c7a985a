"""Job ids that sort in the order they were made, and tokens nobody can guess."""

from __future__ import annotations

import re
import threading
import time
from uuid import RFC_4122, UUID

import pytest

from taskharbor.core import ids
from taskharbor.core.ids import new_id, new_ids, new_tokens


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = UUID(new_id())
    assert (made.version, made.variant) == (7, RFC_4122)


def test_an_id_is_written_as_every_uuid_is() -> None:
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", new_id())


def test_an_id_begins_with_the_time_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    made = ids._UUIDv7().batch(1)[0]
    after = time.time_ns() // 1_000_000
    assert before <= UUID(made).int >> 80 <= after


def test_ids_sort_in_the_order_they_were_made() -> None:
    made = [new_id() for _ in range(2_000)] + new_ids(20_000) + [new_id()]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_go_on_rising_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = ids._UUIDv7()
    first = generator.batch(1)[0]
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert generator.batch(1)[0] > first


def test_more_ids_than_fit_in_a_millisecond_are_still_all_different_and_in_order() -> None:
    made = ids._UUIDv7().batch(10_000)
    assert made == sorted(set(made))
    assert all(UUID(one).version == 7 for one in made)


def test_no_ids_are_made_when_none_are_asked_for() -> None:
    assert new_ids(0) == []
    assert new_tokens(0) == []


def test_many_threads_never_get_the_same_id() -> None:
    made: list[list[str]] = []
    threads = [threading.Thread(target=lambda: made.append(new_ids(2_000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for batch in made for one in batch}) == 16_000
    assert all(batch == sorted(batch) for batch in made)


def test_a_token_has_128_random_bits() -> None:
    tokens = new_tokens(1_000)
    assert len(set(tokens)) == 1_000
    assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in tokens)
    # Every bit is seen set and unset: none of them is fixed.
    ones = zeros = 0
    for token in tokens:
        ones |= int(token, 16)
        zeros |= ~int(token, 16)
    assert ones == 2**128 - 1
    assert zeros & ones == ones
