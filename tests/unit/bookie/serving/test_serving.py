"""A bookie's server as clients of BookKeeper find it: frames in, answers out, in every version."""

from __future__ import annotations

import asyncio
from struct import pack

import pytest

from geminga.bookie.serving import BookieServer, limits
from geminga.bookkeeper import MemoryBookie
from geminga.model.errors import DiskIOError, NoSuchLedgerError, StorageError, UnknownEntryError
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper import v2, v3
from geminga.wire.bookkeeper.answers import (
    AddAnswer,
    AuthAnswer,
    BareAnswer,
    BatchReadAnswer,
    LedgerAnswer,
    ReadAnswer,
    ReadLacAnswer,
)
from geminga.wire.bookkeeper.codes import AUTH_DISABLED_PLUGIN, OperationType, StatusCode
from geminga.wire.bookkeeper.digest import DigestType, digest_for
from support.processes.served_bookies import KEY, Connect, SlowReads, adds_2, adds_3, pass_by, serve
from support.worlds.bookies import entries_of, sized_entries


def test_version_2_adds_reads_and_fences_as_pulsars_brokers_do():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(2)
        entries = entries_of(3, 0, 3)
        assert await wire.ask(*adds_2(3, 0, entries)) == [AddAnswer(0, 0, 3, i) for i in range(3)]
        assert await wire.ask(v2.encode_read(3, 1), v2.encode_read(3, 9), v2.encode_read(4, 0)) == [
            ReadAnswer(0, 0, 3, 1, entries[1]),
            ReadAnswer(0, StatusCode.ENOENTRY, 3, 9, None),
            ReadAnswer(0, StatusCode.ENOLEDGER, 4, 0, None),
        ]
        fence = v2.encode_read(3, -1, fence_key=KEY)
        assert await wire.ask(fence) == [ReadAnswer(0, 0, 3, -1, entries[2])]
        more = entries_of(3, 3, 1)
        assert await wire.ask(*adds_2(3, 3, more)) == [AddAnswer(0, StatusCode.EFENCED, 3, 3)]
        assert await wire.ask(*adds_2(3, 3, more, recovery=True)) == [AddAnswer(0, 0, 3, 3)]
        never = v2.encode_read(8, -1, fence_key=KEY)
        assert await wire.ask(never) == [ReadAnswer(0, StatusCode.ENOENTRY, 8, -1, None)]
        assert bookie.is_fenced(8)
        other = v2.encode_read(3, -1, fence_key=b"x" * 20)
        assert await wire.ask(other) == [ReadAnswer(0, StatusCode.EUA, 3, -1, None)]
        keyless = pack(">IIqq", 20, v2.packet_header(1, 2, 1), 3, -1)
        assert await wire.ask(keyless) == [ReadAnswer(0, StatusCode.EUA, 3, -1, None)]

    serve(main)


def test_batch_read_ends_where_its_limits_or_the_entries_end():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(2)
        entries = sized_entries(3, [100, 200, 300, 400])
        sizes = [len(entry) for entry in entries]
        await wire.ask(*adds_2(3, 0, entries))

        async def read(first: int, count: int, size: int) -> list[bytes]:
            [answer] = await wire.ask(v2.encode_batch_read(5, 3, first, entries_max=count, bytes_max=size))
            assert isinstance(answer, BatchReadAnswer)
            assert (answer.txn_id, answer.status, answer.entry_id) == (5, 0, first)
            return answer.entries

        assert await read(0, 2, 1 << 20) == entries[:2]
        assert await read(1, 0, 1 << 20) == entries[1:]
        assert await read(0, -1, -1) == entries[:1]
        # As Apache counts: 36 bytes, and each entry with its size.
        exact = 36 + sizes[0] + sizes[1] + 8
        assert await read(0, 10, exact) == entries[:2]
        assert await read(0, 10, exact - 1) == entries[:1]
        absent = v2.encode_batch_read(6, 3, 4, entries_max=1, bytes_max=100)
        assert await wire.ask(absent) == [BatchReadAnswer(6, StatusCode.ENOENTRY, 3, 4, [])]

    serve(main)


