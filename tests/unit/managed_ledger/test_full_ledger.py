"""A full ledger while no other can be made, or listed: it goes on, and is left once one is there."""

from __future__ import annotations

import asyncio

import pytest

from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.log.appender import MAKING_PATIENCE_S, Appender
from geminga.managed_ledger.log.new_ledgers import LEDGERS_ALWAYS, NewLedgers
from geminga.managed_ledger.log.stored_list import LAST_ROOM_BYTES, ROOM_BYTES_MIN, StoredList
from geminga.managed_ledger.shared.metadata_io import ledger_path as list_path
from geminga.metadata.ports import MUST_NOT_EXIST, SessionEvent
from geminga.model.errors import DiskFullError, LedgerClosedError, MetadataError
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.model.position import EARLIEST
from geminga.runtime import spawn
from geminga.wire.bookkeeper.ledger_path import ledger_path
from geminga.wire.managed_ledger import LedgerRecord, ManagedLedgerRecord, encode_managed_ledger_info
from support.worlds.ledger_world import NAME, append, read_all

COVERED = (Appender, NewLedgers, StoredList)
TEN = ManagedLedgerConfig(max_entries_per_ledger=10, min_rollover_minutes=0)
OUTAGE_MS = 60_000


async def everything(log) -> list[bytes]:
    return await read_all(log.new_non_durable_cursor("reader", EARLIEST))


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.mark.parametrize("lost", ["session", "bookies"])
def test_it_takes_entries_while_no_ledger_can_be_made_and_is_left_afterwards(in_world, lost):
    async def scenario(w):
        ml = await w.open()
        await append(ml, numbered(0, 5))
        if lost == "session":
            w.store.expire_session(OUTAGE_MS)
        else:
            w.bookie.is_writable = False
        results = []
        for first in range(5, 3005, 100):
            results += await append(ml, numbered(first, first + 100))
            await w.world.sleep(0.05)
        assert [result.error for result in results if result.error is not None] == []
        assert len(ml.ledgers) == 1
        w.bookie.is_writable = True
        await w.world.sleep(OUTAGE_MS / 1000)
        await append(ml, numbered(3005, 5005))
        await append(ml, numbered(5005, 5010))
        assert len(ml.ledgers) > 1
        assert not ml.tenure.is_fenced
        for log in (ml, await w.reopen()):
            assert await everything(log) == numbered(0, 5010)

    in_world(scenario, TEN)


def test_it_is_not_left_while_the_metadata_is_known_to_be_away(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, numbered(0, 10))
        w.store._watches.notify_session(SessionEvent.CONNECTION_LOST)
        await w.world.sleep(0.01)
        # No append waits: not even for as long as a ledger is waited for.
        w.faults.delay_ms_max = 100_000
        began_s = w.world.now
        await append(ml, numbered(10, 40))
        assert w.world.now - began_s < MAKING_PATIENCE_S / 2
        w.faults.delay_ms_max = 0
        assert len(ml.ledgers) == 1
        w.store._watches.notify_session(SessionEvent.RECONNECTED)
        await w.world.sleep(0.01)
        await append(ml, numbered(40, 2000))
        await append(ml, numbered(2000, 2001))
        assert len(ml.ledgers) > 1
        assert await everything(ml) == numbered(0, 2001)

    in_world(scenario, TEN)


def test_appends_wait_a_second_at_most_for_a_ledger_that_is_slow_to_be_made(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, numbered(0, 10))
        w.faults.delay_ms_max = 100_000
        began_s = w.world.now
        waiting = [spawn(append(ml, numbered(at, at + 1)), name="append") for at in range(10, 20)]
        await asyncio.wait(waiting)
        assert MAKING_PATIENCE_S <= w.world.now - began_s < MAKING_PATIENCE_S + 0.5
        assert len(ml.ledgers) == 1
        await append(ml, numbered(20, 30))
        # It is turned to once it is there, without another append.
        await w.world.sleep(500)
        assert [info.entries for info in ml.ledgers.infos] == [30, 0]
        w.faults.delay_ms_max = 0
        await append(ml, numbered(30, 31))
        assert await everything(await w.reopen()) == numbered(0, 31)

    in_world(scenario, TEN)


def test_appends_wait_no_longer_for_the_list_than_for_a_ledger(in_world):
    """A trim of many ledgers has it while each of them is deleted."""

    async def scenario(w):
        ml = await w.open(retention_ms=0)
        cursor = await ml.open_cursor("sub", initial=EARLIEST)
        for first in range(0, 300, 10):
            await append(ml, numbered(first, first + 10))
        await append(ml, numbered(300, 309))
        w.faults.delay_ms_max = 2000
        cursor.acknowledge_cumulative(ml.extent.last_confirmed_position)
        while len(ml.ledgers) > 1:
            await w.world.sleep(0.1)  # until the list is written
        trimming_from_s = w.world.now
        longest_s = 0.0
        for first in range(309, 329):
            began_s = w.world.now
            results = await append(ml, numbered(first, first + 1))
            assert [result.error for result in results] == [None]
            longest_s = max(longest_s, w.world.now - began_s)
        assert longest_s < MAKING_PATIENCE_S + 0.5
        assert w.world.now - trimming_from_s < 5, "it is trimming still"
        w.faults.delay_ms_max = 0
        await w.world.sleep(100)
        await append(ml, numbered(329, 400))
        assert len(ml.ledgers) > 1, "it is left all the same"
        for log in (ml, await w.reopen()):
            assert (await everything(log))[-91:] == numbered(309, 400)

    in_world(scenario, TEN)


