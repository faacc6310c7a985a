"""The key ring: where keys come from, and every mistake that can be made with them, told before anything is written."""

from __future__ import annotations

import base64
import copy
import pickle
import sys
from pathlib import Path

import pytest

from taskharbor import Harbor, InvalidInput, Keyring, MissingExtra

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(range(1, 33))).decode()


def test_a_ring_takes_bytes_and_base64_and_shows_ids_only() -> None:
    ring = Keyring({"2026-05": bytes(range(1, 33)), "2026-11": KEY}, active="2026-11")
    assert ring.ids == ("2026-05", "2026-11")
    assert repr(ring) == "Keyring(2026-05, 2026-11; active: 2026-11)"
    assert KEY not in repr(vars(ring))
    assert repr(bytes(range(1, 33))) not in repr(vars(ring))


def test_one_key_alone_is_the_active_one() -> None:
    assert Keyring({"a": KEY}).active == "a"


@pytest.mark.parametrize(
    ("keys", "active", "said"),
    [
        ({}, None, "empty"),
        ([KEY], None, "by their id"),
        ({"a": KEY, "b": OTHER}, None, "say which key is active"),
        ({"a": KEY}, "b", "'b' is not in the ring: it has a"),
        ({"a": KEY, "b": KEY}, "a", "the same key"),
        ({"a": bytes(16)}, None, "has 16 bytes and must have 32"),
        ({"a": base64.b64encode(bytes(31)).decode()}, None, "has 31 bytes"),
        ({"a": "not base64!"}, None, "is not base64"),
        ({"a": 7}, None, "must be bytes or base64 text, got int"),
        ({"": KEY}, None, "a key id has 1 to 32"),
        ({"a:b": KEY}, None, "a key id has 1 to 32"),
        ({"x" * 33: KEY}, None, "a key id has 1 to 32"),
        ({"schlüssel": KEY}, None, "a key id has 1 to 32"),
    ],
)
def test_a_wrong_ring_is_refused_in_clear_words(keys: object, active: str | None, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as error:
        Keyring(keys, active=active)  # type: ignore[arg-type]
    assert KEY not in str(error.value)


def test_lines_of_a_file_make_a_ring_whose_last_key_is_active() -> None:
    ring = Keyring.parse(f"# keys of the shop\n\n2026-05:{OTHER}\n  2026-11:{KEY}  \n")
    assert (ring.ids, ring.active) == (("2026-05", "2026-11"), "2026-11")


def test_a_line_may_be_marked_active_so_that_a_new_key_is_everywhere_before_it_is_used() -> None:
    assert Keyring.parse(f"2026-05:{OTHER} active\n2026-11:{KEY}").active == "2026-05"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no key"),
        ("# nothing", "there is no key"),
        (KEY, "line 1: a line is id:base64"),
        (f"a:{KEY}\na:{OTHER}", "line 2: the id 'a' is there twice"),
        (f"a:{KEY} old", "line 1: a line is id:base64, or id:base64 active"),
        (f"a:{KEY} active\nb:{OTHER} active", "a and b are both marked active"),
        ("a:short", "line 1: the key 'a'"),
        (f"?:{KEY}", "line 1: a key id has"),
    ],
)
def test_a_wrong_line_is_named_and_never_quoted(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as error:
        Keyring.parse(text, where="keys.txt")
    assert str(error.value).startswith("keys.txt")
    assert KEY not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read the encryption keys in .*: No such file"):
        Keyring.read(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="no file of encryption keys"):
        Keyring.read(tmp_path / "binary")


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files say nothing about readers there")
def test_a_file_that_everybody_may_read_is_warned_of_once_with_the_cure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(f"2026-11:{KEY}\n")
    path.chmod(0o644)
    for _ in range(2):
        assert Keyring.read(path).ids == ("2026-11",)
    assert [record.getMessage() for record in caplog.records] == [
        f"the encryption keys in {path} can be read by everybody on this machine: chmod 600 {path}"
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files say nothing about readers there")
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640])
def test_a_file_that_only_its_owner_or_a_group_may_read_is_fine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(f"2026-11:{KEY}\n")
    path.chmod(mode)
    assert Keyring.read(path).ids == ("2026-11",)
    assert not caplog.records


def test_a_harbor_finds_its_keys_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys.txt").write_text(f"2026-11:{KEY}\n")
    monkeypatch.setenv("TASKHARBOR_ENCRYPTION_KEYS", str(tmp_path / "keys.txt"))
    found = Harbor("memory://").encryption
    assert found is not None
    assert found.ids == ("2026-11",)
    assert Harbor("memory://", encryption=False).encryption is None
    own = Keyring({"own": KEY})
    assert Harbor("memory://", encryption=own).encryption is own
    monkeypatch.setenv("TASKHARBOR_ENCRYPTION_KEYS", str(tmp_path / "absent"))
    with pytest.raises(InvalidInput, match="absent"):
        Harbor("memory://")
    monkeypatch.delenv("TASKHARBOR_ENCRYPTION_KEYS")
    assert Harbor("memory://").encryption is None


def test_a_harbor_takes_a_ring_and_nothing_else() -> None:
    with pytest.raises(InvalidInput, match="encryption takes a Keyring"):
        Harbor("memory://", encryption=KEY)  # type: ignore[arg-type]


def test_without_the_library_the_extra_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"pip install 'taskharbor\[crypto\]'"):
        Keyring({"a": KEY})


def test_a_generated_key_is_a_new_one_each_time() -> None:
    first, second = Keyring.generate(), Keyring.generate()
    assert first != second
    assert Keyring({"a": first, "b": second}, active="b").ids == ("a", "b")


def test_keys_do_not_travel_by_pickle() -> None:
    ring = Keyring({"a": KEY})
    for move in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="not pickled"):
            move(ring)  # type: ignore[operator]
