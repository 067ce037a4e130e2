"""Marks, locks, votes and switches of auto-recovery: BookKeeper's paths and bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import CorruptionError
from geminga.wire.bookkeeper import under_replication as codec
from geminga.wire.bookkeeper.under_replication import UnderReplicatedLedger
from support.house.source_tree import ROOT

#: As documented.
MARK = UnderReplicatedLedger(("10.0.0.7:3181", "10.0.0.8:3181"), 1_700_000_000_000)
TEXT = b'replica: "10.0.0.7:3181"\nreplica: "10.0.0.8:3181"\nctime: 1700000000000\n'
PATH = "/ledgers/underreplication/ledgers/0000/0000/0001/0203/urL0000066051"


def test_bytes_and_path_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "formats" / "under-replication.md").read_text(encoding="utf-8")
    assert codec.encode_mark(MARK) == TEXT
    assert codec.mark_path(66051) == PATH
    assert f"```\n{TEXT.decode()}```" in page
    assert PATH in page


@given(st.integers(0, (1 << 63) - 1))
def test_a_path_tells_its_ledger(ledger_id: int) -> None:
    *levels, name = codec.mark_path(ledger_id).removeprefix(codec.MARKS_PATH + "/").split("/")
    assert len(levels) == codec.MARK_LEVELS
    assert all(map(codec.is_mark_level, levels))
    assert int("".join(levels), 16) == ledger_id == codec.ledger_id_of_mark(name)
    assert codec.lock_path(ledger_id) == f"/ledgers/underreplication/locks/{name}"


@pytest.mark.parametrize("ledger_id", [-1, 1 << 63])
def test_an_id_that_is_none_has_no_path(ledger_id: int) -> None:
    with pytest.raises(ValueError, match="ledger id"):
        codec.mark_path(ledger_id)


@pytest.mark.parametrize("name", ["", "urL", "urL1", "urL00000000001", "urL9223372036854775808", "L0000000001", "0000"])
def test_other_nodes_are_no_marks(name: str) -> None:
    assert codec.ledger_id_of_mark(name) is None


@given(st.lists(st.text(max_size=20), max_size=4), st.none() | st.integers(0, (1 << 63) - 1))
def test_a_mark_comes_back_as_it_was(replicas: list[str], marked_ms: int | None) -> None:
    mark = UnderReplicatedLedger(tuple(replicas), marked_ms)
    data = codec.encode_mark(mark)
    assert data.isascii()
    assert codec.decode_mark(data, "mark") == mark


def test_a_mark_grows_by_what_is_new() -> None:
    mark = UnderReplicatedLedger(("a",), 5)
    assert mark.with_replicas(["a"], 9) == mark
    assert mark.with_replicas(["b", "a", "b"], 9) == UnderReplicatedLedger(("a", "b"), 9)


def test_a_mark_of_another_writer_is_read() -> None:
    # Without a time, as Apache writes it where so configured; a field of a program that knows more.
    assert codec.decode_mark(b'replica: "a"\n', "mark") == UnderReplicatedLedger(("a",))
    assert codec.decode_mark(b'replica:"a" replica:"b" colour: 3', "mark") == UnderReplicatedLedger(("a", "b"))
    assert codec.decode_mark(b"", "mark") == UnderReplicatedLedger(())


def test_locks_and_votes() -> None:
    assert codec.encode_lock("host") == b'bookieId: "host"\n'
    assert codec.decode_lock(b'bookieId: "host"\n', "lock") == "host"
    assert codec.encode_vote("h:1") == b'bookieId: "h:1"\n'
    assert codec.decode_vote(codec.encode_vote("h:1"), "vote") == "h:1"
    assert codec.decode_lock(b"", "lock") == ""
    assert [codec.vote_number(name) for name in ("V_0000000012", "V_", "x", "V_-1")] == [12, None, None, None]


def test_the_layout_is_that_of_bookkeeper_or_refused() -> None:
    assert codec.encode_rereplication_layout() == b'type: "BASIC"\nversion: 1\n'
    codec.check_rereplication_layout(b'type: "BASIC"\nversion: 1\n', "LAYOUT")
    for other in (b'type: "BASIC"\nversion: 2\n', b'type: "FLAT"\nversion: 1\n', b'type: "BASIC"\n', b"?"):
        with pytest.raises(CorruptionError, match="LAYOUT"):
            codec.check_rereplication_layout(other, "LAYOUT")


def test_the_time_of_a_check_is_binary() -> None:
    assert codec.encode_check_all_ledgers(300) == b"\x08\xac\x02"
    assert codec.decode_check_all_ledgers(b"\x08\xac\x02", "time") == 300
    assert codec.decode_check_all_ledgers(b"", "time") is None


def test_the_delay_is_seconds() -> None:
    assert codec.encode_recovery_delay(90) == b"90"
    assert codec.decode_recovery_delay(b"90\n", "delay") == 90


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (codec.decode_mark, b"replica: 3 {"),
        (codec.decode_mark, b"\xff"),
        (codec.decode_mark, b"ctime: 9223372036854775808"),
        (codec.decode_lock, b"bookieId"),
        (codec.decode_vote, b"bookieId: 'a"),
        (codec.decode_check_all_ledgers, b"\x08"),
        (codec.decode_recovery_delay, b""),
        (codec.decode_recovery_delay, b"-1"),
        (codec.decode_recovery_delay, b"9" * 5000),
        (codec.decode_recovery_delay, b"400000000"),
    ],
)
def test_what_is_damaged_is_named(decode: Callable[[bytes, str], object], data: bytes) -> None:
    with pytest.raises(CorruptionError, match="/some/node"):
        decode(data, "/some/node")
