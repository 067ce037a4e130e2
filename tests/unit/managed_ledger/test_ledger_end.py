"""Where a ledger ends whose last write failed."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.log.ledger_end import LedgerEnd, close_quietly
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.metadata.cas import CAS_ATTEMPTS_MAX
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import DiskIOError, LedgerFencedError, MetadataError


class Log:
    name = "a log"

    def __init__(self):
        self.told = []

    def on_fenced(self, error):
        self.told.append("fenced")

    def on_recovered(self, info):
        self.told.append(info.entries)


async def failed(w, confirmed=2, tried=3):
    """A ledger whose last append failed, though the bookie has it."""
    ledger = await w.bookkeeper.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    answers = []
    for number in range(tried):
        if number == confirmed:
            w.bookie.add_error, w.bookie.stores_before_error = DiskIOError("lost"), True
        ledger.append([b"x"], lambda first, count, error: answers.append(error))
        await w.world.sleep(0.01)
    w.bookie.add_error, w.bookie.stores_before_error = None, False
    assert [error is None for error in answers] == [True] * confirmed + [False] * (tried - confirmed)
    return ledger, LedgerInfo(ledger.ledger_id, confirmed, confirmed)


def test_end_is_what_was_confirmed_if_its_writer_can_close_it(in_world):
    async def scenario(w):
        ledger, info = await failed(w)
        log = Log()
        assert await LedgerEnd(log, w.bookkeeper).fix(ledger, info) is ledger
        assert (info.entries, log.told) == (2, [])
        assert (await w.bookkeeper.open_ledger(ledger.ledger_id)).last_add_confirmed == 1

    in_world(scenario)


def test_end_is_what_recovery_finds_if_its_writer_can_not(in_world):
    async def scenario(w):
        ledger, info = await failed(w)
        log = Log()
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
        end = LedgerEnd(log, w.bookkeeper)
        found = None
        while found is None:
            try:
                found = await end.fix(ledger, info)
            except MetadataError:
                assert log.told == [], "nothing is known of a ledger whose recovery was cut short"
        assert (found.last_add_confirmed, info.entries, info.size_bytes, log.told) == (2, 3, 3, [3])
        assert list(await found.read_entries(0, 2)) == [b"x"] * 3

    in_world(scenario)


def test_end_is_not_ours_to_say_if_another_owner_fixed_it(in_world):
    async def scenario(w):
        ledger, info = await failed(w)
        await w.bookkeeper.open_ledger(ledger.ledger_id, recover=True)
        log = Log()
        with pytest.raises(LedgerFencedError):
            await LedgerEnd(log, w.bookkeeper).fix(ledger, info)
        assert log.told == ["fenced"]

    in_world(scenario)


def test_closing_a_ledger_that_is_gone_is_fine(in_world):
    async def scenario(w):
        ledger = await w.bookkeeper.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await w.bookkeeper.delete_ledger(ledger.ledger_id)
        await close_quietly(ledger)

    in_world(scenario)
