from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

from geminga.bookie import BookieConfig, Defects
from geminga.bookie.core import journal_format as fmt
from geminga.bookie.core.group_pacing import ENTRIES_ENOUGH
from geminga.bookie.journal import Journal, journal_name
from geminga.model.errors import DiskFullError, DiskIOError, StorageError
from support.clusters.bookie_node import BookieNode, run_bookie

INSTANCE = bytes(16)


async def make_journal(case: BookieNode, **changes: object) -> tuple[Journal, list[StorageError]]:
    full: list[StorageError] = []
    config = BookieConfig(**{"journal_pre_alloc_size_mb": 0.002, **changes})  # type: ignore[arg-type]
    await case.node.runtime.disk.make_dirs("/j")
    journal = Journal(case.node.runtime, "/j", INSTANCE, config, defects=Defects(), on_full=full.append)
    await journal.start(next_id=1, last_sequence=0, old_ids=())
    return journal, full


def start(journal: Journal, entry: bytes, log: list[object] | None = None) -> asyncio.Future[StorageError | None]:
    future: asyncio.Future[StorageError | None] = asyncio.get_running_loop().create_future()

    def done(entry_ids: Sequence[int], error: StorageError | None) -> None:
        assert entry_ids == (0,)
        future.set_result(error)
        if log is not None:
            log.append(entry)

    header = fmt.encode_add_header(1, 0, [entry], len(entry))
    journal.add(header, [entry], len(header) + len(entry), (0,), done)
    return future


def entries_in(case: BookieNode, journal_id: int) -> list[bytes]:
    data = case.disk.synced_contents(f"/j/{journal_name(journal_id)}")
    scan = fmt.scan_journal(data, seed=fmt.group_seed(INSTANCE), journal_id=journal_id, known_sequence=1 << 60)
    records = [record for group in scan.groups for record in fmt.decode_records(group.body)]
    return [entry for record in records if isinstance(record, fmt.AddRecord) for entry in record.entries]


def test_records_of_one_moment_share_a_group_and_are_answered_in_order():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case)
        log: list[object] = []
        first = [start(journal, b"%d" % i, log) for i in range(5)]
        await first[0]
        second = [start(journal, b"%d" % i, log) for i in range(5, 8)]
        assert await asyncio.gather(*first, *second) == [None] * 8
        assert log == [b"%d" % i for i in range(8)]
        assert journal.groups_written == 2
        assert entries_in(case, 1) == log
        await journal.close()

    run_bookie(main, is_open=False)


def test_what_arrives_during_a_sync_forms_the_next_group():
    async def main(case: BookieNode) -> None:
        case.disk.slow("sync", "*", 1.0, times=None)
        journal, _ = await make_journal(case)
        first = start(journal, b"first")
        await case.world.sleep(0.5)
        rest = [start(journal, b"rest") for _ in range(100)]
        await asyncio.gather(first, *rest)
        assert journal.groups_written == 2
        await journal.close()

    run_bookie(main, is_open=False)


def test_files_are_larger_while_groups_are_large():
    async def main(case: BookieNode) -> None:
        usual = 1 << 19
        journal, _ = await make_journal(case, journal_pre_alloc_size_mb=0.5)
        sizes = []
        for entry_bytes in (100_000, 50_000):
            for _ in range(60):
                assert await start(journal, b"x" * entry_bytes) is None
            sizes.append(len(case.disk.synced_contents(f"/j/{journal_name(journal.journal_id)}")))
        assert sizes == [4 * usual, usual]
        assert len(case.disk.synced_contents(f"/j/{journal_name(1)}")) == usual
        await journal.close()

    run_bookie(main, is_open=False)


def test_large_file_that_the_disk_has_no_room_for_is_of_the_usual_size():
    async def main(case: BookieNode) -> None:
        case.disk.inject("preallocate", "*2.journal", error=errno.ENOSPC)
        journal, full = await make_journal(case, journal_pre_alloc_size_mb=0.5)
        for _ in range(8):
            assert await start(journal, b"x" * 100_000) is None
        assert full == []
        assert journal.journal_id == 3
        await journal.close()

    run_bookie(main, is_open=False)


def test_waiting_for_a_group_ends_with_the_set_time():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case, journal_flush_when_queue_empty=False, journal_max_group_wait_ms=50)
        begun = case.world.now
        one = start(journal, b"one")
        await case.world.sleep(0.04)
        two = start(journal, b"two")
        await asyncio.gather(one, two)
        assert 0.05 <= case.world.now - begun < 0.1
        assert journal.groups_written == 1
        await journal.close()

    run_bookie(main, is_open=False)


