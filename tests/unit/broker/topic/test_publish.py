"""A batch of SENDs is one value from the frames to the receipts, and says what it is made of."""

from __future__ import annotations

import pytest

from geminga.broker.topic.base import Topic
from geminga.broker.topic.log_publishing import LogPublishing
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.publish import PublishBatch, TurnAppend
from geminga.managed_ledger import AppendResult
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker, send_frame


class Recorder:
    """What a batch of ``count`` entries is told."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.answered_count = 0
        self.results: list[AppendResult] = []

    def appended(self, result: AppendResult) -> None:
        self.answered_count += result.count
        self.results.append(result)


@pytest.mark.uncompiled("recorders in the place of batches")
def test_parts_of_an_append_are_dealt_out_to_the_batches() -> None:
    recorders = [Recorder(2), Recorder(3), Recorder(1)]
    batches: list[PublishBatch] = recorders  # type: ignore[assignment]
    turn = TurnAppend(batches[0], [b"a", b"b"])
    turn.add(batches[1], [b"c", b"d", b"e"])
    turn.add(batches[2], [b"f"])
    assert turn.entries == [b"a", b"b", b"c", b"d", b"e", b"f"]
    turn.appended(AppendResult(1, 10, 0, 3, None))
    turn.appended(AppendResult(2, 0, 3, 3, None))
    told = [[(r.ledger_id, r.first_entry_id, r.count) for r in recorder.results] for recorder in recorders]
    assert told == [[(1, 10, 2)], [(1, 12, 1), (2, 0, 2)], [(2, 2, 1)]]


def test_markers_are_not_counted_as_chunks() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        topic: Topic = world.broker.topics[TOPIC]
        producer = topic.producers[next(iter(topic.producers))]
        client.send_bytes(send_frame(0, marker=True, metadata={"marker_type": 10}) + send_frame(1))
        for _ in range(2):
            await client.receipt()
        assert (producer.chunks_in, topic.publishing.has_chunks) == (0, False)
        chunk = {"uuid": "c", "num_chunks_from_msg": 2, "total_chunk_msg_size": 2, "chunk_id": 0}
        client.send_bytes(
            send_frame(2, marker=True, metadata={"marker_type": 10}) + send_frame(3, metadata=chunk, is_chunk=True)
        )
        for _ in range(2):
            await client.receipt()
        assert (producer.chunks_in, topic.publishing.has_chunks) == (1, True)

    run_with_broker(scenario)


@pytest.mark.uncompiled("another method of LogPublishing")
def test_consecutive_sends_of_a_producer_are_one_batch_with_all_that_is_known_of_them() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_id=1)
        await client.create_producer(producer_id=2)
        topic = world.broker.topics[TOPIC]
        assert isinstance(topic, PersistentTopic)
        seen: list[PublishBatch] = []

        class Watched(LogPublishing):
            __slots__ = ()

            def publish(self, batch: PublishBatch) -> None:
                seen.append(batch)
                super().publish(batch)

        topic.publishing.__class__ = Watched
        client.send_bytes(
            send_frame(0, b"a", 1)
            + send_frame(1, b"b", 1, highest_sequence_id=4, num_messages=4)
            + send_frame(0, b"c", 2)
            + send_frame(5, b"d", 1, marker=True)
        )
        for _ in range(4):
            await client.receipt()
        told = [(b.producer.producer_id, b.sequence_ids, b.messages, b.chunks, b.markers, b.count) for b in seen]
        assert told == [
            (1, [(0, 0), (1, 4)], 5, 0, 0, 2),
            (2, [(0, 0)], 1, 0, 0, 1),
            (1, [(5, 5)], 1, 0, 1, 1),
        ]
        assert all(batch.transaction is None and batch.is_answered for batch in seen)

    run_with_broker(scenario)


def test_a_part_of_a_batch_keeps_what_it_belongs_to() -> None:
    producer: object = object()
    batch = PublishBatch(producer, [b"a", b"b", b"c"], [(0, 0), (1, 3), (4, 4)], 5, transaction=(7, 8))  # type: ignore[arg-type]
    part = batch.cut(1, 3, 4)
    assert (part.producer, part.entries, part.sequence_ids) == (producer, [b"b", b"c"], [(1, 3), (4, 4)])
    assert (part.messages, part.count, part.transaction, part.is_answered) == (4, 2, (7, 8), False)
