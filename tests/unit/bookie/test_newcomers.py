"""Ids of the future are nobody's to take: who uses a ledger without metadata is refused, and leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from geminga.bookie.newcomers import ASK_S, ASKED_AT_ONCE_MAX
from geminga.model.errors import DiskIOError, MetadataUnavailableError, NoSuchLedgerError
from support.clusters.bookie_node import KEY, BookieNode, entries_of, run_bookie

NEXT = 100


class Counted:
    """A list and a counter; how often, and for what, they are asked; an answer may be held."""

    def __init__(self) -> None:
        self.live: set[int] = set()
        self.next_id = NEXT
        self.asked: list[Sequence[int]] = []
        self.looks = 0
        self.error: MetadataUnavailableError | None = None
        #: Answers to either question wait for these.
        self.go, self.tell = asyncio.Event(), asyncio.Event()
        self.go.set()
        self.tell.set()

    async def live_ledger_ids(self) -> set[int]:
        return set(self.live)

    async def next_ledger_id(self) -> int:
        self.looks += 1
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return self.next_id

    async def read_mark(self, instance: str) -> None:
        return None

    async def write_mark(self, instance: str, mark: int) -> None:
        pass

    async def existing(self, ledger_ids: Sequence[int]) -> set[int]:
        self.asked.append(ledger_ids)
        await self.tell.wait()
        return self.live & set(ledger_ids)


async def opened(case: BookieNode) -> Counted:
    case.ledgers = ledgers = Counted()
    await case.open()
    ledgers.looks = 0
    return ledgers


def test_stranger_can_not_take_the_id_of_a_ledger_to_come() -> None:
    async def main(case: BookieNode) -> None:
        ledgers = await opened(case)
        error = await case.add(NEXT, 0, [b"x"], key=b"stranger")
        assert isinstance(error, NoSuchLedgerError)
        assert "has not been given out" in str(error)
        fenced: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        case.bookie.fence(NEXT, master_key=b"stranger", done=fenced.set_result)
        assert isinstance(await fenced, NoSuchLedgerError)
        kept: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        lac = bytes(16)
        case.bookie.write_lac(NEXT, lac, master_key=b"stranger", done=kept.set_result)
        assert await kept is not None
        assert not case.bookie.has_ledgers
        # Its creator comes, with another key.
        ledgers.next_id = NEXT + 1
        ledgers.live = {NEXT}
        assert await case.add(NEXT, 0, entries_of(NEXT, 0, 2)) is None
        await case.reopen()
        assert await case.read(NEXT, 0, 1) == entries_of(NEXT, 0, 2)

    run_bookie(main, is_open=False)


def test_what_was_given_out_is_not_asked_for_and_a_ledger_is_asked_for_once() -> None:
    async def main(case: BookieNode) -> None:
        ledgers = await opened(case)
        assert await case.add(NEXT - 1, 0, [b"x"]) is None
        assert ledgers.looks == 0
        ledgers.next_id = NEXT + 50
        adds = [case.start_add(NEXT, first, [b"%d" % first]) for first in range(3)]
        assert [await add for add in adds] == [None] * 3
        assert await case.read(NEXT, 0, 1, 2) == [b"0", b"1", b"2"]
        for ledger_id in range(NEXT + 1, NEXT + 50):
            assert await case.add(ledger_id, 0, [b"x"]) is None
        assert (ledgers.looks, ledgers.asked) == (1, [])

    run_bookie(main, is_open=False)


def test_id_that_its_creator_chose_is_found_in_the_list() -> None:
    async def main(case: BookieNode) -> None:
        ledgers = await opened(case)
        ledgers.live = {10**12}
        assert await case.add(10**12, 0, [b"x"]) is None
        assert isinstance(await case.add(10**12 + 1, 0, [b"x"]), NoSuchLedgerError)

    run_bookie(main, is_open=False)


@pytest.mark.parametrize("hangs", [True, False])
def test_entries_are_taken_where_the_store_can_not_tell(hangs: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main(case: BookieNode) -> None:
        ledgers = await opened(case)
        if hangs:
            ledgers.go.clear()
        else:
            ledgers.error = MetadataUnavailableError("away")
        began_s = case.world.now
        assert await case.add(NEXT, 0, [b"x"]) is None
        assert case.world.now - began_s < ASK_S + 0.5
        why = "no answer of the metadata store within 1 s" if hangs else "away"
        assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [why]

    run_bookie(main, is_open=False)


def test_new_ledger_does_not_wait_behind_strangers() -> None:
    async def main(case: BookieNode) -> None:
        ledgers = await opened(case)
        ledgers.go.clear()
        strangers = [case.start_add(NEXT + 1 + i, 0, [b"x"], key=b"s") for i in range(3 * ASKED_AT_ONCE_MAX)]
        real = case.start_add(NEXT, 0, [b"x"])
        ledgers.next_id = NEXT + 1
        ledgers.tell.clear()
        ledgers.go.set()
        # Before the store has told of any stranger's.
        assert await real is None
        assert len(ledgers.asked) == 1
        ledgers.tell.set()
        assert {type(await one) for one in strangers} == {NoSuchLedgerError}
        assert [len(asked) for asked in ledgers.asked] == [ASKED_AT_ONCE_MAX] * 3
        assert not case.bookie.storage.states.master_keys.keys() - {NEXT}

    run_bookie(main, is_open=False)


def test_close_answers_what_is_held() -> None:
    async def main(case: BookieNode) -> None:
        ledgers = await opened(case)
        ledgers.tell.clear()
        held = case.start_add(NEXT, 0, [b"x"])
        await case.bookie.close()
        assert isinstance(await held, DiskIOError)
        assert isinstance(await case.add(NEXT, 0, [b"x"], key=KEY), DiskIOError)
        ledgers.tell.set()

    run_bookie(main, is_open=False)
