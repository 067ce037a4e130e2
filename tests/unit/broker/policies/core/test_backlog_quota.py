"""When a quota by size is used up, and how far an eviction goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.policies.core.backlog_quota import RoomLeft, eviction_target, position_leaving
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.model.position import Position


def test_eviction_leaves_nine_tenths() -> None:
    assert eviction_target(1000) == 900


def test_room_is_measured_at_first_and_when_it_may_be_used_up() -> None:
    room = RoomLeft(100)
    assert room.published(1)
    assert not room.measured(40)
    assert not room.published(59)
    assert room.published(1)
    assert room.measured(100)
    assert not room.measured(99)


@st.composite
def ledgers(draw: st.DrawFn) -> list[LedgerInfo]:
    infos = []
    for ledger_id in range(draw(st.integers(1, 5))):
        entries = draw(st.integers(0, 6))
        infos.append(LedgerInfo(ledger_id * 3, entries, entries and draw(st.integers(entries, entries * 100)), 1))
    return infos


@given(ledgers(), st.integers(0, 1500))
def test_eviction_position_leaves_at_most_the_target_and_not_one_entry_less(infos, target) -> None:
    def size_behind(position: Position) -> float:
        """The oracle: the mean size of each entry behind the position, one by one."""
        return sum(
            info.size_bytes / info.entries
            for info in infos
            for entry in range(info.entries)
            if (info.ledger_id, entry) > position
        )

    everything = [Position(info.ledger_id, entry) for info in infos for entry in range(info.entries)]
    position = position_leaving(infos, target)
    if position is None:
        assert size_behind(Position(-1, -1)) <= target + 1e-6
        return
    assert position in everything
    assert size_behind(position) <= target + 1e-6
    before = everything[everything.index(position) - 1] if everything[0] != position else Position(-1, -1)
    assert size_behind(before) > target - 1e-6
