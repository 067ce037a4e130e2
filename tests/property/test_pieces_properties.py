"""Long commands cut into pieces: together they say what the whole says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import ProtocolError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.pieces import Pieces, cut

IDS = st.lists(
    st.tuples(st.integers(0, (1 << 64) - 1), st.integers(0, 300), st.lists(st.integers(-5, 5), max_size=3)), max_size=30
)


def whole(command: bytes, piece_bytes: int) -> Pieces:
    return next(found for found in cut(command, 0x1A, piece_bytes) if found is not None)


@given(IDS, st.none() | st.integers(0, 1 << 40), st.integers(0, 60))
def test_pieces_together_are_the_command(ids, request_id, piece_bytes) -> None:
    ack = pb.CommandAck(consumer_id=3, ack_type=pb.CommandAck.Individual)
    for ledger_id, entry_id, words in ids:
        ack.message_id.add(ledgerId=ledger_id, entryId=entry_id).ack_set.extend(words)
    if request_id is not None:
        ack.request_id = request_id
    command = pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack).SerializeToString()
    pieces = whole(command, piece_bytes)
    head = pb.CommandAck.FromString(pieces.single)
    found = []
    for start, end in pieces.stretches:
        piece = pb.CommandAck.FromString(pieces.single + command[start:end])
        assert end - start <= piece_bytes or len(piece.message_id) == 1
        found += piece.message_id
    head.message_id.extend(found)
    assert head == ack


@given(st.binary(max_size=60), st.integers(0, 20))
def test_anything_else_is_a_protocol_error(data, piece_bytes) -> None:
    for command in (data, b"\x08\x0aR" + bytes((len(data),)) + data):
        try:
            pieces = whole(command, piece_bytes)
        except ProtocolError:
            continue
        assert sum(end - start for start, end in pieces.stretches) + len(pieces.single) <= len(command)