def test_version_3_answers_carry_the_number_and_the_lac():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(3)
        entries = entries_of(3, 0, 3)
        assert await wire.ask(*adds_3(3, 0, entries)) == [AddAnswer(100 + i, 0, 3, i) for i in range(3)]
        assert await wire.ask(v3.encode_read(7, 3, 0), v3.encode_read(8, 3, -1)) == [
            # The last entry does not wait for its turn, and an entry's LAC is that of the first of its batch.
            ReadAnswer(8, 0, 3, -1, entries[2], -1),
            ReadAnswer(7, 0, 3, 0, entries[0], -1),
        ]
        force = v3.encode_request(OperationType.FORCE_LEDGER, 9, forceLedgerRequest=pb.ForceLedgerRequest(ledgerId=3))
        assert await wire.ask(force) == [LedgerAnswer(OperationType.FORCE_LEDGER, 9, 0, 3)]
        read_lac = v3.encode_request(OperationType.READ_LAC, 10, readLacRequest=pb.ReadLacRequest(ledgerId=3))
        assert await wire.ask(read_lac) == [ReadLacAnswer(10, 0, 3, None, entries[2])]

    serve(main)


def test_handshake_without_authentication_and_tls():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        new, old = await connect(3), await connect(2)
        auth = pb.AuthMessage(authPluginName="some", payload=b"token")
        assert await new.ask(v3.encode_request(OperationType.AUTH, 1, authRequest=auth)) == [
            AuthAnswer(1, 0, AUTH_DISABLED_PLUGIN, b"")
        ]
        assert await new.ask(v3.encode_request(OperationType.START_TLS, 2, startTLSRequest=pb.StartTLSRequest())) == [
            BareAnswer(OperationType.START_TLS, 2, StatusCode.EBADREQ)
        ]
        assert await old.ask(v2.encode_auth("some", b"token")) == [AuthAnswer(0, 0, AUTH_DISABLED_PLUGIN, b"")]

    serve(main)


@pytest.mark.parametrize(
    "broken", [pack(">i", -1), pack(">i", 6 << 20), pack(">iI", 4, v2.packet_header(2, 9)), pack(">i", 0)]
)
def test_broken_frame_ends_its_connection_and_no_other(broken):
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        one, two = await connect(2), await connect(2)
        one.transport.write(broken)
        await one.lost()
        assert len(await two.ask(*adds_2(3, 0, entries_of(3, 0, 1)))) == 1
        assert len(server.connections) == 1

    serve(main)


def test_what_is_refused_is_answered_and_the_connection_goes_on():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(3)
        bad = v3.encode_request(OperationType.ADD_ENTRY, 4)
        assert await wire.ask(bad) == [BareAnswer(OperationType.ADD_ENTRY, 4, StatusCode.EBADREQ)]
        assert await wire.ask(*adds_3(3, 0, entries_of(3, 0, 1))) == [AddAnswer(100, 0, 3, 0)]
        assert server.unanswered_bytes == 0

    serve(main)


@pytest.mark.parametrize(
    ("error", "status", "status_2"),
    [
        (UnknownEntryError("limbo"), StatusCode.EUNKNOWNLEDGERSTATE, StatusCode.EIO),
        (DiskIOError("x"), StatusCode.EIO, StatusCode.EIO),
        (NoSuchLedgerError("deleted"), StatusCode.ENOLEDGER, StatusCode.ENOLEDGER),
    ],
)
def test_errors_of_the_bookie_are_never_an_absence_they_are_not(error, status, status_2):
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        bookie.fail(error)
        new, old = await connect(3), await connect(2)
        assert await new.ask(v3.encode_read(5, 3, 0)) == [ReadAnswer(5, status, 3, 0, None)]
        assert await old.ask(v2.encode_read(3, 0)) == [ReadAnswer(0, status_2, 3, 0, None)]
        add_status = StatusCode.EFENCED if status == StatusCode.ENOLEDGER else status_2
        assert await old.ask(*adds_2(3, 0, entries_of(3, 0, 1))) == [AddAnswer(0, add_status, 3, 0)]

    serve(main)


def poll(txn_id: int, previous: int, timeout_ms: int) -> bytes:
    read = pb.ReadRequest(
        ledgerId=3, entryId=-1, previousLAC=previous, timeOut=timeout_ms, flag=pb.ReadRequest.ENTRY_PIGGYBACK
    )
    return v3.encode_request(OperationType.READ_ENTRY, txn_id, readRequest=read)


