"""Reads that do not wait for one replica: late answers, sticky replicas, bookies out of reach, and what may be read."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper import BookKeeperConfig, LedgerHandle
from geminga.bookkeeper.read_op import SPECULATIVE_CALLS_MAX
from geminga.bookkeeper.replicas import LATE_S
from geminga.model.errors import NoSuchEntryError, StorageError
from geminga.runtime import delay
from support.worlds.ledgers import Appends, Cluster, payloads, run_cluster, turn

COUNT = 9
#: BookKeeper's: ``speculativeReadTimeout``.
LATE_MS = 2000


async def filled(cluster: Cluster, quorums: tuple[int, int, int], config: BookKeeperConfig | None = None):
    size, write, ack = quorums
    client = cluster.client(config=config)
    handle = await client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
    assert await Appends(handle).append_and_wait(*payloads(0, COUNT)) is None
    await turn(2)
    return handle


def start_reading(handle: LedgerHandle, first: int = 0, last: int = COUNT - 1, bytes_max: int | None = None):
    results: list[object] = []
    handle.read(first, last, results.append, bytes_max=bytes_max)
    return results


def first_of(cluster: Cluster, handle: LedgerHandle) -> str:
    """Who is asked first for entry 0."""
    (name,) = [name for name, bookie in cluster.bookies.items() if bookie.read_calls]
    return name


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 2, 2)])
def test_replica_that_hangs_holds_nobody_up_and_its_late_answer_means_nothing(quorums):
    async def main(cluster: Cluster):
        handle = await filled(cluster, quorums)
        hanging = handle.metadata.last_fragment.ensemble[handle.ledger_id % 3]
        cluster.bookies[hanging].holds_replies = True
        results = start_reading(handle)
        await delay(LATE_MS - 100)
        assert results == []
        await delay(200)
        assert results == [payloads(0, COUNT)]
        cluster.bookies[hanging].corrupt(handle.ledger_id, 0)
        cluster.bookies[hanging].release()
        await turn(2)
        assert len(results) == 1

    run_cluster(main)


def test_read_that_is_done_leaves_no_timer_of_a_late_answer():
    """Else what was read stays in memory for so long."""

    def timers() -> int:
        loop = asyncio.get_running_loop()
        return sum(1 for due in loop._scheduled if not due.timer.cancelled())  # type: ignore[attr-defined]

    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2))
        await delay(10 * LATE_MS)
        before = timers()
        for bookie in cluster.bookies.values():
            bookie.holds_replies = True
        reads = [start_reading(handle) for _ in range(5)]
        assert timers() == before + 5
        for bookie in cluster.bookies.values():
            bookie.release()
        await turn(2)
        assert reads == [[payloads(0, COUNT)]] * 5
        assert timers() == before

    run_cluster(main)


def test_each_replica_is_asked_once_however_long_it_takes():
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2))
        for bookie in cluster.bookies.values():
            bookie.holds_replies = True
        results = start_reading(handle)
        await delay(10 * LATE_MS)
        assert [bookie.read_calls for bookie in cluster.bookies.values()] == [1, 1, 1]
        assert results == []
        # Whoever comes first is taken.
        cluster.bookies["b2"].release()
        await turn(2)
        assert results == [payloads(0, COUNT)]

    run_cluster(main)


def test_reads_keep_to_one_bookie_until_it_fails_or_is_late():
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2))

        async def asked(wait_ms: float = 0) -> list[str]:
            before = {name: bookie.read_calls for name, bookie in cluster.bookies.items()}
            results = start_reading(handle, 2, 4)
            await delay(wait_ms)
            await turn(3)
            assert results == [payloads(2, 3)]
            return [name for name, bookie in cluster.bookies.items() if bookie.read_calls > before[name]]

        (first,) = await asked()
        assert await asked() == [first]
        assert first == handle.metadata.last_fragment.ensemble[handle.ledger_id % 3]
        cluster.bookies[first].read_error = StorageError("not now")
        (second,) = set(await asked()) - {first}
        cluster.bookies[first].read_error = None
        assert await asked() == [second], "it went back to the one that failed"
        cluster.bookies[second].holds_replies = True
        (third,) = set(await asked(LATE_MS + 100)) - {second}
        cluster.bookies[second].release()
        assert await asked() == [third]

    run_cluster(main)


def test_bookie_out_of_reach_is_asked_last():
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2))
        ensemble = handle.metadata.last_fragment.ensemble
        down = ensemble[handle.ledger_id % 3]
        cluster.bookies[down].go_down(StorageError("down"))
        results = start_reading(handle)
        await turn(2)
        assert results == [payloads(0, COUNT)]
        assert cluster.bookies[down].read_calls == 0
        # With all others gone it is asked all the same: it may be there.
        for name in ensemble:
            if name != down:
                cluster.bookies[name].forget_ledger(handle.ledger_id)
        cluster.bookies[down].fail(None)
        results = start_reading(handle)
        await turn(6)
        assert results == [payloads(0, COUNT)]

    run_cluster(main)


@pytest.mark.parametrize("quorums", [(3, 2, 2), (3, 3, 2)])
def test_bookie_that_was_late_is_asked_last_for_a_while_by_whoever_reads(quorums):
    async def main(cluster: Cluster):
        handle = await filled(cluster, quorums)
        await handle.close()
        hanging = handle.metadata.last_fragment.ensemble[0]
        cluster.bookies[hanging].holds_replies = True
        client, loop = cluster.client(), asyncio.get_running_loop()

        async def read_all() -> float:
            """Entry by entry, by who opens the ledger anew; how long that took."""
            began_s = loop.time()
            for entry_id in range(COUNT):
                reader = await client.open_ledger(handle.ledger_id)
                (payload,) = await reader.read_entries(entry_id, entry_id)
                assert [payload] == payloads(entry_id, 1)
            return loop.time() - began_s

        assert LATE_MS / 1000 <= await read_all() < 1.1 * LATE_MS / 1000, "it was waited for more than once"
        cluster.bookies[hanging].release()
        calls = cluster.bookies[hanging].read_calls
        await read_all()
        assert cluster.bookies[hanging].read_calls == calls
        await delay(LATE_S * 1000)
        await read_all()
        assert cluster.bookies[hanging].read_calls > calls, "nobody asks it any more"

    run_cluster(main)


def test_bookie_whose_error_came_late_is_asked_last_as_well_without_speculative_reads():
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 2, 2), BookKeeperConfig(speculative_read_timeout_ms=0))
        hanging = cluster.bookies[handle.metadata.last_fragment.ensemble[0]]
        hanging.holds_replies, hanging.read_error = True, StorageError("no answer")
        results = start_reading(handle, 0, 0)
        await delay(5000)
        assert results == []
        hanging.release()
        await turn(3)
        assert results == [payloads(0, 1)]
        hanging.holds_replies = True
        assert [await handle.read_entries(3, 3), hanging.read_calls] == [payloads(3, 1), 1]

    run_cluster(main)


@pytest.mark.parametrize("config", [BookKeeperConfig(speculative_read_timeout_ms=0), BookKeeperConfig()])
def test_speculative_reads_can_be_switched_off(config):
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2), config)
        for bookie in cluster.bookies.values():
            bookie.holds_replies = True
        start_reading(handle)
        await delay(10 * LATE_MS)
        calls = sum(bookie.read_calls for bookie in cluster.bookies.values())
        assert calls == (3 if config.speculative_read_timeout_ms else 1)

    run_cluster(main)


def test_without_sticky_reads_the_replicas_take_turns():
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2), BookKeeperConfig(has_sticky_reads=False))
        for first in range(3):
            start_reading(handle, first, first + 3)
        await turn(3)
        assert [bookie.read_calls for bookie in cluster.bookies.values()] == [1, 1, 1]

    run_cluster(main)


def test_slow_bookies_are_not_asked_again_without_end():
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2))
        for bookie in cluster.bookies.values():
            bookie.holds_replies = True
        reads = 2 * SPECULATIVE_CALLS_MAX
        results = [start_reading(handle) for _ in range(reads)]
        await delay(10 * LATE_MS)
        assert sum(bookie.read_calls for bookie in cluster.bookies.values()) == reads + SPECULATIVE_CALLS_MAX
        for bookie in cluster.bookies.values():
            bookie.release()
        await turn(4)
        assert all(result == [payloads(0, COUNT)] for result in results)
        # What was answered makes room.
        for bookie in cluster.bookies.values():
            bookie.holds_replies = True
        start_reading(handle)
        await delay(LATE_MS + 100)
        assert sum(bookie.read_calls for bookie in cluster.bookies.values()) == reads + SPECULATIVE_CALLS_MAX + 2

    run_cluster(main)


def test_limit_of_bytes_holds_with_late_answers_too():
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2))
        hanging = handle.metadata.last_fragment.ensemble[handle.ledger_id % 3]
        cluster.bookies[hanging].holds_replies = True
        results = start_reading(handle, bytes_max=25)
        await delay(LATE_MS + 100)
        (found,) = results
        assert isinstance(found, list)
        assert 1 <= len(found) < COUNT
        assert found == payloads(0, len(found))

    run_cluster(main)


def test_nothing_past_the_last_add_confirmed_is_read_though_bookies_have_it():
    """Also not by a reader whose LAC is old, nor because a bookie tells of entries that nobody confirmed."""

    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2))
        reader = await cluster.client().open_ledger(handle.ledger_id, recover=False)
        known = reader.last_add_confirmed
        assert await Appends(handle).append_and_wait(*payloads(COUNT, 3)) is None
        # One more is sent, and stored by one bookie: no ack quorum.
        for name in ("b1", "b2"):
            cluster.bookies[name].add_error = StorageError("not stored")
        pending = Appends(handle)
        pending.append(b"not confirmed")
        await turn(3)
        for entry_id in range(known + 1, COUNT + 4):
            with pytest.raises(NoSuchEntryError):
                await reader.read_entries(entry_id, entry_id)
        later = await cluster.client().open_ledger(handle.ledger_id, recover=False)
        assert later.last_add_confirmed < COUNT + 3
        with pytest.raises(NoSuchEntryError):
            await later.read_entries(COUNT + 3, COUNT + 3)

    run_cluster(main)


def test_reads_of_a_closed_client_end():
    async def main(cluster: Cluster):
        handle = await filled(cluster, (3, 3, 2))
        for bookie in cluster.bookies.values():
            bookie.fail(StorageError("closed"))
        with pytest.raises(StorageError, match="closed"):
            await asyncio.wait_for(handle.read_entries(0, 3), 1)

    run_cluster(main)
