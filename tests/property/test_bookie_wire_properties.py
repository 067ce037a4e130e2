"""The bookie protocol: what is written is read, however the bytes come; versions are told apart; no bytes raise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from struct import pack

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from geminga.model.bookie_port import ID_MAX
from geminga.model.errors import ProtocolError
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper import v2, v3, v3_answers
from geminga.wire.bookkeeper.add_stream import encode_run_answers
from geminga.wire.bookkeeper.answers import AddAnswer, BatchReadAnswer, ReadAnswer
from geminga.wire.bookkeeper.availability import decode_availability, encode_availability
from geminga.wire.bookkeeper.codes import OperationType, StatusCode, v2_code
from geminga.wire.bookkeeper.requests import AddRequest, AddRunRequest, BatchReadRequest, EntryReadRequest, Request
from geminga.wire.bookkeeper.stream import AnswerDecoder, RequestDecoder
from support.processes.bookie_wire import request_frames

IDS = st.one_of(st.integers(0, 300), st.integers(0, ID_MAX))
READ_IDS = st.one_of(st.just(-1), IDS)
TXN_IDS = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
KEYS = st.binary(min_size=20, max_size=20)
PAYLOADS = st.binary(max_size=300)
STATUSES = st.sampled_from([int(status) for status in StatusCode])
#: What version 2 has a number of its own for.
STATUSES_2 = st.sampled_from([int(status) for status in StatusCode if status != StatusCode.EUNKNOWNLEDGERSTATE])
FRAMES = st.sampled_from(request_frames())


@st.composite
def adds(draw: st.DrawFn, version: int) -> AddRequest:
    ledger_id, entry_id = draw(IDS), draw(IDS)
    entry = pack(">qqq", ledger_id, entry_id, draw(READ_IDS)) + draw(PAYLOADS)
    txn_id, is_deferred = (draw(TXN_IDS), draw(st.booleans())) if version == 3 else (0, False)
    key = draw(KEYS if version == 2 else st.binary(max_size=200))
    flags = (draw(st.booleans()), is_deferred, draw(st.booleans()))
    return AddRequest(version, txn_id, ledger_id, entry_id, key, entry, *flags)


def add_frame(add: AddRequest) -> bytes:
    if add.version == 2:
        return v2.encode_add(add.master_key, add.entry, recovery=add.recovery, high_priority=add.high_priority)
    return v3.encode_add(
        add.txn_id,
        add.ledger_id,
        add.entry_id,
        add.master_key,
        add.entry,
        recovery=add.recovery,
        deferred_sync=add.deferred_sync,
        high_priority=add.high_priority,
    )


@given(st.lists(adds(2), min_size=1, max_size=5), IDS, READ_IDS, KEYS, st.integers(-(1 << 31), (1 << 31) - 1))
def test_requests_of_version_2_come_back(sent, ledger_id, entry_id, key, count) -> None:
    read = EntryReadRequest(2, 0, ledger_id, entry_id, True, key)
    batch = BatchReadRequest(2, -count, ledger_id, entry_id, count, count << 20, False, None, True)
    stream = b"".join(map(add_frame, sent))
    stream += v2.encode_read(ledger_id, entry_id, fence_key=key)
    stream += v2.encode_batch_read(
        -count, ledger_id, entry_id, entries_max=count, bytes_max=count << 20, high_priority=True
    )
    decoder = RequestDecoder()
    assert decoder.feed(stream) == [*sent, read, batch]
    assert (decoder.error, decoder.version) == (None, 2)


@given(st.lists(adds(3), min_size=1, max_size=5), TXN_IDS, IDS, READ_IDS, st.booleans())
def test_requests_of_version_3_come_back_and_are_the_bytes_of_the_generated_classes(
    sent, txn_id, ledger_id, entry_id, is_high
) -> None:
    frames = [add_frame(add) for add in sent]
    read = v3.encode_read(txn_id, ledger_id, entry_id, high_priority=is_high)
    decoder = RequestDecoder()
    expected = EntryReadRequest(3, txn_id, ledger_id, entry_id, high_priority=is_high)
    assert decoder.feed(b"".join(frames) + read) == [*sent, expected]
    assert (decoder.error, decoder.version) == (None, 3)
    for add, frame in zip(sent, frames, strict=True):
        message = pb.AddRequest(ledgerId=add.ledger_id, entryId=add.entry_id, masterKey=add.master_key, body=add.entry)
        if add.deferred_sync:
            message.writeFlags = 1
        if add.recovery:
            message.flag = pb.AddRequest.RECOVERY_ADD
        assert frame == v3.encode_request(
            OperationType.ADD_ENTRY, add.txn_id, high_priority=add.high_priority, addRequest=message
        )
    message = pb.ReadRequest(ledgerId=ledger_id, entryId=entry_id)
    assert read == v3.encode_request(OperationType.READ_ENTRY, txn_id, high_priority=is_high, readRequest=message)


@given(st.lists(adds(3), min_size=1, max_size=4), STATUSES)
def test_answers_of_adds_come_back_in_both_versions(requests, status) -> None:
    group = v3.encode_add_answers(requests, status)
    expected = [AddAnswer(add.txn_id, status, add.ledger_id, add.entry_id) for add in requests]
    assert AnswerDecoder(3).feed(group) == expected
    alone = b""
    for add in requests:
        inner = pb.AddResponse(status=status, ledgerId=add.ledger_id, entryId=add.entry_id)  # type: ignore[arg-type]
        header = pb.BKPacketHeader(version=3, operation=2, txnId=add.txn_id)  # type: ignore[arg-type]
        alone += v3.framed(pb.Response(header=header, status=status, addResponse=inner))  # type: ignore[arg-type]
    assert group == alone
    told = StatusCode.EIO if status == StatusCode.EUNKNOWNLEDGERSTATE else status
    old = v2.encode_add_answers([add._replace(version=2) for add in requests], status)
    assert AnswerDecoder(2).feed(old) == [AddAnswer(0, told, add.ledger_id, add.entry_id) for add in requests]


@given(TXN_IDS, IDS, READ_IDS, st.none() | PAYLOADS, st.none() | READ_IDS, STATUSES, st.none() | IDS)
def test_answers_of_reads_come_back_in_both_versions(txn_id, ledger_id, entry_id, entry, lac, status, time_ms) -> None:
    request = EntryReadRequest(3, txn_id, ledger_id, entry_id)
    frame = v3.encode_read_answer(request, status, entry, max_lac=lac, lac_update_ms=time_ms)
    assert AnswerDecoder(3).feed(frame) == [ReadAnswer(txn_id, status, ledger_id, entry_id, entry, lac, time_ms)]
    header = pb.BKPacketHeader(version=3, operation=1, txnId=txn_id)  # type: ignore[arg-type]
    inner = pb.ReadResponse(
        status=status,  # type: ignore[arg-type]
        ledgerId=ledger_id,
        entryId=entry_id,
        body=entry,
        maxLAC=lac,
        lacUpdateTimestamp=time_ms,
    )
    assert frame == v3.framed(pb.Response(header=header, status=status, readResponse=inner))  # type: ignore[arg-type]
    if status == StatusCode.EOK and entry is not None:
        old = v2.encode_read_answer(request._replace(version=2), 0, entry)
        assert AnswerDecoder(2).feed(old) == [ReadAnswer(0, 0, ledger_id, entry_id, entry)]


@given(st.integers(-(1 << 63), ID_MAX), IDS, READ_IDS, st.lists(PAYLOADS, max_size=5), STATUSES_2)
def test_answers_of_batch_reads_come_back(request_id, ledger_id, entry_id, entries, status) -> None:
    request = BatchReadRequest(2, request_id, ledger_id, entry_id, 0, 0)
    frame = v2.encode_batch_read_answer(request, status, entries)
    assert AnswerDecoder(2).feed(frame) == [BatchReadAnswer(request_id, status, ledger_id, entry_id, entries)]


@given(st.lists(FRAMES, min_size=1, max_size=6))
def test_cut_at_every_byte_the_requests_are_the_same(frames) -> None:
    stream = b"".join(frames)
    whole = RequestDecoder()
    expected = whole.feed(stream)
    each = RequestDecoder()
    assert [request for byte in stream for request in each.feed(bytes((byte,)))] == expected
    assert str(each.error) == str(whole.error)
    assert each.version == whole.version
    for place in range(len(stream)):
        halves = RequestDecoder()
        assert halves.feed(stream[:place]) + halves.feed(stream[place:]) == expected
        assert str(halves.error) == str(whole.error)


@given(st.lists(adds(3), min_size=1, max_size=3), st.integers(1, 40))
def test_cut_in_pieces_the_answers_are_the_same(requests, size) -> None:
    stream = v3.encode_add_answers(requests, 0)
    stream += v3.encode_read_answer(EntryReadRequest(3, 5, 7, 9), 0, requests[0].entry, max_lac=3)
    expected = AnswerDecoder(3).feed(stream)
    assert len(expected) == len(requests) + 1
    pieces = AnswerDecoder(3)
    found = [answer for place in range(0, len(stream), size) for answer in pieces.feed(stream[place : place + size])]
    assert found == expected


def in_order(requests: Sequence[Request]) -> list[Request]:
    """Runs as the adds that they are; plain adds of version 2 that nothing stands between in the order of ledgers."""
    found: list[Request] = []
    plain: list[AddRequest] = []
    for request in requests:
        if isinstance(request, AddRunRequest):
            assert request.size_bytes == sum(map(len, request.entries))
            assert request.stop - request.first == len(request.entries)
            plain += [
                AddRequest(2, 0, request.ledger_id, entry_id, request.master_key, entry, False)
                for entry_id, entry in enumerate(request.entries, request.first)
            ]
        elif (
            isinstance(request, AddRequest)
            and request == request._replace(version=2, recovery=False)
            and (not request.high_priority and not request.txn_id and not request.deferred_sync)
        ):
            plain.append(request)
        else:
            found += [*sorted(plain, key=lambda add: add.ledger_id), request]
            plain = []
    return [*found, *sorted(plain, key=lambda add: add.ledger_id)]


@st.composite
def plain_adds(draw: st.DrawFn) -> bytes:
    """Frames as a broker sends them: mostly plain adds of a few ledgers that go on, and what may come between."""
    next_ids = {ledger_id: draw(st.integers(0, 3)) for ledger_id in range(3)}
    stream = b""
    for _ in range(draw(st.integers(1, 12))):
        ledger_id = draw(st.integers(0, 2))
        entry_id = next_ids[ledger_id] + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
        next_ids[ledger_id] = entry_id + 1
        entry = pack(">qqq", ledger_id, entry_id, -1) + draw(st.binary(max_size=9))
        key = draw(st.sampled_from([b"k" * 20, b"k" * 20, b"x" * 20]))
        is_recovery = draw(st.integers(0, 9)) == 0
        stream += v2.encode_add(key, entry, recovery=is_recovery, high_priority=draw(st.integers(0, 9)) == 0)
        if draw(st.integers(0, 5)) == 0:
            stream += draw(st.sampled_from([v2.encode_read(ledger_id, -1), b"\x00\x00\x00\x04\x02\x01\x00\x00"]))
    return stream


@given(plain_adds(), st.lists(st.integers(1, 200), max_size=6))
def test_gathered_adds_are_those_that_came(stream, sizes) -> None:
    plain, gathered = RequestDecoder(), RequestDecoder(gathers_adds=True)
    expected = plain.feed(stream)
    found: list[Request] = []
    place = 0
    for size in [*sizes, len(stream)]:
        found += gathered.feed(stream[place : place + size])
        place += size
    assert in_order(found) == in_order(expected)
    assert (str(gathered.error), gathered.version) == (str(plain.error), plain.version)
    runs = [request for request in found if isinstance(request, AddRunRequest)]
    for run in runs:
        answers = encode_run_answers(run.ledger_id, range(run.first, run.stop), 0)
        adds = [
            AddRequest(2, 0, run.ledger_id, each, run.master_key, b"", False) for each in range(run.first, run.stop)
        ]
        assert answers == v2.encode_add_answers(adds, 0)


def is_version_3(body: bytes) -> bool:
    """By the generated class alone."""
    try:
        return pb.Request.FromString(body).IsInitialized()
    except DecodeError:
        return False


@given(st.integers(0, 7), st.integers(0, 255), st.integers(0, 0xFFFF), st.binary(max_size=120))
def test_no_request_of_the_versions_before_is_one_of_version_3(version, operation, flags, body) -> None:
    frame = pack(">I", v2.packet_header(version, operation, flags)) + body
    assert not is_version_3(frame)
    decoder = RequestDecoder()
    decoder.feed(pack(">I", len(frame)) + frame)
    assert decoder.version == 2


@given(st.binary(max_size=60) | FRAMES.map(lambda frame: frame[4:]), st.data())
@example(b"", None)
def test_bytes_are_of_version_3_if_the_generated_class_says_so(body, data) -> None:
    if data is not None and body:
        place = data.draw(st.integers(0, len(body) - 1))
        body = body[:place] + data.draw(st.binary(max_size=3)) + body[place + data.draw(st.integers(0, 2)) :]
    decoder = RequestDecoder()
    decoder.feed(pack(">I", len(body)) + body)
    assert (decoder.version == 3) == is_version_3(body)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A few frames, some bytes of which were changed, taken out or put in, sizes too."""
    stream = bytearray(b"".join(draw(st.lists(FRAMES, min_size=1, max_size=3))))
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(0, len(stream) - 1))
        stream[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
        stream += b"\x00"
    return bytes(stream)


@given(mutated() | st.binary(max_size=200))
def test_no_bytes_raise_and_what_is_given_out_has_good_ids(stream) -> None:
    decoder = RequestDecoder()
    for request in decoder.feed(stream):
        assert getattr(request, "ledger_id", 0) >= 0
        if isinstance(request, AddRequest):
            assert pack(">qq", request.ledger_id, request.entry_id) == request.entry[:16]
            assert len(request.entry) >= 24
    assert decoder.error is None or type(decoder.error) is ProtocolError
    if decoder.error is not None:
        assert decoder.feed(v2.encode_read(1, 2)) == []
    for version in (2, 3):
        answers = AnswerDecoder(version)
        answers.feed(stream)
        assert answers.error is None or type(answers.error) is ProtocolError


@given(adds(3))
def test_other_order_of_fields_is_read_the_same(add) -> None:
    frame = add_frame(add)
    message = pb.Request.FromString(frame[4:])
    header, inner = message.header.SerializeToString(), message.addRequest.SerializeToString()
    swapped = b"\xaa\x06" + v3.encode_varint(len(inner)) + inner + b"\x0a" + v3.encode_varint(len(header)) + header
    assert v3.decode_request(swapped, 0, len(swapped)) == add


def changed_in_one_byte(frame: bytes) -> list[bytes]:
    """What is in the frame, and that with each byte as each other byte."""
    body = frame[4:]
    return [body] + [
        body[:place] + bytes((value,)) + body[place + 1 :] for place in range(len(body)) for value in range(256)
    ]


@pytest.mark.parametrize("frame", request_frames()[7:], ids=range(5))
def test_what_is_read_by_hand_the_generated_class_reads_the_same(frame) -> None:
    by_hand_count = 0
    for body in changed_in_one_byte(frame):
        by_hand = v3._fast_request(body, 0, len(body))
        if by_hand is not None:
            by_hand_count += 1
            assert is_version_3(body)
            assert by_hand == v3._slow_request(pb.Request.FromString(body)), body.hex()
    # A fence never goes by hand.
    assert (by_hand_count > 0) == (v3._fast_request(frame, 4, len(frame)) is not None)


@pytest.mark.parametrize(
    "frame",
    [
        v3.encode_add_answers([AddRequest(3, 300, 7, 1 << 20, b"", b"", False)], 0),
        v3.encode_read_answer(EntryReadRequest(3, 5, 7, 9), 0, b"entry" * 5, max_lac=300),
        v3.encode_read_answer(EntryReadRequest(3, 5, 7, -1), 0, b"entry"),
    ],
    ids=["add", "read", "last"],
)
def test_answers_that_are_read_by_hand_the_generated_class_reads_the_same(frame) -> None:
    for body in changed_in_one_byte(frame):
        by_hand = v3_answers._fast_answer(body, 0, len(body))
        if by_hand is not None:
            message = pb.Response.FromString(body)
            assert message.IsInitialized()
            assert by_hand == v3_answers._slow_answer(message), body.hex()


@st.composite
def runs(draw: st.DrawFn) -> list[range]:
    """Ascending runs with gaps between, often striped."""
    found: list[range] = []
    start = draw(IDS.map(lambda entry_id: min(entry_id, ID_MAX - (1 << 40))))
    for _ in range(draw(st.integers(0, 6))):
        size = draw(st.integers(1, 5))
        gap = draw(st.integers(1, 4))
        for _ in range(draw(st.integers(1, 5))):
            found.append(range(start, start + size))
            start += size + gap
        start += draw(st.sampled_from([0, 3, 1 << 31, 1 << 33]))
    return found


@given(runs())
def test_lists_of_entries_come_back(sent) -> None:
    assert decode_availability(encode_availability(sent)) == sent


@given(st.integers(0, 1 << 30), st.integers(1, 1 << 33))
def test_run_longer_than_an_int_comes_back(start, size) -> None:
    sent = [range(start, start + size)]
    assert decode_availability(encode_availability(sent)) == sent


@given(runs(), st.data())
def test_damaged_lists_of_entries_raise_one_error_or_are_sorted(sent, data) -> None:
    stream = bytearray(encode_availability(sent))
    place = data.draw(st.integers(0, len(stream)))
    stream[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    try:
        found = decode_availability(bytes(stream))
    except ProtocolError:
        return
    for before, after in pairwise(found):
        assert before.stop < after.start
    assert all(0 <= run.start < run.stop <= ID_MAX + 1 for run in found)


@given(STATUSES)
def test_every_status_has_a_code_before_version_3(status) -> None:
    assert 0 <= v2_code(status) <= 106
