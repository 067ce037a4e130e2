from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest

from geminga.bookie.recovery import establish_identity
from geminga.model.errors import (
    CorruptionError,
    DataDirectoryError,
    LedgerFencedError,
    NoSuchEntryError,
    UnknownEntryError,
)
from geminga.runtime import ThreadedDisk, real_runtime
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie


def remove(case: BookieNode, *suffixes: str) -> None:
    for suffix in suffixes:
        for path in case.files(suffix):
            directory, _, name = path.rpartition("/")
            case.disk.directory(directory).change({name: None})


async def fill(case: BookieNode) -> None:
    for i in range(6):
        assert await case.add(1, i, entries_of(1, i, 1)) is None


def journal_with_entries(case: BookieNode) -> str:
    return case.files(f"{case.bookie.journal.journal_id:010d}.journal")[0]


async def killed(case: BookieNode) -> str:
    """Filled and killed; a journal that has entries."""
    await fill(case)
    path = journal_with_entries(case)
    await case.kill()
    return path


async def check_refused(case: BookieNode, error: type[Exception], words: str) -> None:
    """It does not start, and says why."""
    with pytest.raises(error, match=words):
        await case.open()


# ---- identity


def test_instance_keeps_its_id_and_another_is_refused():
    async def main(case: BookieNode) -> None:
        instance_id = case.bookie.instance_id
        await case.reopen(expected_instance_id=instance_id)
        assert case.bookie.instance_id == instance_id
        await case.bookie.close()
        with pytest.raises(DataDirectoryError, match="belongs to bookie"):
            await case.open(expected_instance_id="ab" * 16)

    run_bookie(main)


def test_directory_of_a_running_bookie_is_refused(tmp_path):
    async def main() -> None:
        first, second = ThreadedDisk(), ThreadedDisk()
        runtime = real_runtime(lambda part, error: None)
        try:
            await first.make_dirs(f"{tmp_path}/journal")
            await first.lock_dir(f"{tmp_path}/journal")
            with pytest.raises(DataDirectoryError, match="journal is in use by another bookie"):
                await establish_identity(
                    replace(runtime, disk=second), f"{tmp_path}/journal", f"{tmp_path}/ledgers", None
                )
        finally:
            for disk in (first, second, runtime.disk):
                await disk.close()
            await runtime.threads.close()

    asyncio.run(main())


@pytest.mark.parametrize("keeps_cookies", [False, True])
def test_emptied_bookie_that_is_remembered_is_refused(keeps_cookies):
    async def main(case: BookieNode) -> None:
        instance_id = case.bookie.instance_id
        await fill(case)
        await case.bookie.close()
        remove(case, *([".journal", ".log", ".index", "checkpoint"] if keeps_cookies else [""]))
        with pytest.raises(DataDirectoryError, match="emptied"):
            await case.open(expected_instance_id=instance_id)
        assert not case.files(".journal")

    run_bookie(main)


def test_lost_checkpoint_and_logs_are_told_by_the_journals_that_are_gone():
    async def main(case: BookieNode) -> None:
        await fill(case)
        await case.reopen()
        await case.bookie.close()
        remove(case, "checkpoint", ".log", ".index")
        await check_refused(case, DataDirectoryError, "checkpoint is missing")

    run_bookie(main)


@pytest.mark.parametrize("kept", ["journal", "ledgers"])
def test_wiped_directory_beside_the_other_is_refused(kept):
    async def main(case: BookieNode) -> None:
        await fill(case)
        await case.bookie.close()
        wiped = "ledgers" if kept == "journal" else "journal"
        for path in case.files(""):
            directory, _, name = path.rpartition("/")
            if directory == f"/b/{wiped}":
                case.disk.directory(directory).change({name: None})
        await check_refused(case, DataDirectoryError, "no cookie")

    run_bookie(main)


def test_emptied_journal_with_its_cookie_is_refused():
    async def main(case: BookieNode) -> None:
        await fill(case)
        await case.bookie.close()
        remove(case, ".journal")
        await check_refused(case, DataDirectoryError, "was emptied")

    run_bookie(main)


def test_cookies_of_two_bookies_are_refused():
    async def main(case: BookieNode) -> None:
        await case.bookie.close()
        await case.open(journal_directory="/other/journal", ledger_directory="/other/ledgers")
        await case.bookie.close()
        with pytest.raises(DataDirectoryError, match="belongs to bookie"):
            await case.open(journal_directory="/other/journal")

    run_bookie(main)


@pytest.mark.parametrize("change", ["damaged", "newer", "role"])
def test_bad_cookie_is_refused(change):
    async def main(case: BookieNode) -> None:
        from geminga.bookie.core.checkpoint_format import Cookie, encode_cookie

        await case.bookie.close()
        instance_id = bytes.fromhex(case.bookie.instance_id)
        data = {
            "damaged": b"geminga bookie\n",
            "newer": encode_cookie(Cookie(instance_id, "journal", 2)),
            "role": encode_cookie(Cookie(instance_id, "ledgers")),
        }[change]
        await case.node.runtime.disk.write_file("/b/journal/cookie", data)
        await check_refused(case, DataDirectoryError, "/b/journal/cookie")

    run_bookie(main)