def test_long_poll_ends_when_the_lac_grows_or_its_time_is_over():
    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        writer, reader = await connect(3), await connect(3)
        loop = asyncio.get_running_loop()
        assert await reader.ask(poll(1, -1, 1000)) == [ReadAnswer(1, StatusCode.ENOLEDGER, 3, -1, None)]
        entries = entries_of(3, 0, 1) + entries_of(3, 1, 1)
        await writer.ask(*adds_3(3, 0, entries[:1]))
        start = loop.time()
        assert await reader.ask(poll(2, -1, 1500)) == [ReadAnswer(2, 0, 3, -1, None, -1)]
        assert 1.5 <= loop.time() - start < 2
        reader.transport.write(poll(3, -1, 30_000))
        # Entry 1 says that entry 0 is confirmed.
        await writer.ask(*adds_3(3, 1, entries[1:]))
        assert await reader.answers(1) == [ReadAnswer(3, 0, 3, 0, entries[0], 0)]
        assert loop.time() - start < 3
        reader.transport.write(poll(4, 0, 30_000))
        announced = digest_for(DigestType.CRC32C, b"").encode_lac(3, 1)
        request = pb.WriteLacRequest(ledgerId=3, lac=1, masterKey=KEY, body=announced)
        await writer.ask(v3.encode_request(OperationType.WRITE_LAC, 5, writeLacRequest=request))
        assert await reader.answers(1) == [ReadAnswer(4, 0, 3, 1, entries[1], 1)]
        # Known already: at once.
        assert await reader.ask(poll(6, 0, 30_000)) == [ReadAnswer(6, 0, 3, 1, entries[1], 1)]
        assert loop.time() - start < 3
        reader.transport.write(poll(7, 5, 30_000))
        await writer.ask(poll(8, 5, 1))
        assert len(server.polls) == 1
        reader.transport.close()
        await writer.ask(poll(9, 5, 1))
        assert len(server.polls) == 0
        assert server.unanswered_bytes == 0

    serve(main)


