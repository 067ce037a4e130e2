"""Backoff, routing, batching by key, memory limit, frames and chunks: the producer's pure parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.frame_maker import FrameMaker, TooBig
from geminga.client.producer_rules.key_batcher import KeyBatcher
from geminga.client.producer_rules.memory_limit import MemoryLimit
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.router import RoundRobin, partition_of_key
from geminga.client.producer_rules.send_queue import PendingSend, ReceiptMismatch, SendQueue
from geminga.client.rules.backoff import Backoff
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch
from geminga.wire.pulsar.compression import LZ4, decompress
from geminga.wire.pulsar.frame import FrameDecoder
from geminga.wire.pulsar.metadata import split_entry

Sent = tuple[pb.CommandSend, pb.MessageMetadata, bytes]


def frames(maker: FrameMaker, frame: bytes) -> Sent:
    """What a broker reads from one frame."""
    ((command, entry),) = FrameDecoder(5 << 20).feed(frame)
    metadata, offset = split_entry(entry)
    assert metadata is not None
    return pb.BaseCommand.FromString(command).send, metadata, entry[offset:]


def new_maker(**options) -> FrameMaker:
    settings = {"compression": 0, "is_chunking": False, "chunk_bytes_max": 0, **options}
    maker = FrameMaker(7, **settings)
    maker.connected("me", 1000, b"")
    return maker


def test_backoff_doubles_to_its_maximum_and_starts_small_again() -> None:
    backoff = Backoff(100, 1000)
    assert [backoff.next_ms(0, 0.0) for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
    backoff.reset()
    assert backoff.next_ms(0, 0.0) == 100


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 12))
def test_backoff_takes_off_at_most_a_tenth(random: float, steps: int) -> None:
    backoff, plain = Backoff(100, 60_000), Backoff(100, 60_000)
    for _ in range(steps):
        backoff.next_ms(0, random)
        plain.next_ms(0, 0.0)
    full = plain.next_ms(0, 0.0)
    assert max(100, 0.9 * full) <= backoff.next_ms(0, random) <= full


def test_backoff_makes_one_attempt_at_its_mandatory_stop() -> None:
    backoff = Backoff(100, 60_000, mandatory_stop_ms=1900)
    now, delays = 0.0, []
    for _ in range(6):
        delays.append(backoff.next_ms(now, 0.0))
        now += delays[-1]
    assert delays == [100, 200, 400, 800, 400, 3200]


def test_key_goes_to_the_partition_that_java_picks() -> None:
    # String.hashCode of "hello" is 99162322; murmur3 of it (seed 0) is 613153351.
    assert partition_of_key("hello", 1000, murmur3=False) == 322
    assert partition_of_key("hello", 1000, murmur3=True) == 351
    # Negative in Java: the sign bit is cleared, not the sign changed.
    assert partition_of_key("polygenelubricants", 1 << 31, murmur3=False) == 0


def test_round_robin_visits_all_partitions_also_when_they_grow() -> None:
    robin = RoundRobin(2)
    assert [robin.advance(3) for _ in range(4)] == [2, 0, 1, 2]
    assert [robin.advance(4) for _ in range(3)] == [3, 0, 1]


def test_memory_limit_lets_one_pass_and_wakes_when_there_is_room() -> None:
    memory, woken = MemoryLimit(100), []
    memory.reserve(99)
    assert not memory.is_full
    memory.reserve(500)
    assert memory.is_full
    memory.on_room(lambda: woken.append(1))
    memory.release(499)
    assert woken == []
    memory.release(1)
    assert woken == [1]
    memory.release(99)
    assert (memory.used_bytes, woken) == (0, [1])
    assert not MemoryLimit(0).is_full


def test_key_batcher_has_a_batch_per_key_in_order_of_their_first_messages() -> None:
    keyed = KeyBatcher()
    for index, key in enumerate(["b", "a", "b", None, "a"]):
        keyed.add(EncodedMessage(b"%d" % index, partition_key=key), None, float(index))
    assert (keyed.messages, keyed.size_bytes, keyed.opened_s) == (5, 5, 0.0)
    assert keyed.fits(EncodedMessage(b"x"), 6)
    assert not keyed.fits(EncodedMessage(b"xx"), 6)
    assert not keyed.fits(EncodedMessage(b"", sequence_id=4), 6)
    assert [batch.payloads for batch in keyed.take()] == [[b"0", b"2"], [b"1", b"4"], [b"3"]]
    assert (keyed.messages, keyed.size_bytes, keyed.take()) == (0, 0, [])


def test_ordering_key_goes_before_partition_key() -> None:
    assert EncodedMessage(b"", partition_key="p").key == b"p"
    assert EncodedMessage(b"", partition_key="p", ordering_key=b"o").key == b"o"
    assert EncodedMessage(b"").key is None
    assert not EncodedMessage(b"", deliver_at_ms=1).is_batchable


def test_batch_of_one_travels_as_a_single_message() -> None:
    maker, batch = new_maker(), Batch(1.0)
    batch.add(EncodedMessage(b"alone", properties={"a": "b"}), None)
    pending = maker.batch(batch, 9, 1234)
    send, metadata, payload = frames(maker, pending.frame)
    assert (send.producer_id, send.sequence_id, send.num_messages, payload) == (7, 9, 1, b"alone")
    assert (metadata.producer_name, metadata.publish_time, metadata.sequence_id) == ("me", 1234, 9)
    assert not metadata.HasField("num_messages_in_batch")
    assert metadata.properties[0].key == "a"


def test_batch_says_its_first_and_last_sequence_id_and_the_first_key() -> None:
    maker, batch = new_maker(compression=LZ4), Batch(1.0)
    for index in range(3):
        batch.add(EncodedMessage(b"same" * 10, partition_key=f"k{index}"), None)
    send, metadata, payload = frames(maker, maker.batch(batch, 100, 1).frame)
    assert (send.sequence_id, send.highest_sequence_id, send.num_messages) == (100, 102, 3)
    assert (metadata.sequence_id, metadata.highest_sequence_id, metadata.num_messages_in_batch) == (100, 102, 3)
    assert metadata.partition_key == "k0"
    messages = decode_batch(decompress(LZ4, payload, metadata.uncompressed_size), 3)
    assert [(m.partition_key, m.sequence_id) for m, _ in messages] == [("k0", 100), ("k1", 101), ("k2", 102)]


def test_batch_with_own_sequence_ids_keeps_them() -> None:
    maker, batch = new_maker(), Batch(1.0, is_custom=True)
    for sequence_id in (5, 9, 20):
        batch.add(EncodedMessage(b"x", sequence_id=sequence_id), None)
    assert not batch.fits(EncodedMessage(b"x"), 100)
    pending = maker.batch(batch, 1000, 1)
    assert (pending.sequence_id, pending.highest_sequence_id) == (5, 20)
    _, _, payload = frames(maker, pending.frame)
    assert [m.sequence_id for m, _ in decode_batch(payload, 3)] == [5, 9, 20]


@given(st.integers(1, 3000), st.integers(60, 400))
def test_chunks_join_to_the_payload(size: int, limit: int) -> None:
    maker = new_maker(is_chunking=True, chunk_bytes_max=limit)
    content = bytes(index % 251 for index in range(size))
    sent = [frames(maker, p.frame) for p in maker.message(EncodedMessage(content), 3, None, 0.0, 1)]
    assert b"".join(payload for _, _, payload in sent) == content
    assert all(len(p) + m.ByteSize() <= limit or len(sent) == 1 for _, m, p in sent)
    if len(sent) > 1:
        assert [m.chunk_id for _, m, _ in sent] == list(range(len(sent)))
        assert {(m.uuid, m.num_chunks_from_msg, m.total_chunk_msg_size) for _, m, _ in sent} == {
            ("me-3", len(sent), size)
        }
        assert all(send.is_chunk for send, _, _ in sent)


@pytest.mark.parametrize("is_connected", [True, False])
def test_what_is_left_of_a_message_in_parts_is_taken_out_together(is_connected: bool) -> None:
    maker, queue = new_maker(is_chunking=True, chunk_bytes_max=200), SendQueue()
    for sequence_id in (3, 4):
        for one in maker.message(EncodedMessage(bytes(500)), sequence_id, None, 0.0, 1):
            queue.add(one)
    count = len(queue) // 2
    assert queue.take_rest() == []
    while queue.next_to_write() is not None:
        pass
    queue.receipt(3)
    if not is_connected:
        queue.connection_lost()
    assert [one.chunk_index for one in queue.take_rest()] == list(range(1, count))
    queue.check_invariants()
    oldest = queue.oldest
    assert oldest is not None
    assert (oldest.sequence_id, oldest.chunk_index, len(queue), queue.messages) == (4, 0, count, 1)
    assert queue.take_rest() == []


def test_message_that_the_broker_would_refuse_is_too_big() -> None:
    maker = new_maker()
    maker.message(EncodedMessage(bytes(1000)), 0, None, 0.0, 1)
    with pytest.raises(TooBig):
        maker.message(EncodedMessage(bytes(1001)), 0, None, 0.0, 1)
    with pytest.raises(TooBig):
        maker.message(EncodedMessage(b"", properties={"a": "x" * 20_000}), 0, None, 0.0, 1)
    batch = Batch(0.0)
    for _ in range(3):
        batch.add(EncodedMessage(bytes(500)), None)
    with pytest.raises(TooBig):
        maker.batch(batch, 0, 1)
    assert [maker.batch(single, 0, 1).messages for single in batch.singles()] == [1, 1, 1]


@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 50)), st.sampled_from([b"", b"version8"]), st.binary())
def test_plain_message_has_the_metadata_that_the_generated_class_writes(sequence_id, time_ms, version, payload) -> None:
    maker = new_maker()
    maker.connected("somebody", 1000, version)
    (pending,) = maker.message(EncodedMessage(payload), sequence_id, None, 0.0, time_ms)
    send, metadata, sent = frames(maker, pending.frame)
    expected = pb.MessageMetadata(producer_name="somebody", sequence_id=sequence_id, publish_time=time_ms)
    if version:
        expected.schema_version = version
    assert metadata == expected
    assert metadata.SerializeToString() in pending.frame
    assert (send.sequence_id, sent) == (sequence_id, payload)


def test_a_receipt_behind_the_next_one_says_that_one_was_missed() -> None:
    queue = SendQueue()
    for sequence_id in range(3):
        queue.add(PendingSend(b"frame", sequence_id, sequence_id, 1, 5, 0.0, None))
        queue.next_to_write()
    assert queue.receipt(0) is not None
    with pytest.raises(ReceiptMismatch, match="sequence id 2, while 1 is the next of 2"):
        queue.receipt(2)
    assert queue.receipt(0) is None
    assert queue.receipt(1) is not None
