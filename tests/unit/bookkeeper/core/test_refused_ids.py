"""Jumps over ids that bookies refuse."""

from __future__ import annotations

from geminga.bookkeeper.core.refused_ids import CALM_S, SKIP_MAX, RefusedIds


def test_each_refusal_jumps_twice_as_far_and_calm_begins_anew() -> None:
    ids = RefusedIds()
    assert ids.newest == -1
    jumps, ledger_id = [], 7
    for _ in range(5):
        ids.refused(ledger_id, now_s=0.0)
        jumps.append(ids.newest + 1 - ledger_id)
        ledger_id = ids.newest + 1
    assert jumps == [1, 2, 4, 8, 16]
    ids.refused(ledger_id, now_s=CALM_S + 1)
    assert ids.newest == ledger_id


def test_ledgers_that_were_made_before_the_jump_do_not_jump_again() -> None:
    ids = RefusedIds()
    for ledger_id in (10, 9, 10):
        ids.refused(ledger_id, now_s=0.0)
    assert ids.newest == 10
    for ledger_id in (12, 11):
        ids.refused(ledger_id, now_s=1.0)
    assert ids.newest == 13


def test_a_jump_is_bounded() -> None:
    ids = RefusedIds()
    for _ in range(40):
        ids.refused(ids.newest + 1, now_s=0.0)
    before = ids.newest
    ids.refused(before + 1, now_s=0.0)
    assert ids.newest - before == SKIP_MAX