def test_reader_that_catches_up_delays_neither_adds_nor_fences_and_others_reads_by_one_group():
    slow = SlowReads()

    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        greedy, modest, writer = await connect(2), await connect(2), await connect(2)
        await writer.ask(*adds_2(3, 0, entries_of(3, 0, 1)))
        reads = b"".join(v2.encode_read(3, i) for i in range(3 * limits.GROUP_READS_MAX))
        greedy.transport.write(reads)
        modest.transport.write(v2.encode_read(3, 0))
        assert await writer.ask(*adds_2(3, 1, entries_of(3, 1, 1))) == [AddAnswer(0, 0, 3, 1)]
        fence = await writer.ask(v2.encode_read(3, -1, fence_key=KEY))
        assert [type(answer) for answer in fence] == [ReadAnswer]
        # One group of each, although the first one has many more waiting.
        assert min(len(entry_ids) for _, entry_ids, _ in slow.reads) == 1
        assert len(slow.reads) == 2
        error: StorageError = DiskIOError("x")
        answered = 0
        while slow.reads:
            _, entry_ids, done = slow.reads.pop(0)
            assert len(entry_ids) <= limits.GROUP_READS_MAX
            # Half a group: the rest comes again.
            part = entry_ids[: max(1, len(entry_ids) // 2)]
            answered += len(part)
            done([error] * len(part))
            await writer.ask(*adds_2(3, 1, entries_of(3, 1, 1)))
        assert answered == 3 * limits.GROUP_READS_MAX + 1
        assert len(await greedy.answers(3 * limits.GROUP_READS_MAX)) == 3 * limits.GROUP_READS_MAX
        assert len(await modest.answers(1)) == 1
        assert server.unanswered_bytes == 0

    serve(main, slow)


def test_one_more_read_than_may_wait_is_refused():
    slow = SlowReads()

    async def main(bookie: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(3)
        waiting_max = limits.READS_WAITING_MAX
        # The first group is under way, and waits no more.
        first = limits.GROUP_READS_MAX
        wire.transport.write(b"".join(v3.encode_read(i, 3, i) for i in range(first)))
        assert await wire.ask(v3.encode_read(1 << 40, 3, -1)) == [
            ReadAnswer(1 << 40, StatusCode.ENOLEDGER, 3, -1, None)
        ]
        sent = 0
        while sent < waiting_max + 5:
            size = min(1000, waiting_max + 5 - sent)
            wire.transport.write(b"".join(v3.encode_read(first + sent + i, 3, i) for i in range(size)))
            sent += size
        refused = await wire.answers(5)
        assert [(type(answer), answer.status) for answer in refused] == [(ReadAnswer, StatusCode.ETOOMANYREQUESTS)] * 5
        wire.transport.abort()
        other = await connect(3)
        while len(server.connections) > 1:
            await other.ask(v3.encode_read(1, 4, -1))
        # What is under way is still counted.
        assert server.unanswered_bytes == first * limits.REQUEST_BYTES

    serve(main, slow)


def test_connection_with_too_much_unanswered_is_not_read_until_half_is_answered():
    bookie = MemoryBookie()
    bookie.holds_replies = True

    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(2)
        entry = pack(">qqqq", 3, 0, -1, 0) + b"x" * (1 << 20)
        count = 2 * limits.CONNECTION_BYTES_MAX // len(entry)
        for _number in range(count):
            wire.transport.write(v2.encode_add(KEY, entry, recovery=False))
        other = await connect(2)
        while server.unanswered_bytes <= limits.CONNECTION_BYTES_MAX:
            await other.ask(v2.encode_auth("x", b""))
        held = server.unanswered_bytes
        for _number in range(20):
            await other.ask(v2.encode_auth("x", b""))
        assert held == server.unanswered_bytes <= limits.CONNECTION_BYTES_MAX + 2 * len(entry)
        bookie.release()
        assert len(await wire.answers(count)) == count
        assert server.unanswered_bytes == 0

    serve(main, bookie)


def test_who_never_completes_a_request_or_never_takes_answers_is_ended_and_silence_between_requests_is_fine():
    bookie = MemoryBookie()

    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        silent, slow, half, deaf = [await connect(2) for _ in range(4)]
        entry = pack(">qqqq", 3, 0, -1, 0) + b"x" * (1 << 20)
        add, read = v2.encode_add(KEY, entry, recovery=False), v2.encode_read(3, 0)
        assert len(await slow.ask(add)) == 1
        deaf.transport.pause_reading()
        deaf.transport.write(read * 20)
        half.transport.write(add[: len(add) // 2])
        passed, sent = 0.0, 0
        while passed < 2 * limits.STUCK_S_MAX:
            # Whole requests, each in two reads: at every look it is in the middle of one.
            slow.transport.write(add[len(add) // 2 :] * bool(sent) + add[: len(add) // 2])
            await pass_by(limits.STUCK_CHECK_S / 2)
            passed, sent = passed + limits.STUCK_CHECK_S / 2, sent + 1
        assert half.is_lost
        deaf.transport.resume_reading()
        await pass_by(1)
        assert deaf.is_lost
        assert not silent.is_lost
        assert len(await slow.answers(sent - 1)) == sent - 1
        assert len(await silent.ask(read)) == 1
        assert len(server.connections) == 2

    serve(main, bookie)


def test_requests_of_a_connection_that_went_are_carried_out_and_counted_off():
    bookie = MemoryBookie()
    bookie.holds_replies = True

    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire, other = await connect(2), await connect(2)
        wire.transport.write(b"".join(adds_2(3, 0, entries_of(3, 0, 2))))
        while not bookie.entry_ids(3):
            await other.ask(v2.encode_auth("x", b""))
        wire.transport.abort()
        while len(server.connections) > 1:
            await other.ask(v2.encode_auth("x", b""))
        bookie.release()
        await other.ask(v2.encode_auth("x", b""))
        assert bookie.entry_ids(3) == [0, 1]
        assert server.unanswered_bytes == 0

    serve(main, bookie)


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_adds_of_one_read_are_one_call_a_ledger_however_they_are_answered(answered: int):
    bookie = MemoryBookie()
    bookie.answers_in_groups_of = answered

    async def main(_: MemoryBookie, server: BookieServer, connect: Connect) -> None:
        wire = await connect(2)
        await wire.ask(v2.encode_auth("x", b""))  # it speaks version 2 from here on
        three, four = adds_2(3, 0, entries_of(3, 0, 5)), adds_2(4, 7, entries_of(4, 7, 5))
        mixed = [add for pair in zip(three, four, strict=True) for add in pair]
        answers = await wire.ask(*mixed)
        assert bookie.add_calls == 2
        for ledger_id, first in ((3, 0), (4, 7)):
            told = [answer for answer in answers if isinstance(answer, AddAnswer) and answer.ledger_id == ledger_id]
            assert told == [AddAnswer(0, 0, ledger_id, entry_id) for entry_id in range(first, first + 5)]
        # What is not plain, or does not follow, is not gathered, and what comes behind it is not begun before it.
        again, recovery = adds_2(3, 4, entries_of(3, 4, 1)), adds_2(3, 9, entries_of(3, 9, 1), recovery=True)
        await wire.ask(*again, *recovery, *adds_2(3, 5, entries_of(3, 5, 2)))
        assert 5 <= bookie.add_calls <= 6  # the last one may have come in two reads
        fence = v2.encode_read(3, -1, fence_key=KEY)
        late, good = adds_2(3, 7, entries_of(3, 7, 1)), adds_2(4, 12, entries_of(4, 12, 1))
        answers = await wire.ask(fence, *late, *good)
        assert AddAnswer(0, StatusCode.EFENCED, 3, 7) in answers
        assert AddAnswer(0, 0, 4, 12) in answers
        assert server.unanswered_bytes == 0

    serve(main, bookie)
