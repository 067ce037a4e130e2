"""Garbage collection beside a metadata store that lost ledgers: they are kept, also over restarts, until told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyroaring import BitMap64

from geminga.bookie.core.deletion_guard import (
    BELIEVED_MAX,
    DeletionGuard,
    Quarantine,
    decode_mark,
    decode_quarantine,
    encode_mark,
    encode_quarantine,
)
from geminga.model.errors import MetadataError
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie

ALL = range(1, 41)


async def fill(case: BookieNode, ledger_ids: range) -> None:
    for ledger_id in ledger_ids:
        assert await case.add(ledger_id, 0, entries_of(ledger_id, 0, 2)) is None


async def filled(case: BookieNode) -> None:
    """Forty ledgers, all of them in the list, and stopped in order."""
    case.ledgers.live, case.ledgers.next_id = set(ALL), 101
    await fill(case, ALL)
    await case.bookie.close()


async def without_mark(case: BookieNode) -> None:
    """As the version left it that knew no marks."""
    case.ledgers.marks.clear()
    await case.node.runtime.disk.unlink("/b/ledgers/metadata-mark")


async def assert_readable(case: BookieNode, ledger_ids: range) -> None:
    for ledger_id in ledger_ids:
        assert await case.read(ledger_id, 0, 1) == entries_of(ledger_id, 0, 2)


@pytest.mark.parametrize("next_id", [None, 101, 31])
def test_metadata_from_an_older_backup_delete_nothing(next_id: int | None, caplog: pytest.LogCaptureFixture) -> None:
    async def main(case: BookieNode) -> None:
        await filled(case)
        case.ledgers.live, case.ledgers.next_id = set(range(1, 21)), next_id
        case.ledgers.marks = {instance: mark - 1 for instance, mark in case.ledgers.marks.items()}
        await case.open()
        for _ in range(3):
            result = await case.bookie.collect_garbage(compact_below=1.0)
            assert result.deleted_ledgers == 0
            # What was made since is no reason to believe the rest.
            case.ledgers.next_id = 1000
            new = range(max(case.ledgers.live) + 100, max(case.ledgers.live) + 300)
            case.ledgers.live |= set(new)
            await fill(case, new)
            await assert_readable(case, ALL)
            assert case.bookie.stats.quarantined_ledgers == 20
            await case.reopen()
        told = [record for record in caplog.records if "gemingaGarbageQuarantineShare=1" in record.getMessage()]
        # Once when it was found, and at each start.
        assert len(told) == 4
        # The newer metadata come back.
        case.ledgers.live |= set(ALL)
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        assert case.bookie.stats.quarantined_ledgers == 0
        assert not case.files("quarantine")

    run_bookie(main)


@pytest.mark.parametrize(
    ("live", "next_id", "has_mark", "said"),
    [
        # Killed behind the deletion of many, the newest were not.
        (range(30, 41), 101, False, "many were deleted just before the last process here was killed"),
        (range(1, 21), 101, False, "nobody here saw them being deleted. Was it restored from an older backup?"),
        (range(1, 21), 31, False, "gave out no such ids yet. Was it restored from an older backup?"),
        (range(1, 21), 31, True, "gave out no such ids yet. Was it restored from an older backup?"),
        (range(1, 21), 101, True, "older than what this bookie last saw of it. Was it restored from an older backup?"),
    ],
)
def test_what_is_said_of_ledgers_that_are_kept_is_true(
    live: range, next_id: int, has_mark: bool, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(case: BookieNode) -> None:
        await filled(case)
        case.ledgers.live, case.ledgers.next_id = set(live), next_id
        if has_mark:
            case.ledgers.marks.clear()
        else:
            await without_mark(case)
        await case.open()
        (told,) = [each for each in caplog.records if "are kept" in each.getMessage()]
        assert said in told.getMessage()
        is_expected = "killed" in said
        assert ("backup" in told.getMessage()) is not is_expected
        assert told.levelname == ("WARNING" if is_expected else "ERROR")
        # At the next start the list may have newer ones whatever it was.
        caplog.clear()
        case.ledgers.live, case.ledgers.next_id = set(live) | {200}, 300
        await fill(case, range(200, 201))
        await case.reopen()
        (told,) = [each for each in caplog.records if "are kept" in each.getMessage()]
        assert "killed" not in told.getMessage()
        assert "an earlier start found" in told.getMessage()

    run_bookie(main)


def test_an_emptied_metadata_store_deletes_nothing_however_few_ledgers_there_are() -> None:
    async def main(case: BookieNode) -> None:
        case.ledgers.live, case.ledgers.next_id = {1, 2}, 3
        await fill(case, range(1, 3))
        await case.bookie.close()
        case.ledgers.live, case.ledgers.next_id = set(), 0
        await case.open()
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        await assert_readable(case, range(1, 3))

    run_bookie(main)


def test_the_operator_s_word_deletes_what_is_in_quarantine() -> None:
    async def main(case: BookieNode) -> None:
        await filled(case)
        case.ledgers.live = {40}
        case.ledgers.marks.clear()
        await case.open()
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        await case.reopen(quarantine_share=1.0)
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 39
        assert not case.files("quarantine")
        await assert_readable(case, range(40, 41))

    run_bookie(main)


def test_everything_deleted_in_the_sight_of_the_process_goes_at_once_or_when_it_stops() -> None:
    async def main(case: BookieNode) -> None:
        await filled(case)
        await case.open()
        case.ledgers.live = set(range(21, 41))
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 20
        case.ledgers.live = set()
        await case.reopen()
        assert not case.bookie.storage.states.master_keys
        assert case.bookie.stats.quarantined_ledgers == 0

    run_bookie(main)


def test_while_there_is_a_quarantine_not_even_a_few_are_believed_that_nobody_saw() -> None:
    async def main(case: BookieNode) -> None:
        await filled(case)
        case.ledgers.live = set(range(1, 21))
        await without_mark(case)
        await case.open()
        await case.bookie.close()
        case.ledgers.live = set(range(1, 19))
        await without_mark(case)
        await case.open()
        case.ledgers.live.remove(18)
        # In sight: this one was deleted.
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 1
        assert case.bookie.stats.quarantined_ledgers == 22
        await assert_readable(case, range(19, 41))

    run_bookie(main)


def test_what_was_deleted_just_before_a_kill_goes_at_the_next_start() -> None:
    async def main(case: BookieNode) -> None:
        case.ledgers.live, case.ledgers.next_id = set(ALL), 41
        await fill(case, ALL)
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        # Some were there at the last look, more came and went since.
        late = range(41, 81)
        case.ledgers.live |= set(late)
        case.ledgers.next_id = 81
        await fill(case, late)
        case.ledgers.live = {40, 80}
        # Killed: it looked at nothing any more.
        await case.open()
        assert case.bookie.stats.quarantined_ledgers == 0
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 78
        await assert_readable(case, range(40, 41))
        await assert_readable(case, range(80, 81))
        assert set(case.bookie.storage.states.master_keys) == {40, 80}

    run_bookie(main)


def test_a_mark_that_can_not_be_left_is_no_sign_of_an_older_store() -> None:
    async def main(case: BookieNode) -> None:
        case.ledgers.live, case.ledgers.next_id = set(ALL), 41
        write = case.ledgers.write_mark

        async def fails(instance: str, mark: int) -> None:
            raise MetadataError("not now")

        case.ledgers.write_mark = fails  # type: ignore[method-assign]
        await fill(case, ALL)
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        assert not case.ledgers.marks
        assert not case.files("metadata-mark")
        case.ledgers.write_mark = write  # type: ignore[method-assign]
        await case.reopen()
        # At the stop, and at the start.
        assert list(case.ledgers.marks.values()) == [2]
        assert case.files("metadata-mark")
        # It came into the store, and the end before it was noted.
        case.ledgers.marks = dict.fromkeys(case.ledgers.marks, 3)
        case.ledgers.live = {40}
        await case.open()
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 39

    run_bookie(main)


def test_a_damaged_mark_is_none() -> None:
    instance = bytes(range(16))
    data = encode_mark(7, instance)
    assert data.startswith(
        b"geminga bookie mark\nformat-version: 1\ninstance-id: 000102030405060708090a0b0c0d0e0f\nmark: 7\n"
    )
    assert data.endswith(b"crc32c: 9f6f9419\n")
    assert decode_mark(data, instance) == 7
    assert decode_mark(data, bytes(16)) is None
    for i in range(len(data)):
        assert decode_mark(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], instance) is None


def test_a_few_deletions_that_nobody_saw_are_believed() -> None:
    async def main(case: BookieNode) -> None:
        await filled(case)
        case.ledgers.live = set(ALL[BELIEVED_MAX:])
        await without_mark(case)
        await case.open()
        assert (await case.bookie.collect_garbage()).deleted_ledgers == BELIEVED_MAX

    run_bookie(main)


def test_a_store_that_goes_back_while_the_bookie_runs_deletes_nothing() -> None:
    async def main(case: BookieNode) -> None:
        case.ledgers.live, case.ledgers.next_id = set(ALL), 101
        await fill(case, ALL)
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        case.ledgers.live, case.ledgers.next_id = set(range(1, 21)), 51
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        await assert_readable(case, ALL)

    run_bookie(main)


class Flickering:
    """A list that lacks ledgers now and then."""

    def __init__(self, *answers: set[int] | None) -> None:
        self.answers = list(answers)
        self.mark: int | None = None

    async def live_ledger_ids(self) -> set[int] | None:
        return self.answers.pop(0)

    async def next_ledger_id(self) -> int:
        return 101

    async def read_mark(self, instance: str) -> int | None:
        return self.mark

    async def write_mark(self, instance: str, mark: int) -> None:
        self.mark = mark

    async def existing(self, ledger_ids: Sequence[int]) -> set[int]:
        return {*ledger_ids}


@pytest.mark.parametrize("second", [set(ALL), None])
def test_the_list_is_read_again_at_the_moment_of_deletion(second: set[int] | None) -> None:
    async def main(case: BookieNode) -> None:
        await filled(case)
        await without_mark(case)
        one_less = {*ALL} - {7}
        case.ledgers = Flickering(one_less, one_less, second)
        await case.open()
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        assert case.ledgers.answers == []
        await assert_readable(case, ALL)

    run_bookie(main)


def test_a_damaged_record_of_the_quarantine_lets_nothing_go() -> None:
    async def main(case: BookieNode) -> None:
        await filled(case)
        case.ledgers.live = set(range(1, 40))
        await case.node.runtime.disk.write_file("/b/ledgers/quarantine", b"damaged")
        await case.open()
        assert (await case.bookie.collect_garbage()).deleted_ledgers == 0
        await assert_readable(case, ALL)
        assert case.bookie.stats.quarantined_ledgers == 1

    run_bookie(main)


def test_the_record_is_refused_with_any_byte_changed() -> None:
    instance = bytes(range(16))
    data = encode_quarantine(Quarantine(BitMap64([1, 2, 3, 7, 1 << 40]), 9, is_certain=True), instance)
    assert b"ledgers: 1-3,7,1099511627776" in data
    documented = Quarantine(BitMap64([*range(21, 38), 39]), 40, is_certain=True)
    assert b"ledgers: 21-37,39\ncrc32c: ae6b8431\n" in encode_quarantine(documented, instance)
    assert decode_quarantine(data, bytes(16)) is None
    for i in range(len(data)):
        assert decode_quarantine(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :], instance) is None


def test_an_id_that_is_the_next_to_be_given_out_was_not_given_out_yet() -> None:
    guard = DeletionGuard(Quarantine(BitMap64()), 0.1)
    guard.saw(5)
    judgement = guard.judge({5}, set(), 5)
    assert (judgement.deleted, list(guard.quarantine.ledger_ids), guard.quarantine.is_certain) == ([], [5], True)
    assert DeletionGuard(Quarantine(BitMap64()), 0.1).judge({4}, set(), 5).deleted == [4]