# ---- journal


def test_replay_restores_entries_keys_and_fences():
    async def main(case: BookieNode) -> None:
        await fill(case)
        await case.fence(4)
        await case.kill()
        await case.open()
        assert await case.read(1, *range(6)) == entries_of(1, 0, 6)
        assert isinstance(await case.add(4, 0, [b"x"]), LedgerFencedError)
        assert "another master key" in str(await case.add(1, 6, [b"x"], key=b"wrong"))
        assert await case.add(1, 6, entries_of(1, 6, 1)) is None

    run_bookie(main)


def test_damaged_group_is_named_and_refused():
    async def main(case: BookieNode) -> None:
        path = await killed(case)
        case.flip(path, 64 + 45)
        await check_refused(case, CorruptionError, f"{path} at offset 64.*once with gemingaAcceptDamagedJournal")

    run_bookie(main)


def test_damaged_journal_header_is_named_and_refused():
    async def main(case: BookieNode) -> None:
        path = await killed(case)
        case.flip(path, 9)
        await check_refused(case, CorruptionError, f"{path} at offset 0")

    run_bookie(main)


def test_missing_journal_between_others_is_refused():
    async def main(case: BookieNode) -> None:
        await case.reopen(write_cache_max_size_mb=1.0)
        for i in range(200):
            assert await case.add(1, i, entries_of(1, i, 1, size=400)) is None
            if len(case.files(".journal")) >= 4:
                break
        middle = sorted(case.files(".journal"))[1]
        await case.kill()
        remove(case, middle)
        await check_refused(case, CorruptionError, r"missing")

    run_bookie(main)


def test_journal_of_the_mark_must_exist():
    async def main(case: BookieNode) -> None:
        path = await killed(case)
        remove(case, path)
        await case.node.runtime.disk.write_file("/b/journal/0000000099.journal", b"")
        await check_refused(case, CorruptionError, f"{path} is missing")

    run_bookie(main)


def test_accepted_damage_puts_the_ledgers_in_limbo():
    async def main(case: BookieNode) -> None:
        case.ledgers.live = {1, 2}
        path = await killed(case)
        case.flip(path, 64 + 45)
        await case.open(accept_damaged_journal=True)
        for _ in range(2):
            results = await case.read(1, *range(6))
            assert results[1:] == entries_of(1, 1, 5)
            assert isinstance(results[0], UnknownEntryError)
            assert isinstance(await case.lac(1), UnknownEntryError)
            assert isinstance((await case.read(2, 0))[0], UnknownEntryError)
            assert isinstance(await case.add(1, 6, [b"x"]), LedgerFencedError)
            assert isinstance(await case.add(2, 0, [b"x"]), LedgerFencedError)
            case.ledgers.live = {1, 2, 3}
            assert await case.add(3, 0, [b"x"]) is None
            await case.reopen()

    run_bookie(main)


def test_start_that_would_accept_damage_where_there_is_none_says_so(caplog):
    async def main(case: BookieNode) -> None:
        await fill(case)
        await case.reopen(accept_damaged_journal=True)
        assert "/b/journal is whole: start without gemingaAcceptDamagedJournal" in caplog.text
        assert await case.read(1, *range(6)) == entries_of(1, 0, 6)
        assert await case.add(1, 6, [b"x"]) is None

    run_bookie(main)


def test_accepted_damage_without_the_list_of_ledgers_is_refused():
    async def main(case: BookieNode) -> None:
        path = await killed(case)
        case.flip(path, 64 + 45)
        with pytest.raises(DataDirectoryError, match="which ledgers exist"):
            await case.open(accept_damaged_journal=True)

    run_bookie(main)


def test_accepted_damage_is_not_forgotten_by_a_start_that_flushes_and_then_is_refused():
    async def main(case: BookieNode) -> None:
        path = await killed(case)
        case.flip(path, 64 + 45)
        # What is replayed does not fit into the write cache.
        tiny = {"write_cache_max_size_mb": 0.001}
        with pytest.raises(DataDirectoryError, match="which ledgers exist"):
            await case.open(accept_damaged_journal=True, **tiny)
        case.ledgers.live = {1}
        await case.kill()
        await case.open(accept_damaged_journal=True, **tiny)
        for _ in range(2):
            results = await case.read(1, *range(6))
            assert results[1:] == entries_of(1, 1, 5)
            assert isinstance(results[0], UnknownEntryError)
            assert isinstance(await case.add(1, 6, [b"x"]), LedgerFencedError)
            await case.reopen()

    run_bookie(main)


def test_accepted_damage_is_known_though_the_checkpoint_is_lost_later():
    async def main(case: BookieNode) -> None:
        case.ledgers.live = {1}
        path = await killed(case)
        case.flip(path, 64 + 45)
        await case.open(accept_damaged_journal=True)
        await case.bookie.close()
        case.flip("/b/ledgers/checkpoint", 40)
        await case.open()
        for _ in range(2):
            results = await case.read(1, *range(6))
            assert results[1:] == entries_of(1, 1, 5)
            assert isinstance(results[0], UnknownEntryError)
            assert isinstance(await case.add(1, 6, [b"x"]), LedgerFencedError)
            await case.reopen()
        await case.bookie.close()
        for name in ("checkpoint", "limbo"):
            case.flip(f"/b/ledgers/{name}", 40)
        await check_refused(case, DataDirectoryError, "/b/ledgers/limbo is damaged, and so is the checkpoint")

    run_bookie(main)