async def dense_load(case: BookieNode, journal: Journal, count: int) -> tuple[int, float]:
    """2,000 records a second, whatever becomes of them: the groups of the last half, the median time to a receipt."""
    answers, took, groups = [], [], 0
    for number in range(count):
        begun = case.world.now
        answers.append(start(journal, b"%d" % number))
        answers[-1].add_done_callback(lambda _, begun=begun: took.append(case.world.now - begun))
        if number == count // 2:
            groups = journal.groups_written
        await case.world.sleep(0.0005)
    assert await asyncio.gather(*answers) == [None] * count
    return journal.groups_written - groups, sorted(took)[count // 2]


def test_dense_records_share_groups_and_wait_no_longer_than_set():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case, journal_max_group_wait_ms=10, journal_pre_alloc_size_mb=1)
        groups, median = await dense_load(case, journal, 1000)
        assert groups < 60, "of 250 ms"
        assert median < 0.012
        await journal.close()

    run_bookie(main, is_open=False)


def test_dense_records_do_not_wait_where_groups_are_not_adaptive():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case, journal_pre_alloc_size_mb=1, journal_adaptive_group_writes=False)
        groups, _ = await dense_load(case, journal, 1000)
        assert groups > 120
        await journal.close()

    run_bookie(main, is_open=False)


def test_group_that_waits_goes_to_the_disk_when_nothing_more_comes():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case, journal_max_group_wait_ms=10, journal_pre_alloc_size_mb=1)
        await dense_load(case, journal, 1000)
        last = start(journal, b"a")
        begun = case.world.now
        later = start(journal, b"b")
        await journal.close()
        assert [last.result(), later.result()] == [None, None]
        assert case.world.now - begun < 0.02

    run_bookie(main, is_open=False)


def test_group_that_waits_goes_to_the_disk_as_soon_as_enough_has_come():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case, journal_max_group_wait_ms=10, journal_pre_alloc_size_mb=1)
        await dense_load(case, journal, 1000)
        took = []
        for burst in (0, ENTRIES_ENOUGH):
            await start(journal, b"the group before")
            waits = start(journal, b"waits")
            await case.world.sleep(0.001)
            begun = case.world.now
            await asyncio.gather(waits, *[start(journal, b"more") for _ in range(burst)])
            took.append(case.world.now - begun)
        assert took[0] > 0.005 > took[1]
        await journal.close()

    run_bookie(main, is_open=False)


def test_full_file_is_followed_by_the_next_and_old_ones_go():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case)
        for i in range(20):
            assert await start(journal, b"%03d" % i * 100) is None
        assert journal.journal_id > 2
        found = [entry for i in range(1, journal.journal_id + 1) for entry in entries_in(case, i)]
        assert found == [b"%03d" % i * 100 for i in range(20)]
        await journal.delete_before(journal.journal_id)
        assert case.files(journal_name(1)) == []
        await journal.close()

    run_bookie(main, is_open=False)


def test_record_larger_than_a_file_gets_through():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case)
        assert await start(journal, b"small") is None
        assert await start(journal, b"x" * 9000) is None
        assert await start(journal, b"small") is None
        await journal.close()

    run_bookie(main, is_open=False)


def test_full_disk_refuses_and_a_new_file_takes_over_when_space_returns():
    async def main(case: BookieNode) -> None:
        journal, full = await make_journal(case)
        assert await start(journal, b"kept") is None
        case.disk.inject("write", "*.journal", error=errno.ENOSPC, times=1)
        results = await asyncio.gather(*(start(journal, b"lost") for _ in range(3)))
        assert all(isinstance(error, DiskFullError) for error in results)
        assert isinstance(await start(journal, b"lost"), DiskFullError)
        assert len(full) == 1
        assert journal.is_full
        await journal.resume()
        assert await start(journal, b"again") is None
        assert journal.journal_id == 2
        assert entries_in(case, 1) == [b"kept"]
        assert entries_in(case, 2) == [b"again"]
        assert case.fatal == []
        await journal.close()

    run_bookie(main, is_open=False)


def test_failed_sync_is_fatal_and_never_acknowledged():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case)
        case.disk.inject("sync", "*.journal", error=errno.EIO)
        assert isinstance(await start(journal, b"lost"), DiskIOError)
        assert case.fatal == ["journal"]
        assert isinstance(await start(journal, b"after"), DiskIOError)
        await journal.close()

    run_bookie(main, is_open=False)


def test_closed_journal_refuses():
    async def main(case: BookieNode) -> None:
        journal, _ = await make_journal(case)
        pending = start(journal, b"in time")
        await journal.close()
        assert pending.result() is None
        assert isinstance(await start(journal, b"late"), DiskIOError)

    run_bookie(main, is_open=False)
