"""A log is read forward past what can not be read."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.replaying import OUT_OF_REACH_MAX, replay
from geminga.managed_ledger.rules.unreadable import SKIPPED_PROPERTY, Skipped, skipped_of, with_skipped
from geminga.model.errors import CorruptionError, DiskIOError, LedgerClosedError
from geminga.model.position import EARLIEST


async def story(ml, first=EARLIEST) -> list[object]:
    """What a replay tells, in order: payloads and gaps."""
    told: list[object] = []
    await replay(
        ml,
        first,
        lambda entries: told.extend(entry.data.decode() for entry in entries),
        lambda gap: told.append((gap.ledger_id, gap.first, gap.last)),
        entries_max=4,
        bytes_max=1 << 20,
    )
    return told


def test_what_is_before_and_behind_a_gap_is_told_in_order(in_world):
    async def scenario(w):
        ml, positions = await w.filled(35)
        second = positions[10].ledger_id
        del w.bookie._ledgers[second].entries[5]
        told = await story(ml)
        # Four at a time: those of the read that failed are in the gap.
        want = [*(f"m{i}" for i in range(14)), (second, 4, 9), *(f"m{i}" for i in range(20, 35))]
        assert told == want
        assert list(ml.stored.gaps) == [second]
        assert not await w.factory.is_closed_again(ml)

    in_world(scenario)


def test_no_more_than_some_ledgers_are_waited_for_where_all_are_out_of_reach(in_world):
    async def scenario(w):
        ml, _ = await w.filled(95)
        ml = await w.reopen()
        w.bookie.read_error = DiskIOError("Input/output error")
        calls = w.bookie.read_calls
        told = await story(ml)
        assert len(told) == len(ml.ledgers) == 10
        assert w.bookie.read_calls - calls == OUT_OF_REACH_MAX
        w.bookie.read_error = None
        assert await w.factory.is_closed_again(ml)
        await ml.close()
        with pytest.raises(LedgerClosedError):
            await story(ml)

    in_world(scenario)


def test_what_was_given_up_is_read_back_the_last_hundred_of_it():
    properties = {"other": "1"}
    for number in range(101):
        properties = with_skipped(properties, [Skipped(number, 2, 3, 4, 5, "x" * 1000)])
    found = skipped_of(properties)
    assert (properties["other"], len(found), found[0].ledger_id) == ("1", 100, 1)
    assert found[-1] == Skipped(100, 2, 3, 4, 5, "x" * 200)
    for damaged in ("[", "[1]", '{"a": 1}', '[["a"]]'):
        with pytest.raises(CorruptionError, match="skipped"):
            skipped_of({SKIPPED_PROPERTY: damaged})
