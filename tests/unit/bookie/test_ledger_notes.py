"""What the journal has of ledgers beside their entries: that they are known, and that they are fenced."""

from __future__ import annotations

import errno

from geminga.bookie import BookieConfig
from geminga.bookie.core import journal_format as fmt
from geminga.bookie.core.ledger_states import LedgerStates
from geminga.bookie.journal import Journal, journal_name
from geminga.bookie.ledger_notes import LedgerNotes
from geminga.model.errors import LedgerFencedError, NoSuchLedgerError, StorageError, WrongMasterKeyError
from support.clusters.bookie_node import KEY, BookieNode, run_bookie

INSTANCE = bytes(16)


async def some_notes(case: BookieNode) -> tuple[LedgerNotes, LedgerStates, Journal, list[int]]:
    config = BookieConfig(journal_pre_alloc_size_mb=0.002)
    await case.node.runtime.disk.make_dirs("/j")
    journal = Journal(case.node.runtime, "/j", INSTANCE, config, on_full=lambda _: None)
    await journal.start(next_id=1, last_sequence=0, old_ids=())
    states, saw = LedgerStates(), list[int]()
    return LedgerNotes(states, journal, saw.append), states, journal, saw


def records(case: BookieNode, journal_id: int = 1) -> list[object]:
    data = case.disk.synced_contents(f"/j/{journal_name(journal_id)}")
    scan = fmt.scan_journal(data, seed=fmt.group_seed(INSTANCE), journal_id=journal_id, known_sequence=1 << 60)
    return [record for group in scan.groups for record in fmt.decode_records(group.body)]


def test_ledger_is_noted_once_in_front_of_its_first_add() -> None:
    async def main(case: BookieNode) -> None:
        notes, states, _, saw = await some_notes(case)
        assert notes.refusal(7, KEY, recovery=False) is None
        assert notes.refusal(7, KEY, recovery=False) is None
        await case.world.sleep(0.1)
        assert records(case) == [fmt.NewLedgerRecord(7, KEY)]
        assert (saw, states.master_keys) == ([7], {7: KEY})
        assert isinstance(notes.refusal(7, b"another", recovery=False), WrongMasterKeyError)
        states.delete([7])
        assert isinstance(notes.refusal(7, KEY, recovery=False), NoSuchLedgerError)
        assert str(notes.refusal(-1, KEY, recovery=True)) == "-1 is no ledger id"

    run_bookie(main, is_open=False)


def test_fence_is_done_when_it_is_durable_and_who_asks_meanwhile_waits_for_it() -> None:
    async def main(case: BookieNode) -> None:
        notes, _, _, _ = await some_notes(case)
        case.disk.slow("sync", "*.journal", 1.0)
        told: list[tuple[str, StorageError | None]] = []
        notes.fence(7, KEY, lambda error: told.append(("first", error)))
        notes.fence(7, KEY, lambda error: told.append(("second", error)))
        assert notes.after_fence(7, lambda error: told.append(("reader", error)))
        assert isinstance(notes.refusal(7, KEY, recovery=False), LedgerFencedError), "at once, durable or not"
        assert notes.refusal(7, KEY, recovery=True) is None
        assert told == []
        await case.world.sleep(3)
        assert told == [("first", None), ("second", None), ("reader", None)]
        assert records(case) == [fmt.NewLedgerRecord(7, KEY), fmt.Fence(7)]
        assert not notes.after_fence(7, lambda error: told.append(("late", error)))
        notes.fence(7, KEY, lambda error: told.append(("again", error)))
        assert told[3:] == [("again", None)], "what is durable is not written again"

    run_bookie(main, is_open=False)


def test_fence_of_another_password_changes_nothing() -> None:
    async def main(case: BookieNode) -> None:
        notes, states, _, _ = await some_notes(case)
        assert notes.refusal(7, KEY, recovery=False) is None
        told: list[StorageError | None] = []
        notes.fence(7, b"another", told.append)
        assert isinstance(told[0], WrongMasterKeyError)
        assert 7 not in states.fenced

    run_bookie(main, is_open=False)


def test_note_that_could_not_be_written_is_written_with_the_next_add() -> None:
    async def main(case: BookieNode) -> None:
        notes, _, journal, _ = await some_notes(case)
        case.disk.inject("write", "*.journal", error=errno.ENOSPC)
        assert notes.refusal(7, KEY, recovery=False) is None
        await case.world.sleep(0.1)
        assert notes.unjournaled == {7}
        await journal.resume()
        assert notes.refusal(7, KEY, recovery=False) is None
        await case.world.sleep(0.1)
        assert (notes.unjournaled, records(case, journal.journal_id)) == (set(), [fmt.NewLedgerRecord(7, KEY)])

    run_bookie(main, is_open=False)
