"""Requests that are no adds or reads, over the wire."""

from __future__ import annotations

import pytest

from geminga.bookie.serving import BookieServer
from geminga.bookkeeper import MemoryBookie
from geminga.model.errors import StorageError, UnknownEntryError
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper import v3
from geminga.wire.bookkeeper.answers import BookieInfoAnswer, LedgerAnswer, ListEntriesAnswer, ReadLacAnswer
from geminga.wire.bookkeeper.availability import decode_availability
from geminga.wire.bookkeeper.codes import OperationType, StatusCode
from geminga.wire.bookkeeper.digest import DigestType, digest_for
from support.processes.served_bookies import KEY, Connect, adds_3, serve
from support.worlds.bookies import entries_of

LIST = OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER


def listing(number: int, ledger_id: int) -> bytes:
    request = pb.GetListOfEntriesOfLedgerRequest(ledgerId=ledger_id)
    return v3.encode_request(LIST, number, getListOfEntriesOfLedgerRequest=request)


def read_lac(number: int, ledger_id: int) -> bytes:
    return v3.encode_request(OperationType.READ_LAC, number, readLacRequest=pb.ReadLacRequest(ledgerId=ledger_id))


def write_lac(number: int, ledger_id: int, lac: int, *, key: bytes = KEY) -> bytes:
    body = digest_for(DigestType.CRC32C, b"").encode_lac(ledger_id, lac)
    request = pb.WriteLacRequest(ledgerId=ledger_id, lac=lac, masterKey=key, body=body)
    return v3.encode_request(OperationType.WRITE_LAC, number, writeLacRequest=request)


def test_announced_lac_comes_back_with_the_last_entry():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(3)
        assert await wire.ask(read_lac(1, 3)) == [ReadLacAnswer(1, StatusCode.ENOLEDGER, 3, None, None)]
        written = LedgerAnswer(OperationType.WRITE_LAC, 2, 0, 3)
        assert await wire.ask(write_lac(2, 3, 7)) == [written]
        body = digest_for(DigestType.CRC32C, b"").encode_lac(3, 7)
        assert await wire.ask(read_lac(3, 3)) == [ReadLacAnswer(3, 0, 3, body, None)]
        refused = written._replace(txn_id=4, status=StatusCode.EUA)
        assert await wire.ask(write_lac(4, 3, 8, key=b"another")) == [refused]
        entries = entries_of(3, 0, 2)
        await wire.ask(*adds_3(3, 0, entries))
        assert await wire.ask(read_lac(5, 3)) == [ReadLacAnswer(5, 0, 3, body, entries[1])]

    serve(main)


def test_ledger_that_is_known_and_empty_has_no_entry_and_is_there():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(3)
        await wire.ask(v3.encode_fence(1, 3, KEY))
        assert await wire.ask(read_lac(2, 3)) == [ReadLacAnswer(2, StatusCode.ENOENTRY, 3, None, None)]

    serve(main)


def test_list_of_entries_and_one_too_long_for_a_frame():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(3)
        assert await wire.ask(listing(1, 3)) == [ListEntriesAnswer(1, StatusCode.ENOLEDGER, 3, b"")]
        for entry_id in (0, 2, 4, 9):
            await wire.ask(*adds_3(3, entry_id, entries_of(3, entry_id, 1)))
        [answer] = await wire.ask(listing(2, 3))
        assert isinstance(answer, ListEntriesAnswer)
        assert decode_availability(answer.availability) == [range(i, i + 1) for i in (0, 2, 4, 9)]
        server.frame_bytes_max = 1024
        assert await wire.ask(listing(3, 3)) == [ListEntriesAnswer(3, StatusCode.EIO, 3, b"")]
        bookie.fail(UnknownEntryError("limbo"))
        assert await wire.ask(listing(4, 3)) == [ListEntriesAnswer(4, StatusCode.EUNKNOWNLEDGERSTATE, 3, b"")]

    serve(main)


@pytest.mark.parametrize("requested", range(4))
def test_room_is_told_as_far_as_it_was_asked(requested):
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(3)
        ask = pb.GetBookieInfoRequest(requested=requested)
        frame = v3.encode_request(OperationType.GET_BOOKIE_INFO, 5, getBookieInfoRequest=ask)
        [answer] = await wire.ask(frame)
        assert isinstance(answer, BookieInfoAnswer)
        assert (answer.total_bytes is not None, answer.free_bytes is not None) == (requested & 1 > 0, requested & 2 > 0)
        assert answer.added_bytes is None, "this one does not tell"
        bookie.fail(StorageError("x"))
        assert await wire.ask(frame) == [BookieInfoAnswer(5, StatusCode.EIO, None, None)]

    serve(main)
