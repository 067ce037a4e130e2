"""The ledger list and its node: memory follows what is stored."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.metadata_io import MetadataNode, ledger_path
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import LedgerFencedError, NoSuchLedgerError, UnknownOutcomeError
from geminga.model.position import Position
from geminga.wire.managed_ledger import ManagedLedgerRecord, decode_managed_ledger_info
from support.worlds.ledger_world import NAME


def a_list(w, told, node=None):
    return StoredList(
        NAME,
        node or MetadataNode(),
        ManagedLedgerRecord(),
        metadata=w.store,
        ledgers=w.bookkeeper,
        fenced=lambda error: told.append("fenced"),
        forget=lambda ledger_id: told.append(ledger_id),
    )


async def stored(w):
    return decode_managed_ledger_info((await w.store.get(ledger_path(NAME))).value)


async def a_ledger(w):
    return await w.bookkeeper.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)


def test_empty_ledgers_are_deleted_only_behind_the_list_without_them(in_world):
    async def scenario(w):
        told = []
        ledgers = a_list(w, told)
        empty, full = await a_ledger(w), await a_ledger(w)
        ledgers.ledgers.append(LedgerInfo(empty.ledger_id, closed_ms=1))
        ledgers.ledgers.append(LedgerInfo(full.ledger_id, 3, 30, closed_ms=1))
        await ledgers.put(ledgers.ledgers.infos)
        ledgers.drop_empty()
        assert [info.ledger_id for info in ledgers.ledgers.infos] == [full.ledger_id]
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * 8)
        with pytest.raises(UnknownOutcomeError):
            await ledgers.put(ledgers.ledgers.infos)
        assert told == []
        await w.bookkeeper.open_ledger(empty.ledger_id)
        await ledgers.put(ledgers.ledgers.infos)
        assert told == [empty.ledger_id]
        with pytest.raises(NoSuchLedgerError):
            await w.bookkeeper.open_ledger(empty.ledger_id)
        assert [item.ledger_id for item in (await stored(w)).ledgers] == [full.ledger_id]

    in_world(scenario)


def test_properties_and_end_are_in_memory_only_when_stored(in_world):
    async def scenario(w):
        ledgers = a_list(w, [])
        await ledgers.put((), properties={"a": "1"})
        w.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * 8)
        with pytest.raises(UnknownOutcomeError):
            await ledgers.put((), properties={"a": "2"}, terminated=Position(3, 4))
        assert (ledgers.properties, ledgers.terminated_position) == ({"a": "1"}, None)
        await ledgers.put((), terminated=Position(3, 4))
        assert (ledgers.properties, ledgers.terminated_position) == ({"a": "1"}, Position(3, 4))
        record = await stored(w)
        assert (dict(record.properties), record.terminated) == ({"a": "1"}, Position(3, 4))

    in_world(scenario)


def test_another_owner_is_told_and_keeps_what_it_wrote(in_world):
    async def scenario(w):
        told = []
        mine, other = a_list(w, told), a_list(w, [])
        await mine.put((), properties={"of": "mine"})
        other = a_list(w, [], MetadataNode(version=(await w.store.get(ledger_path(NAME))).stat.version))
        await other.put((), properties={"of": "other"})
        with pytest.raises(LedgerFencedError):
            await mine.put((), properties={"of": "mine again"})
        assert told == ["fenced"]
        with pytest.raises(LedgerFencedError):
            await mine.delete_node()
        assert dict((await stored(w)).properties) == {"of": "other"}

    in_world(scenario)


def test_a_change_waits_for_the_one_before(in_world):
    async def scenario(w):
        ledgers = a_list(w, [])
        async with ledgers.lock():
            waiting = asyncio.ensure_future(ledgers.lock().acquire())
            await w.world.sleep(1)
            assert not waiting.done()
        assert await waiting

    in_world(scenario)


def test_properties_are_added_and_replaced_but_for_those_that_are_kept(in_world):
    async def scenario(w):
        ledgers = a_list(w, [])
        await ledgers.put([])
        await ledgers.add_properties({"a": "1", "own": "x"})
        await ledgers.add_properties({"a": "2", "b": "3"})
        assert dict((await stored(w)).properties) == ledgers.properties == {"a": "2", "b": "3", "own": "x"}
        await ledgers.set_properties({"c": "4"}, kept=("own", "absent"))
        assert dict((await stored(w)).properties) == ledgers.properties == {"c": "4", "own": "x"}

    in_world(scenario)


def test_claim_and_check_tell_that_another_owner_wrote_the_list(in_world):
    async def scenario(w):
        told = []
        ours = a_list(w, told)
        await ours.put([])
        await ours.claim()
        await ours.check()
        assert told == []
        theirs = a_list(w, [], MetadataNode(ours.version, ours.created_ms))
        await theirs.claim()
        for look in (ours.check, ours.claim, lambda: ours.add_properties({"a": "1"})):
            with pytest.raises(LedgerFencedError):
                await look()
        assert told == ["fenced"] * 3
        assert ours.properties == {}

    in_world(scenario)


def test_empty_ledgers_that_leave_are_not_readable_below_a_limit_either(in_world):
    async def scenario(w):
        ledgers = a_list(w, [])
        ledgers.ledgers.append(LedgerInfo(3, 2, 20, closed_ms=1))
        ledgers.ledgers.append(LedgerInfo(5, closed_ms=1))
        ledgers.extent.listed()
        ledgers.extent.limit(Position(3, 0))
        ledgers.drop_empty()
        assert [info.ledger_id for info in ledgers.extent.readable.infos] == [3]
        assert ledgers.extent.readable_position == (3, 0)

    in_world(scenario)
