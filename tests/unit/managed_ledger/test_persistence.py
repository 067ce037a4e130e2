"""Quorums of new ledgers, and how often cursors are written: what a policy sets, and what it leaves."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga.bookkeeper import MemoryBookie
from geminga.managed_ledger import ManagedLedgerConfig, Persistence
from geminga.managed_ledger.shared.services import groups_of, placed_within
from geminga.model.errors import ConfigurationError, DiskFullError, DiskIOError, NotEnoughBookiesError
from geminga.model.position import EARLIEST
from geminga.wire.bookkeeper.isolation import IN_NO_GROUP, IsolationGroups
from support.worlds.ledger_world import NAME, acknowledge, append, read_all

WIDE = Persistence(3, 3, 2, 2.0)
MINE, NOBODY = IsolationGroups(("mine",)), IsolationGroups(("nobody",))


def with_bookies(w, count=3):
    """So many bookies, for this process and those after it."""
    for number in range(1, count):
        w.bookies[f"b{number}"] = MemoryBookie()
    w.new_process()


async def quorums(w, ledger_id):
    metadata = (await w.bookkeeper.read_ledger(ledger_id)).metadata
    return metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum


async def refusal_behind_a_full_ledger(w, ml, persistence, **groups):
    """Why an append is refused when the ledger in which that was set is full; what it has can be read."""
    stored = await w.fill(ml, 5)
    ml.stored_as.set(persistence, **groups)
    stored += await w.fill(ml, 5)
    (refused,) = await append(ml, [b"x"])
    assert isinstance(refused.error, NotEnoughBookiesError)
    assert [e.data for e in await ml.reader.read(stored)] == [b"m%d" % i for i in range(5)] * 2
    return str(refused.error)


async def written_as_often(w, mark_deletes_per_s, *, entries):
    """A cursor before so many entries, and their positions."""
    ml = await w.open()
    ml.stored_as.set(Persistence(1, 1, 1, mark_deletes_per_s))
    cursor = await ml.open_cursor("s", initial=EARLIEST)
    return cursor, await w.fill(ml, entries)


def test_new_ledgers_have_the_policy_and_the_open_one_keeps_its_own(in_world):
    async def scenario(w):
        with_bookies(w)
        ml = await w.open()
        first = (await w.fill(ml, 5))[0].ledger_id
        ml.stored_as.set(WIDE)
        positions = await w.fill(ml, 10)
        assert [p.ledger_id == first for p in positions] == [True] * 5 + [False] * 5
        second = positions[-1].ledger_id
        ml.stored_as.set(None)
        third = (await w.fill(ml, 10))[-1].ledger_id
        assert [await quorums(w, i) for i in (first, second, third)] == [(1, 1, 1), (3, 3, 2), (1, 1, 1)]

    in_world(scenario)


def test_ledgers_of_cursors_have_the_policy_too(in_world):
    async def scenario(w):
        with_bookies(w)
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 3)
        ml.stored_as.set(WIDE)
        await acknowledge(cursor, positions[:1])
        assert await quorums(w, cursor.store.ledger_id) == (3, 3, 2)
        # An answered acknowledgment survives any one bookie.
        for name, bookie in w.bookies.items():
            bookie.read_error = bookie.fence_error = DiskIOError(f"{name} is gone")
            again = await w.reopen()
            assert again.cursors["s"].mark_delete_position == positions[0], name
            bookie.read_error = bookie.fence_error = None

    in_world(scenario)


def test_more_bookies_than_there_are_refuse_appends_until_there_are_enough(in_world):
    async def scenario(w):
        with_bookies(w)
        w.bookies["b2"].is_writable = False
        ml = await w.open()
        assert "need 3" in await refusal_behind_a_full_ledger(w, ml, WIDE)
        w.bookies["b2"].is_writable = True
        await w.world.sleep(0.3)
        (position,) = await w.fill(ml, 1)
        assert await quorums(w, position.ledger_id) == (3, 3, 2)

    in_world(scenario)


def test_another_policy_ends_the_lack_of_bookies(in_world):
    async def scenario(w):
        ml = await w.open()
        ml.stored_as.set(WIDE)
        assert isinstance((await append(ml, [b"x"]))[0].error, NotEnoughBookiesError)
        ml.stored_as.set(Persistence(1, 1, 1, 2.0))
        await w.world.sleep(0.3)
        (position,) = await w.fill(ml, 1)
        assert await quorums(w, position.ledger_id) == (1, 1, 1)
        assert [info.entries for info in (await w.reopen()).ledgers.infos] == [1]

    in_world(scenario)


def test_a_cursor_whose_ledger_has_too_few_bookies_is_kept_in_its_node(in_world):
    async def scenario(w):
        ml, cursor = await w.subscribed()
        positions = await w.fill(ml, 4)
        ml.stored_as.set(WIDE)
        assert await acknowledge(cursor, [positions[0], positions[2]]) is None
        again = (await w.reopen()).cursors["s"]
        assert (again.mark_delete_position, again.backlog_count) == (positions[0], 2)

    in_world(scenario)


def test_a_list_of_ledgers_with_different_quorums_is_recovered(in_world):
    async def scenario(w):
        with_bookies(w, 4)
        ml = await w.open()
        for persistence in (None, WIDE, Persistence(4, 2, 2, 0.0), Persistence(2, 2, 1, 1.0)):
            ml.stored_as.set(persistence)
            await w.fill(ml, 10)
        await w.fill(ml, 3)
        again = await w.reopen()
        assert [info.entries for info in again.ledgers.infos] == [10, 10, 10, 10, 3]
        found = [await quorums(w, info.ledger_id) for info in again.ledgers.infos]
        assert found == [(1, 1, 1), (3, 3, 2), (4, 2, 2), (2, 2, 1), (2, 2, 1)]
        cursor = await again.open_cursor("s", initial=EARLIEST)
        assert len(await read_all(cursor)) == 43

    in_world(scenario)


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.05, 0.1, 0.2])
def test_a_policy_that_comes_in_the_middle_of_a_rollover_is_taken_whole_or_not_at_all(in_world, delay_s):
    async def scenario(w):
        with_bookies(w)
        ml, _ = await w.filled(10)
        w.faults.delay_ms_max = 100
        rolling = asyncio.ensure_future(w.fill(ml, 10))
        await w.world.sleep(delay_s)
        ml.stored_as.set(WIDE)
        positions = await rolling
        assert await quorums(w, positions[0].ledger_id) in [(1, 1, 1), (3, 3, 2)]
        assert await quorums(w, (await w.fill(ml, 1))[0].ledger_id) == (3, 3, 2)

    in_world(scenario)


def test_a_low_rate_writes_a_cursor_seldom_and_answers_at_once_all_the_same(in_world):
    async def scenario(w):
        cursor, positions = await written_as_often(w, 0.5, entries=9)
        await acknowledge(cursor, positions[:1])
        adds = w.bookie.add_calls
        cursor.acknowledge(positions[1:2])
        await w.world.sleep(0.1)
        assert w.bookie.add_calls == adds + 1, "the first in a while is written at once"
        for position in positions[2:6]:
            cursor.acknowledge([position])
            await w.world.sleep(0.4)
        assert w.bookie.add_calls == adds + 1
        await w.world.sleep(0.5)
        assert w.bookie.add_calls == adds + 2
        cursor.acknowledge(positions[6:7])
        assert await acknowledge(cursor, positions[7:8]) is None
        assert w.bookie.add_calls == adds + 3
        assert (await w.reopen()).cursors["s"].mark_delete_position == positions[7]

    in_world(scenario)


def test_no_rate_writes_every_turn_of_acknowledgments(in_world):
    async def scenario(w):
        cursor, positions = await written_as_often(w, 0, entries=9)
        await acknowledge(cursor, positions[:1])
        adds = w.bookie.add_calls
        for position in positions[1:6]:
            cursor.acknowledge([position])
            await w.world.sleep(0.01)
        assert w.bookie.add_calls == adds + 5

    in_world(scenario)


def test_no_rate_does_not_try_again_at_once_what_failed(in_world):
    async def scenario(w):
        # Neither the ledger nor the node takes it.
        cursor, positions = await written_as_often(w, 0, entries=9)
        await acknowledge(cursor, [positions[1]])
        w.bookie.add_error = DiskFullError("full")
        adds = w.bookie.add_calls
        cursor.acknowledge(positions[3:4])
        await w.world.sleep(10)
        assert 10 <= w.bookie.add_calls - adds <= 45
        w.bookie.add_error = None
        await w.world.sleep(1)
        assert (await w.reopen()).cursors["s"].backlog_count == 7

    in_world(scenario, ManagedLedgerConfig(max_entries_per_ledger=10, min_rollover_minutes=0, max_ranges_in_metadata=0))


def test_however_low_the_rate_a_cursor_is_written_once_in_a_minute(in_world):
    async def scenario(w):
        cursor, positions = await written_as_often(w, 0.0001, entries=3)
        cursor.acknowledge(positions[:1])
        await w.world.sleep(1)
        cursor.acknowledge(positions[1:2])
        await w.world.sleep(58)
        assert cursor.store.persisted_mark_delete == positions[0]
        await w.world.sleep(2)
        assert cursor.store.persisted_mark_delete == positions[1]

    in_world(scenario)


def test_each_managed_ledger_has_its_own_rate(in_world):
    async def scenario(w):
        slow, quick = await w.open(), await w.open(NAME + "2")
        slow.stored_as.set(Persistence(1, 1, 1, 0.1))
        quick.stored_as.set(Persistence(1, 1, 1, 10))
        cursors = [await ml.open_cursor("s", initial=EARLIEST) for ml in (slow, quick)]
        positions = [await w.fill(ml, 9) for ml in (slow, quick)]
        for number in range(8):
            for cursor, its in zip(cursors, positions, strict=True):
                cursor.acknowledge(its[number : number + 1])
            await w.world.sleep(0.5)
        persisted = [cursor.store.persisted_mark_delete for cursor in cursors]
        assert persisted == [positions[0][0], positions[1][7]]
        await w.world.sleep(10)
        assert cursors[0].store.persisted_mark_delete == positions[0][7]

    in_world(scenario)


@pytest.mark.parametrize(
    "values",
    [
        (0, 0, 0, 1.0),
        (1, 2, 1, 1.0),
        (3, 2, 3, 1.0),
        (3, 2, 0, 1.0),
        (1, 1, 1, -0.5),
        (1, 1, 1, float("nan")),
        (1, 1, 1, float("inf")),
    ],
)
def test_what_no_ledger_can_be_made_with_is_refused(values):
    with pytest.raises(ValueError, match=r"E >= Qw >= Qa|mark-deletes"):
        Persistence(*values)


def test_configured_quorums_that_do_not_fit_are_named():
    config = ManagedLedgerConfig(ensemble_size=2, write_quorum=3, ack_quorum=1)
    with pytest.raises(ConfigurationError, match=r"managedLedgerDefaultEnsembleSize.*E >= Qw >= Qa"):
        config.persistence()


async def two_groups(w):
    with_bookies(w)
    value = {"mine": {"b1": {}, "b2": {}}, "other": {"b": {}}}
    await w.store.put("/bookies", json.dumps(value).encode(), expected_version=None)


async def ensembles(w, *ledger_ids):
    return [(await w.bookkeeper.read_ledger(one)).metadata.last_fragment.ensemble for one in ledger_ids]


def test_new_ledgers_are_on_bookies_of_their_groups_and_the_open_one_stays_where_it_is(in_world):
    async def scenario(w):
        await two_groups(w)
        ml, cursor = await w.subscribed()
        first = await w.fill(ml, 3)
        ml.stored_as.set(None, groups=MINE)
        assert ml.persistence.groups == MINE
        positions = await w.fill(ml, 12)
        assert [p.ledger_id for p in positions[:2]] == [first[0].ledger_id] * 2
        for ensemble in await ensembles(w, *sorted({p.ledger_id for p in positions[2:]})):
            assert {*ensemble} <= {"b1", "b2"}
        await acknowledge(cursor, [positions[1], positions[5]])
        assert {*(await ensembles(w, cursor.store.ledger_id))[0]} <= {"b1", "b2"}
        ml.stored_as.set(WIDE)
        assert ml.persistence == WIDE, "groups stay although the policy is gone"

    in_world(scenario)


def test_a_full_ledger_does_not_go_on_where_it_may_not_be_any_more(in_world):
    async def scenario(w):
        await two_groups(w)
        ml = await w.open()
        assert "left out by isolation groups" in await refusal_behind_a_full_ledger(w, ml, None, groups=NOBODY)
        ml.stored_as.set(None, groups=MINE)
        await w.world.sleep(0.3)
        (position,) = await w.fill(ml, 1)
        assert {*(await ensembles(w, position.ledger_id))[0]} <= {"b1", "b2"}

    in_world(scenario)


def test_groups_in_custom_metadata_are_those_that_hold_now():
    before = placed_within({"a": b"b"}, MINE)
    assert groups_of(before) == MINE
    assert groups_of(placed_within(before, NOBODY)) == NOBODY
    assert groups_of(placed_within(before, IN_NO_GROUP)) == IN_NO_GROUP
    assert placed_within(before, None) == {"a": b"b"}
    assert groups_of({"a": b"b"}) is None