def test_a_write_that_fails_while_the_next_ledger_is_made_ends_the_full_one(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, numbered(0, 10))
        w.faults.delay_ms_max = 10_000
        await append(ml, [b"10"])
        w.bookie.add_error = DiskFullError("full")
        (failed,) = await append(ml, [b"lost"])
        assert isinstance(failed.error, DiskFullError)
        w.bookie.add_error = None
        (result,) = await append(ml, [b"11"])
        assert result.error is None
        assert [info.entries for info in ml.ledgers.infos] == [11, 1]
        assert await everything(await w.reopen()) == numbered(0, 12)

    in_world(scenario, TEN)


def test_a_ledger_that_was_made_for_a_log_that_closes_is_deleted(in_world):
    async def scenario(w):
        ml = await w.open()
        await append(ml, numbered(0, 10))
        (info,) = ml.ledgers.infos
        w.faults.delay_ms_max = 1000
        waiting = spawn(append(ml, [b"10"]), name="append")
        await w.world.sleep(0.01)
        await ml.close()
        (result,) = await waiting
        assert isinstance(result.error, LedgerClosedError)
        w.faults.delay_ms_max = 0
        await w.world.sleep(10)
        assert await w.store.exists(ledger_path(info.ledger_id))
        assert not await w.store.exists(ledger_path(info.ledger_id + 1))
        assert await everything(await w.reopen()) == numbered(0, 10)

    in_world(scenario, TEN)


#: No ledger that is made here has such an id.
FOREIGN_ID = 0


def list_of(texts: list[str], text_chars: int) -> bytes:
    """Ledgers that were closed long ago, with texts that hardly become smaller when they are compressed."""
    return encode_managed_ledger_info(
        ManagedLedgerRecord(
            tuple(
                LedgerRecord(FOREIGN_ID + number, 1, 1, 1, b"", (("k", text[:text_chars]),))
                for number, text in enumerate(texts)
            )
        )
    )


async def with_list(w, room_bytes: int):
    """A managed ledger whose list has about so much room left in its node."""
    texts = [w.runtime.rng.token(1024) for _ in range(LEDGERS_ALWAYS)]
    chars = 0
    for step in (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        if len(list_of(texts, chars + step)) <= METADATA_VALUE_BYTES_MAX - room_bytes:
            chars += step
    value = list_of(texts, chars)
    assert 0 <= METADATA_VALUE_BYTES_MAX - len(value) - room_bytes < 4096
    for _ in texts:
        await w.store.put("/ledgers/idgen/ID-", b"", expected_version=MUST_NOT_EXIST, sequential=True)
    await w.store.put(list_path(NAME), value, expected_version=MUST_NOT_EXIST)
    return await w.open()


def test_it_goes_on_where_its_list_has_no_room_for_another_ledger(in_world):
    """Such a list was refused, nothing could be published, and each attempt left a ledger that nobody named."""

    async def scenario(w):
        ml = await with_list(w, ROOM_BYTES_MIN - 8192)
        results = []
        for first in range(0, 5000, 100):
            results += await append(ml, numbered(first, first + 100))
            await w.world.sleep(0.3)
        assert [result.error for result in results if result.error is not None] == []
        assert len(ml.ledgers) == LEDGERS_ALWAYS + 1
        assert len(await w.bookkeeper.ledger_ids()) == 1
        # After a restart there is room for the ledger without which nothing could be written.
        again = await w.reopen()
        assert (await append(again, [b"x"]))[0].error is None
        assert len(again.ledgers) == LEDGERS_ALWAYS + 2

    in_world(scenario, TEN)


def test_none_is_made_where_the_list_has_no_room_at_all(in_world):
    async def scenario(w):
        ml = await with_list(w, LAST_ROOM_BYTES - 8192)
        for _ in range(10):
            (result,) = await append(ml, [b"x"])
            assert isinstance(result.error, MetadataError)
            assert "as long as a metadata node may be" in str(result.error)
            await w.world.sleep(0.3)
        assert not await w.bookkeeper.ledger_ids()
        # There is room again once old ledgers go.
        ml.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await ml.trimmer.trim()
        assert (await append(ml, [b"x"]))[0].error is None

    in_world(scenario, TEN)


def test_none_is_offloaded_where_the_list_has_no_room(in_world):
    async def scenario(w):
        ml = await with_list(w, ROOM_BYTES_MIN - 8192)
        with pytest.raises(MetadataError, match="no room to say"):
            await ml.stored.put_context(FOREIGN_ID + 1, b"\x08\x01\x10\x01")
        assert ml.ledgers.find(FOREIGN_ID + 1).offload_context == b""

    in_world(scenario, TEN)
