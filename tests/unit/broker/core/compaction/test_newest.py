"""Which messages are the newest of their keys: by a table, and by runs elsewhere when it would be too large."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.compaction import newest
from geminga.broker.core.compaction.entry_messages import DELETES, IS_GONE, ChunkPart, EntryMessages
from geminga.broker.core.compaction.newest import KeptMessages, NewestMessages


class KeyedMessage(NamedTuple):
    key: str | bytes | None
    is_null: bool = False
    is_gone: bool = False


def entry_of(messages: Sequence[KeyedMessage], *, is_whole: bool = False) -> EntryMessages:
    keys = [key.encode() if isinstance(key, str) else key for key, _, _ in messages]
    flags = bytes(DELETES * is_null + IS_GONE * is_gone for _, is_null, is_gone in messages)
    return EntryMessages(keys, flags, is_whole)


class MemorySpill:
    """Runs in memory."""

    def __init__(self) -> None:
        self.runs: dict[int, list[bytes]] = defaultdict(list)
        self.is_closed = False

    def write(self, run: int, record: bytes) -> None:
        self.runs[run].append(record)

    def read(self, run: int) -> Iterator[bytes]:
        records = self.runs[run]
        for start in range(0, len(records), 2):
            yield b"".join(records[start : start + 2])

    def close(self) -> None:
        self.is_closed = True


def judged(entries: list[EntryMessages], *, bytes_max: int = 1 << 20, keeps_null_keys: bool = False) -> list[int]:
    """The numbers that are kept."""
    spills: list[MemorySpill] = []

    def new_spill() -> MemorySpill:
        spills.append(MemorySpill())
        return spills[-1]

    found = NewestMessages(keeps_null_keys=keeps_null_keys, bytes_max=bytes_max, new_spill=new_spill)
    for entry in entries:
        for _ in found.add(entry):
            pass
    for _ in found.settle():
        pass
    found.close()
    assert all(spill.is_closed for spill in spills)
    kept = [number for number in range(found.count) if found.kept.bits(number, 1)]
    assert len(found.kept) == len(kept)
    return kept


def one(key: str | bytes | None, *, null: bool = False) -> EntryMessages:
    return entry_of((KeyedMessage(key, null),))


def part(key: str, series: str, chunk_id: int, chunks: int) -> EntryMessages:
    return entry_of((KeyedMessage(key),))._replace(chunk=ChunkPart(series, chunk_id, chunks))


keys = st.sampled_from(["a", "b", "ü", "long key " * 20, "", b"\xff\xfe", None])
batches = st.lists(st.builds(KeyedMessage, keys, st.booleans(), st.just(False)), min_size=1, max_size=4)


@given(st.lists(batches, max_size=40), st.booleans())
def test_table_and_runs_keep_what_a_plain_dictionary_says(groups: list[list[KeyedMessage]], nulls: bool) -> None:
    model: dict[object, int] = {}
    without: list[int] = []
    number = 0
    for group in groups:
        for key, is_null, _ in group:
            if key is None:
                without += [number] if not is_null else []
            elif is_null:
                model.pop(key, None)
            else:
                model[key] = number
            number += 1
    wanted = sorted([*model.values(), *(without if nulls else ())])
    entries = [entry_of(group) for group in groups]
    for bytes_max in (1 << 20, 300, 0):
        assert judged(entries, bytes_max=bytes_max, keeps_null_keys=nulls) == wanted


@pytest.mark.parametrize("bytes_max", [1 << 20, 0])
def test_parts_of_a_message_are_together_the_newest_when_the_last_is_there(bytes_max: int) -> None:
    entries = [one("a"), part("a", "x", 0, 3), part("a", "x", 1, 3), one("b"), part("a", "x", 2, 3)]
    assert judged(entries, bytes_max=bytes_max) == [1, 2, 3, 4]
    assert judged([*entries, one("a")], bytes_max=bytes_max) == [3, 5]
    # Its other parts may come: the value before it counts until then, and nothing of it goes.
    assert judged(entries[:4], bytes_max=bytes_max) == [0, 1, 2, 3]
    # It began anew, or a part came twice: what was there of it is left alone.
    assert judged([part("a", "x", 0, 2), part("a", "x", 0, 2), part("a", "x", 1, 2)], bytes_max=bytes_max) == [0, 1, 2]
    assert judged([part("a", "x", 1, 2), one("a")], bytes_max=bytes_max) == [0, 1]
    twice = [one("a"), part("a", "x", 0, 3), part("a", "x", 1, 3), part("a", "x", 1, 3)]
    assert judged(twice, bytes_max=bytes_max) == [0, 1, 2, 3]
    assert judged([*twice, part("a", "x", 2, 3)], bytes_max=bytes_max) == [1, 2, 3, 4]


def test_unfinished_parts_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "OPEN_CHUNKS_MAX", 2)
    entries = [part("a", f"{series}", 0, 2) for series in range(3)]
    # The first was forgotten: its end makes it nobody's newest, and all of it stays.
    assert judged([*entries, part("a", "0", 1, 2), one("a")]) == [0, 1, 2, 3, 4]


def test_what_nobody_can_judge_and_what_was_left_out_before() -> None:
    whole = entry_of((KeyedMessage(None), KeyedMessage(None)), is_whole=True)
    gone = entry_of((KeyedMessage(None, False, True), KeyedMessage("a")))
    assert judged([whole, gone]) == [0, 1, 3]
    assert judged([whole, gone], keeps_null_keys=True) == [0, 1, 3]


def test_a_table_is_judged_or_goes_elsewhere_in_steps_and_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "STEP_KEYS", 2)
    monkeypatch.setattr(newest, "PUT_AWAY_KEYS", 0)
    entries = [one(f"k{number}") for number in range(9)]
    for bytes_max in (9 * 200, 1 << 20):
        found = judged([*entries, one("k3"), one("k4", null=True)], bytes_max=bytes_max)
        assert found == [0, 1, 2, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("bytes_max", [1 << 20, 0])
def test_a_large_batch_is_taken_in_steps_and_all_of_it(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "STEP_KEYS", 2)
    large = entry_of([KeyedMessage(f"k{number % 5}") for number in range(7)])
    assert judged([large, one("k0")], bytes_max=bytes_max) == [2, 3, 4, 6, 7]
    whole = entry_of([KeyedMessage(None)] * 5, is_whole=True)
    assert judged([whole, one("k0")], bytes_max=bytes_max) == [0, 1, 2, 3, 4, 5]


@given(st.sets(st.integers(0, 200)), st.integers(0, 220), st.integers(0, 220))
def test_bits_of_any_range_are_those_that_were_added(numbers: set[int], first: int, count: int) -> None:
    kept = KeptMessages()
    for number in sorted(numbers, key=lambda number: (number % 7, number)):
        kept.add(number)
    wanted = {number - first for number in numbers if first <= number < first + count}
    assert {index for index in range(count) if kept.bits(first, count) >> index & 1} == wanted
    assert kept.bits(first, count) < 1 << count
    assert len(kept) == len(numbers)
