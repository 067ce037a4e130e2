"""Frames that are written by hand are read as what was sent, and are the bytes that the generated classes write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.frame_maker import FrameMaker
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.rules.transaction import TransactionCore
from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.frame import FrameDecoder
from geminga.wire.pulsar.metadata import split_entry

UINT64 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))
INT63 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 62) - 1))
TXNS = st.one_of(st.none(), st.builds(TxnId, UINT64, UINT64))
PAYLOADS = st.lists(st.binary(max_size=50), min_size=1, max_size=20)


def core_of(txn_id: TxnId | None) -> TransactionCore | None:
    return None if txn_id is None else TransactionCore(txn_id, 0.0, lambda _: None)


@given(
    st.lists(st.tuples(TXNS, PAYLOADS), min_size=1, max_size=4),
    INT63,
    INT63,
    st.text(max_size=20),
    st.sampled_from([b"", b"\0\0\0\0\0\0\0\1"]),
)
def test_plain_frames_are_those_of_the_generated_classes(sends, next_id, time_ms, name, schema_version) -> None:
    maker = FrameMaker(7, compression=0, is_chunking=False, chunk_bytes_max=0)
    maker.connected(name, 5 << 20, schema_version)
    for txn_id, payloads in sends:
        core = core_of(txn_id)
        batch = Batch(0.0, txn=core)
        for payload in payloads:
            batch.add(EncodedMessage(payload, txn=core), None)
        sent = maker.batch(batch, next_id, time_ms)
        ((command, entry),) = FrameDecoder(5 << 20).feed(sent.frame)
        ids = {} if txn_id is None else {"txnid_most_bits": txn_id.coordinator, "txnid_least_bits": txn_id.number}
        count = len(payloads)
        last = next_id + count - 1
        of_batch = {} if count == 1 else {"highest_sequence_id": last}
        send = pb.CommandSend(producer_id=7, sequence_id=next_id, **ids, **of_batch)
        metadata = pb.MessageMetadata(producer_name=name, sequence_id=next_id, publish_time=time_ms, **ids, **of_batch)
        if count > 1:
            send.num_messages = metadata.num_messages_in_batch = count
        if schema_version:
            metadata.schema_version = schema_version
        assert command == pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
        found, offset = split_entry(entry)
        assert found == metadata
        assert entry[:offset].endswith(metadata.SerializeToString())
        if count == 1:
            assert entry[offset:] == payloads[0]
        next_id = last + 1
