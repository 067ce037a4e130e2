"""The load generator counts what it says it counts, and the floor stays a floor."""

from __future__ import annotations

import socket

import pytest
from bench.frames import Frames, ack_frame, connect_frame, send_frame, varint, write_frames
from bench.load import LoadError, Publisher
from tools.standalone_process import ROOT

from geminga.wire._generated import pulsar_api_pb2 as pb


def receipt(sequence_id: int, entry_id: int = 5) -> bytes:
    """SEND_RECEIPT of producer 0."""
    command = pb.BaseCommand(type=pb.BaseCommand.SEND_RECEIPT)
    command.send_receipt.producer_id = 0
    command.send_receipt.sequence_id = sequence_id
    command.send_receipt.message_id.ledgerId = 300
    command.send_receipt.message_id.entryId = entry_id
    data = command.SerializeToString()
    return (len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data


@pytest.fixture
def pair(tmp_path):
    """A publisher of 300 messages, and the broker's end of its connection."""
    write_frames(tmp_path / "frames", 300, 10)
    mine, theirs = socket.socketpair()
    publisher = Publisher.__new__(Publisher)
    publisher.socket, publisher.frames = mine, Frames(tmp_path / "frames")
    publisher.sequences = [varint(i) + b"\x1a" for i in range(301)]
    publisher.received = publisher.released = publisher.sent_bytes = 0
    publisher.tail = b""
    mine.setblocking(False)
    yield publisher, theirs
    mine.close()
    theirs.close()


def test_receipts_in_order_are_counted_however_they_are_cut(pair) -> None:
    publisher, theirs = pair
    data = b"".join(receipt(i, entry_id=i * 1000) for i in range(300))
    total = 0
    for start in range(0, len(data), 7):
        theirs.sendall(data[start : start + 7])
        total += publisher.receive()
    assert total == publisher.received == 300
    assert publisher.tail == b""


@pytest.mark.parametrize("sequence_id", [1, 128, 299])
def test_receipt_of_another_sequence_id_fails(pair, sequence_id: int) -> None:
    publisher, theirs = pair
    theirs.sendall(receipt(sequence_id))
    with pytest.raises(LoadError, match="expected the receipt of 0"):
        publisher.receive()


def test_same_receipt_twice_fails(pair) -> None:
    publisher, theirs = pair
    theirs.sendall(receipt(0) + receipt(0))
    with pytest.raises(LoadError):
        publisher.receive()


def test_error_frame_fails(pair) -> None:
    publisher, theirs = pair
    command = pb.BaseCommand(type=pb.BaseCommand.SEND_ERROR)
    command.send_error.producer_id = command.send_error.sequence_id = 0
    command.send_error.error = pb.PersistenceError
    command.send_error.message = "disk full"
    data = command.SerializeToString()
    theirs.sendall((len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data)
    with pytest.raises(LoadError, match="disk full"):
        publisher.receive()


def test_closed_connection_fails(pair) -> None:
    publisher, theirs = pair
    theirs.close()
    with pytest.raises(LoadError, match="closed"):
        publisher.receive()


def test_released_sends_go_out_as_encoded(pair) -> None:
    publisher, theirs = pair
    assert publisher.release(2)
    expected = send_frame(0, b"") and bytes(publisher.frames.data[: publisher.frames.ends[2]])
    assert theirs.recv(65536) == expected


def test_encoded_frames_are_what_the_classes_decode() -> None:
    data = connect_frame()
    assert pb.BaseCommand.FromString(data[8:]).connect.protocol_version == 20
    ids = [
        pb.MessageIdData(ledgerId=1, entryId=2).SerializeToString(),
        pb.MessageIdData(ledgerId=300, entryId=70_000).SerializeToString(),
    ]
    ack = pb.BaseCommand.FromString(ack_frame(ids, is_cumulative=False)[8:]).ack
    assert [(i.ledgerId, i.entryId) for i in ack.message_id] == [(1, 2), (300, 70_000)]
    assert ack.ack_type == pb.CommandAck.Individual
    assert (
        pb.BaseCommand.FromString(ack_frame(ids[:1], is_cumulative=True)[8:]).ack.ack_type == pb.CommandAck.Cumulative
    )


def test_floor_stays_a_floor() -> None:
    assert len((ROOT / "bench" / "floor.py").read_text(encoding="utf-8").splitlines()) <= 150
