"""A batch that comes encoded travels as the same bytes as one that the producer encodes itself."""

from __future__ import annotations

import pytest

from geminga.client import CompressionType
from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.encoded_batch import EncodedBatch
from geminga.client.producer_rules.frame_maker import FrameMaker, TooBig
from geminga.client.producer_rules.message import EncodedMessage


def maker_of(compression: CompressionType = CompressionType.NONE) -> FrameMaker:
    maker = FrameMaker(7, compression=compression, is_chunking=False, chunk_bytes_max=0)
    maker.connected("name", 1000, b"\x01")
    return maker


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_encoded_batch_is_the_frame_of_its_messages(compression: CompressionType) -> None:
    messages = [
        EncodedMessage(b"one", partition_key="a2V5", is_key_base64=True, ordering_key=b"o", sequence_id=5),
        EncodedMessage(b"two", sequence_id=6),
    ]
    batch = Batch(0.0, is_custom=True)
    for message in messages:
        batch.add(message, None)
    encoded = EncodedBatch(batch.encode(5), 2, 5, partition_key="a2V5", is_key_base64=True, ordering_key=b"o")
    wanted = maker_of(compression).batch(batch, 0, 1234)
    made = maker_of(compression).encoded(encoded, None, 0.0, 1234)
    assert made.frame == wanted.frame
    assert (made.sequence_id, made.highest_sequence_id, made.messages) == (5, 6, 2)
    assert (wanted.sequence_id, wanted.highest_sequence_id, wanted.messages) == (5, 6, 2)


def test_encoded_batch_of_one_is_a_batch() -> None:
    encoded = EncodedBatch(b"\x00\x00\x00\x04\x18\x01\x40\x05x", 1, 5)
    made = maker_of().encoded(encoded, None, 0.0, 1234)
    assert (made.sequence_id, made.highest_sequence_id, made.messages) == (5, 5, 1)
    assert b"\x58\x01" in made.frame  # num_messages_in_batch = 1


def test_encoded_batch_larger_than_the_broker_takes_is_refused() -> None:
    with pytest.raises(TooBig):
        maker_of().encoded(EncodedBatch(bytes(2000), 1, 5), None, 0.0, 1234)
