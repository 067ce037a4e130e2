"""Our codec of the bookie protocol against what Apache BookKeeper 4.17.2 writes and reads, as it was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack, unpack_from
from typing import Any

import pytest

from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper import v2, v3, v3_answers
from geminga.wire.bookkeeper.answers import (
    AddAnswer,
    AuthAnswer,
    BareAnswer,
    BatchReadAnswer,
    BookieInfoAnswer,
    LedgerAnswer,
    ListEntriesAnswer,
    ReadAnswer,
    ReadLacAnswer,
)
from geminga.wire.bookkeeper.availability import decode_availability, encode_availability
from geminga.wire.bookkeeper.codes import AUTH_DISABLED_PLUGIN, OperationType, StatusCode
from geminga.wire.bookkeeper.requests import (
    AddRequest,
    AuthRequest,
    BatchReadRequest,
    BookieInfoRequest,
    EntryReadRequest,
    ForceLedgerRequest,
    ListEntriesRequest,
    ReadLacRequest,
    RefusedRequest,
    StartTlsRequest,
    WriteLacRequest,
)
from geminga.wire.bookkeeper.stream import AnswerDecoder, RequestDecoder
from support.processes.bookie_wire import ENTRY, KEY, RUNS, lists, request_frames, request_streams, sample

SAMPLE = sample()
CRC_ENTRY = pack(">qqqq", 7, 9, 8, 5) + bytes.fromhex("96098327") + b"hello"
LARGE_ENTRY = bytes.fromhex(SAMPLE["written"]["v2.add.ids"])[28:]
NEXT_ENTRY = pack(">qqqq", 7, 10, 9, 6) + b"world!"

#: Name in the sample: the request it is, and how we write it (None: we never do).
REQUESTS: dict[str, tuple[Any, bytes | None]] = {
    "v2.add.0": (AddRequest(2, 0, 7, 9, KEY, CRC_ENTRY, False), v2.encode_add(KEY, CRC_ENTRY, recovery=False)),
    "v2.add.2": (AddRequest(2, 0, 7, 9, KEY, CRC_ENTRY, True), v2.encode_add(KEY, CRC_ENTRY, recovery=True)),
    "v2.add.4": (
        AddRequest(2, 0, 7, 9, KEY, CRC_ENTRY, False, False, True),
        v2.encode_add(KEY, CRC_ENTRY, recovery=False, high_priority=True),
    ),
    "v2.add.6": (
        AddRequest(2, 0, 7, 9, KEY, CRC_ENTRY, True, False, True),
        v2.encode_add(KEY, CRC_ENTRY, recovery=True, high_priority=True),
    ),
    "v2.add.ids": (
        AddRequest(2, 0, 1 << 40, 1 << 33, KEY, LARGE_ENTRY, False),
        v2.encode_add(KEY, LARGE_ENTRY, recovery=False),
    ),
    "v2.read": (EntryReadRequest(2, 0, 7, 9), v2.encode_read(7, 9)),
    "v2.read.last": (EntryReadRequest(2, 0, 7, -1, high_priority=True), v2.encode_read(7, -1, high_priority=True)),
    "v2.read.fence": (EntryReadRequest(2, 0, 7, -1, True, KEY), v2.encode_read(7, -1, fence_key=KEY)),
    "v2.batch": (
        BatchReadRequest(2, 77, 7, 9, 10, 5000),
        v2.encode_batch_read(77, 7, 9, entries_max=10, bytes_max=5000),
    ),
    "v2.batch.fence": (
        BatchReadRequest(2, -7, 7, 9, 0, 1 << 40, True, KEY),
        v2.encode_batch_read(-7, 7, 9, entries_max=0, bytes_max=1 << 40, fence_key=KEY),
    ),
    "v3.add": (
        AddRequest(3, 5, 7, 9, KEY, ENTRY, False),
        v3.encode_add(5, 7, 9, KEY, ENTRY, recovery=False),
    ),
    "v3.add.high": (
        AddRequest(3, 1 << 40, 7, 9, KEY, ENTRY, False, False, True),
        v3.encode_add(1 << 40, 7, 9, KEY, ENTRY, recovery=False, high_priority=True),
    ),
    "v3.add.deferred": (
        AddRequest(3, 300, 7, 9, KEY, ENTRY, False, True),
        v3.encode_add(300, 7, 9, KEY, ENTRY, recovery=False, deferred_sync=True),
    ),
    "v3.add.recovery": (
        AddRequest(3, 300, 7, 9, KEY, ENTRY, True),
        v3.encode_add(300, 7, 9, KEY, ENTRY, recovery=True),
    ),
    "v3.read": (EntryReadRequest(3, 6, 7, 9), v3.encode_read(6, 7, 9)),
    "v3.read.last": (
        EntryReadRequest(3, 6, 7, -1, high_priority=True),
        v3.encode_read(6, 7, -1, high_priority=True),
    ),
    "v3.fence": (EntryReadRequest(3, 6, 7, -1, True, KEY), v3.encode_fence(6, 7, KEY)),
    "v3.poll": (
        EntryReadRequest(3, 6, 7, -1, False, None, 4, 1500, True),
        v3.encode_request(
            OperationType.READ_ENTRY,
            6,
            readRequest=pb.ReadRequest(
                ledgerId=7, entryId=-1, previousLAC=4, timeOut=1500, flag=pb.ReadRequest.ENTRY_PIGGYBACK
            ),
        ),
    ),
    "v3.write_lac": (
        WriteLacRequest(3, 6, 7, 9, KEY, ENTRY),
        v3.encode_request(
            OperationType.WRITE_LAC, 6, writeLacRequest=pb.WriteLacRequest(ledgerId=7, lac=9, masterKey=KEY, body=ENTRY)
        ),
    ),
    "v3.read_lac": (
        ReadLacRequest(3, 6, 7),
        v3.encode_request(OperationType.READ_LAC, 6, readLacRequest=pb.ReadLacRequest(ledgerId=7)),
    ),
    "v3.force": (
        ForceLedgerRequest(3, 6, 7),
        v3.encode_request(OperationType.FORCE_LEDGER, 6, forceLedgerRequest=pb.ForceLedgerRequest(ledgerId=7)),
    ),
    "v3.list": (
        ListEntriesRequest(3, 6, 7),
        v3.encode_request(
            OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER,
            6,
            getListOfEntriesOfLedgerRequest=pb.GetListOfEntriesOfLedgerRequest(ledgerId=7),
        ),
    ),
    "v3.info": (
        BookieInfoRequest(3, 6, True, True),
        v3.encode_request(OperationType.GET_BOOKIE_INFO, 6, getBookieInfoRequest=pb.GetBookieInfoRequest(requested=3)),
    ),
    "v3.auth": (
        AuthRequest(3, 6, "plugin", ENTRY),
        v3.encode_request(OperationType.AUTH, 6, authRequest=pb.AuthMessage(authPluginName="plugin", payload=ENTRY)),
    ),
    "v3.tls": (
        StartTlsRequest(3, 6),
        v3.encode_request(OperationType.START_TLS, 6, startTLSRequest=pb.StartTLSRequest()),
    ),
}
READ, READ_3 = EntryReadRequest(2, 0, 7, 9), EntryReadRequest(3, 6, 7, 9)
BATCH = BatchReadRequest(2, 77, 7, 9, 10, 5000)
ADD, ADD_3 = AddRequest(2, 0, 7, 9, KEY, ENTRY, False), AddRequest(3, 6, 7, 9, KEY, ENTRY, False)
FORCE, LAC = ForceLedgerRequest(3, 6, 7), WriteLacRequest(3, 6, 7, 9, KEY, ENTRY)
FENCED = StatusCode.EFENCED

#: Name in the sample: the answer it is, and how we write it.
ANSWERS: dict[str, tuple[Any, bytes]] = {
    "v2.answer.add": (AddAnswer(0, 0, 7, 9), v2.encode_add_answers([ADD], 0)),
    "v2.answer.add.fenced": (AddAnswer(0, FENCED, 7, 9), v2.encode_add_answers([ADD], FENCED)),
    "v2.answer.read": (ReadAnswer(0, 0, 7, 9, ENTRY), v2.encode_read_answer(READ, 0, ENTRY)),
    "v2.answer.read.absent": (
        ReadAnswer(0, StatusCode.ENOENTRY, 7, 9, None),
        v2.encode_read_answer(READ, StatusCode.ENOENTRY),
    ),
    "v2.answer.batch": (
        BatchReadAnswer(77, 0, 7, 9, [ENTRY, NEXT_ENTRY]),
        v2.encode_batch_read_answer(BATCH, 0, [ENTRY, NEXT_ENTRY]),
    ),
    "v2.answer.batch.absent": (
        BatchReadAnswer(77, StatusCode.ENOLEDGER, 7, 9, []),
        v2.encode_batch_read_answer(BATCH, StatusCode.ENOLEDGER),
    ),
    "v3.answer.add.EOK": (AddAnswer(6, 0, 7, 9), v3.encode_add_answers([ADD_3], 0)),
    "v3.answer.add.EFENCED": (AddAnswer(6, FENCED, 7, 9), v3.encode_add_answers([ADD_3], FENCED)),
    "v3.answer.write_lac.EOK": (
        LedgerAnswer(OperationType.WRITE_LAC, 6, 0, 7),
        v3_answers.encode_write_lac_answer(LAC, 0),
    ),
    "v3.answer.write_lac.EFENCED": (
        LedgerAnswer(OperationType.WRITE_LAC, 6, FENCED, 7),
        v3_answers.encode_write_lac_answer(LAC, FENCED),
    ),
    "v3.answer.force.EOK": (
        LedgerAnswer(OperationType.FORCE_LEDGER, 6, 0, 7),
        v3_answers.encode_force_answer(FORCE, 0),
    ),
    "v3.answer.force.EFENCED": (
        LedgerAnswer(OperationType.FORCE_LEDGER, 6, FENCED, 7),
        v3_answers.encode_force_answer(FORCE, FENCED),
    ),
    "v3.answer.read": (ReadAnswer(6, 0, 7, 9, ENTRY, 8), v3.encode_read_answer(READ_3, 0, ENTRY, max_lac=8)),
    "v3.answer.read.bare": (ReadAnswer(6, 0, 7, 9, ENTRY), v3.encode_read_answer(READ_3, 0, ENTRY)),
    "v3.answer.read.poll": (
        ReadAnswer(6, 0, 7, 9, ENTRY, -1, 1234567890123),
        v3.encode_read_answer(
            READ_3._replace(entry_id=-1), 0, ENTRY, entry_id=9, max_lac=-1, lac_update_ms=1234567890123
        ),
    ),
    "v3.answer.read.absent": (
        ReadAnswer(6, StatusCode.ENOENTRY, 7, -1, None),
        v3.encode_read_answer(READ_3._replace(entry_id=-1), StatusCode.ENOENTRY),
    ),
    "v3.answer.read_lac": (
        ReadLacAnswer(6, 0, 7, ENTRY, ENTRY),
        v3_answers.encode_read_lac_answer(ReadLacRequest(3, 6, 7), 0, ENTRY, ENTRY),
    ),
    "v3.answer.list": (
        ListEntriesAnswer(6, 0, 7, ENTRY),
        v3_answers.encode_list_answer(ListEntriesRequest(3, 6, 7), 0, ENTRY),
    ),
    "v3.answer.info": (
        BookieInfoAnswer(6, 0, 1 << 40, 12345),
        v3_answers.encode_info_answer(BookieInfoRequest(3, 6, True, True), 0, total_bytes=1 << 40, free_bytes=12345),
    ),
    "v3.answer.auth": (
        AuthAnswer(6, 0, AUTH_DISABLED_PLUGIN, b""),
        v3_answers.encode_auth_answer(AuthRequest(3, 6, "", b""), 0, AUTH_DISABLED_PLUGIN, b""),
    ),
    "v3.answer.tls.refused": (
        BareAnswer(OperationType.START_TLS, 6, StatusCode.EBADREQ),
        v3_answers.encode_start_tls_answer(StartTlsRequest(3, 6), StatusCode.EBADREQ),
    ),
}
#: Requests that are answered at once: what the answer says.
REFUSALS = {
    "v3.range": BareAnswer(OperationType.RANGE_READ_ENTRY, 6, StatusCode.EBADREQ),
    "v3.read.version2": BareAnswer(OperationType.READ_ENTRY, 6, StatusCode.EBADVERSION),
}


def test_everything_that_was_recorded_is_compared():
    names = {*REQUESTS, *ANSWERS, *REFUSALS, "list.gaps", "list.none", "list.run"}
    assert names == set(SAMPLE["written"])


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_read_as_apache_meant_it_and_written_as_apache_writes_it(name):
    request, ours = REQUESTS[name]
    theirs = bytes.fromhex(SAMPLE["written"][name])
    decoder = RequestDecoder()
    assert decoder.feed(theirs) == [request]
    assert (decoder.error, decoder.version) == (None, request.version)
    assert ours == theirs


@pytest.mark.parametrize("name", ANSWERS)
def test_answer_is_read_as_apache_meant_it_and_written_as_apache_writes_it(name):
    answer, ours = ANSWERS[name]
    theirs = bytes.fromhex(SAMPLE["written"][name])
    decoder = AnswerDecoder(int(name[1]))
    assert decoder.feed(theirs) == [answer]
    assert decoder.error is None
    assert ours == theirs


@pytest.mark.parametrize("name", REFUSALS)
def test_what_no_bookie_does_is_refused(name):
    decoder = RequestDecoder()
    [refused] = decoder.feed(bytes.fromhex(SAMPLE["written"][name]))
    assert isinstance(refused, RefusedRequest)
    assert AnswerDecoder(3).feed(refused.answer) == [REFUSALS[name]]


@dataclass
class Reading:
    """What one frame was: the version, the request, or that the connection is closed."""

    version: int
    request: Any


def our_reading(stream: bytes) -> list[Reading | None]:
    """Each frame as we read it; None at the end: closed."""
    decoder = RequestDecoder()
    readings: list[Reading | None] = []
    position = 0
    while position < len(stream) and decoder.error is None:
        size = unpack_from(">i", stream, position)[0] if len(stream) - position >= 4 else 0
        end = position + 4 + max(size, 0)
        readings += [Reading(decoder.version, request) for request in decoder.feed(stream[position:end])]
        position = end
    return readings if decoder.error is None else [*readings, None]


def check_v2(fields: dict[str, str], request: Any) -> None:
    ledger_id, entry_id, version = (int(fields[name]) for name in ("ledgerId", "entryId", "protocolVersion"))
    if isinstance(request, AuthRequest):
        assert fields["opCode"] == "3"
        message = pb.AuthMessage.FromString(bytes.fromhex(fields["authMessage"]))
        assert (request.plugin, request.payload) == (v2.plugin_of(message), message.payload)
    elif isinstance(request, RefusedRequest):
        # What Apache's bookie looks at only later: the version, and ids that are none.
        [answer] = AnswerDecoder(2).feed(request.answer)
        assert isinstance(answer, AddAnswer | ReadAnswer | BatchReadAnswer)
        assert (answer.ledger_id, answer.entry_id) == (ledger_id, entry_id)
        if not 0 <= version <= 2:
            assert answer.status == StatusCode.EBADVERSION
        else:
            assert answer.status == StatusCode.EBADREQ
            is_short = fields["opCode"] == "1" and len(fields["data"]) < 48
            assert ledger_id < 0 or entry_id < (0 if fields["opCode"] == "1" else -1) or is_short
    else:
        flags = int(fields["flags"])
        assert (request.version, request.ledger_id, request.entry_id) == (version, ledger_id, entry_id)
        assert request.high_priority == bool(flags & 4)
        if isinstance(request, AddRequest):
            assert (request.entry.hex(), request.master_key.hex()) == (fields["data"], fields["masterKey"])
            assert request.recovery == bool(flags & 2)
        else:
            assert request.fence == bool(flags & 1)
            assert (request.master_key or b"").hex() == fields.get("masterKey", "")
        if isinstance(request, BatchReadRequest):
            limits = {"maxCount": request.entries_max, "maxSize": request.bytes_max, "requestId": request.txn_id}
            assert {name: int(fields[name]) for name in limits} == limits


def test_streams_are_the_same_now_as_when_they_were_recorded():
    assert [stream.hex() for stream in request_streams()] == [stream for stream, _ in SAMPLE["requests"]]
    assert len(request_frames()) < len(SAMPLE["requests"])


def test_what_a_bookie_receives_is_read_as_apache_reads_it():
    """Good, strange and mutated frames: the same version, the same fields, the connection closed for the same ones."""
    kinds = {"v2": 0, "v3": 0, "closed": 0}
    for stream, said in SAMPLE["requests"]:
        readings = our_reading(bytes.fromhex(stream))
        words = said.split()
        if None in readings:
            # We take nothing behind what breaks the connection; Apache's decoder goes on in the same read.
            assert words[-1] == "closed", stream
            words = [*words[: len(readings) - 1], "closed"]
        assert len(words) == len(readings), stream
        for word, reading in zip(words, readings, strict=True):
            kind, _, content = word.partition(":")
            kinds[kind] += 1
            if reading is None:
                assert kind == "closed", stream
            elif kind == "v3":
                assert reading.version == 3, stream
                # The generated class's form of it, which is decoded by another way if the stream had another form.
                again = v3.decode_request(bytes.fromhex(content), 0, len(content) // 2)
                assert again == reading.request, stream
            else:
                assert (kind, reading.version) == ("v2", 2), stream
                check_v2(dict(field.split("=") for field in content.split(",")), reading.request)
    assert min(kinds.values()) > 40, kinds


def test_lists_of_entries_are_read_from_apache_and_by_apache():
    gaps = [0, 3, 6, 9, *range(20, 23), *range(30, 33), *range(40, 43), 77]
    for name, ids in (("list.gaps", gaps), ("list.none", []), ("list.run", list(range(5, 105)))):
        runs = decode_availability(bytes.fromhex(SAMPLE["written"][name]))
        assert [entry_id for run in runs for entry_id in run] == ids
    assert encode_availability([range(5, 105)]).hex() == SAMPLE["written"]["list.run"]
    for runs, ours, (recorded, said) in zip(RUNS, lists(), SAMPLE["available"], strict=True):
        assert ours.hex() == recorded
        ids = [entry_id for run in runs for entry_id in run]
        assert said == f"{len(ids)} [{','.join(map(str, ids))}]"