# ---- index, checkpoint, entry logs


async def fill_and_close(case: BookieNode) -> None:
    for ledger_id in (1, 2, 3):
        for first in (0, 5):
            assert await case.add(ledger_id, first, entries_of(ledger_id, first, 5, size=200)) is None
            await case.bookie.flush()
    await case.add(1, 3, entries_of(1, 3, 4, size=200), recovery=True)
    await case.fence(2)
    await case.bookie.close()


async def check_all(case: BookieNode) -> None:
    for ledger_id in (1, 2, 3):
        assert await case.read(ledger_id, *range(10)) == entries_of(ledger_id, 0, 10, size=200)
        assert isinstance((await case.read(ledger_id, 10))[0], NoSuchEntryError)
    assert isinstance(await case.add(2, 10, [b"x"]), LedgerFencedError)
    assert await case.add(3, 10, [b"x"]) is None


@pytest.mark.parametrize("how", ["flip a bit", "remove", "remove all"])
def test_index_is_rebuilt_from_the_entry_logs(how):
    async def main(case: BookieNode) -> None:
        await fill_and_close(case)
        runs = case.files(".index")
        if how == "flip a bit":
            case.flip(runs[0], 80)
        else:
            remove(case, *(runs if how == "remove all" else runs[:1]))
        await case.open()
        await check_all(case)

    run_bookie(main)


@pytest.mark.parametrize("how", ["flip a bit", "remove"])
def test_lost_checkpoint_is_made_again(how):
    async def main(case: BookieNode) -> None:
        await fill_and_close(case)
        if how == "remove":
            remove(case, "/checkpoint")
        else:
            case.flip("/b/ledgers/checkpoint", 40)
        await case.open()
        await check_all(case)
        assert await case.add(9, 0, [b"x"]) is None
        await case.reopen()
        assert await case.read(9, 0) == [b"x"]

    run_bookie(main)


def test_lost_checkpoint_with_entries_in_the_journal_loses_nothing():
    async def main(case: BookieNode) -> None:
        await fill(case)
        await case.bookie.flush()
        assert await case.add(1, 6, entries_of(1, 6, 1)) is None
        await case.kill()
        remove(case, "/checkpoint")
        await case.open()
        assert await case.read(1, *range(7)) == entries_of(1, 0, 7)

    run_bookie(main)


def test_lost_checkpoint_and_then_a_start_that_gets_no_further_loses_nothing():
    async def main(case: BookieNode) -> None:
        await fill(case)
        await case.reopen()
        assert await case.add(1, 6, entries_of(1, 6, 1)) is None
        await case.kill()
        assert case.files(".journal")[0] != "/b/journal/0000000001.journal", "the numbers of its groups go on"
        remove(case, "/checkpoint")
        case.disk.inject("write", "*.log", error=errno.ENOSPC, times=None)
        await case.open()
        assert not case.bookie.is_writable
        await case.kill()
        case.disk.clear_faults()
        await case.open()
        assert await case.read(1, *range(7)) == entries_of(1, 0, 7)

    run_bookie(main)


def test_damaged_entry_log_is_named_when_the_index_must_be_rebuilt():
    async def main(case: BookieNode) -> None:
        await fill_and_close(case)
        remove(case, ".index")
        log = case.files(".log")[0]
        case.flip(log, 300)
        await check_refused(case, CorruptionError, f"{log} at offset")

    run_bookie(main)


def test_missing_or_short_entry_log_is_refused():
    async def main(case: BookieNode) -> None:
        await fill_and_close(case)
        log = case.files(".log")[0]
        remove(case, log)
        await check_refused(case, DataDirectoryError, log)

    run_bookie(main)


def test_leftovers_of_interrupted_steps_are_removed():
    async def main(case: BookieNode) -> None:
        await fill_and_close(case)
        disk = case.node.runtime.disk
        in_force = {path for path in case.disk.paths() if path.endswith((".log", ".index"))}
        for name in ("0000000077.log", "0000000077.index", "checkpoint.tmp", "0000000077.index.tmp", "quarantine.tmp"):
            await disk.write_file(f"/b/ledgers/{name}", b"half")
        foreign = ("/b/ledgers/bookie.log", "/b/ledgers/1.log.old", "/b/ledgers/report.tmp", "/b/ledgers/of.index")
        for path in foreign:
            await disk.write_file(path, b"of somebody else")
        await case.open()
        assert set(foreign) <= set(case.disk.paths())
        for path in foreign:
            await disk.unlink(path)
        assert [path for path in case.disk.paths() if "77" in path or path.endswith(".tmp")] == []
        assert in_force <= set(case.disk.paths())
        await check_all(case)

    run_bookie(main)
