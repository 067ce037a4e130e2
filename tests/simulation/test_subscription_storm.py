"""Consumers come, go and crash while messages flow (F6.16): nothing lost, order per key, nothing stuck.

Each consumer handles its messages one at a time, in the order they came, taking a random time, sometimes giving one
back, sometimes acknowledging only after it lost its connection. Then the storm ends and everything must get through.
However often an entry was sent, and to whom: the counts that went along are 0, 1, 2, ...
"""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from geminga.broker.handlers import subscription as handlers
from geminga.managed_ledger.rules import cursor_format
from geminga.managed_ledger.rules.cursor import CursorState
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.weekly_sample import sampled
from support.worlds.subscriptions import RecordingConnection, Sub, settle, with_topic

KEYS = 12


class Worker:
    """A client with one consumer: handles what it was sent, in order."""

    def __init__(self, storm: Storm, number: int):
        self.storm = storm
        self.number = number
        self.connection: RecordingConnection = storm.topic.connect()
        self.handled = 0

    @property
    def is_idle(self) -> bool:
        return self.handled == len(self.connection.messages)

    def handle_next(self, rng) -> None:
        if self.is_idle or self.connection.is_closed:
            return
        message = self.connection.messages[self.handled]
        self.handled += 1
        ids = [message.id]
        if rng.random() < self.storm.nack_share:
            request = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids)
            handlers.handle_redeliver(self.connection, pb.BaseCommand(redeliverUnacknowledgedMessages=request))
        else:
            self.storm.completed(message)
            ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids)
            raw = pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack).SerializeToString()
            handlers.handle_ack_bytes(self.connection, raw)
        handlers.handle_flow(self.connection, 1, 1)


#: Consumers often wait for others.
FEW_AT_ONCE: Final = {
    "key_shared_look_ahead_per_consumer": 10,
    "dispatcher_max_read_batch_size": 7,
    "max_unacked_messages_per_consumer": 15,
}


class Storm:
    """What was published and what was completed, per key."""

    def __init__(self, topic, *, sub_type: int, nack_share: float):
        self.topic = topic
        self.sub_type = sub_type
        self.nack_share = nack_share
        self.published: dict[str, list[str]] = {f"k{i}": [] for i in range(KEYS)}
        self.done: dict[str, list[str]] = {key: [] for key in self.published}
        self.workers: list[Worker] = []
        #: Of all workers that ever were.
        self.connections: list[RecordingConnection] = []
        self.joined = 0

    def completed(self, message) -> None:
        self.done[message.metadata.partition_key].append(message.text)

    async def publish(self, rng) -> None:
        key = f"k{rng.below(KEYS)}"
        text = f"{key}-{len(self.published[key])}"
        self.published[key].append(text)
        await self.topic.publish(text, key=key)

    async def join(self, permits: int) -> None:
        worker = Worker(self, self.joined)
        self.joined += 1
        self.connections.append(worker.connection)
        await self.topic.join(worker.connection, self.sub_type, name=f"w{worker.number}", permits=permits)
        self.workers.append(worker)

    def check_counts(self) -> None:
        """Each delivery said how often its entry was sent before."""
        counts: dict[str, list[int]] = {}
        for connection in self.connections:
            for message in connection.messages:
                counts.setdefault(message.text, []).append(message.redelivery_count)
        assert {text: sorted(found) for text, found in counts.items()} == {
            text: list(range(len(found))) for text, found in counts.items()
        }

    def check(self) -> None:
        dispatch = self.topic.subscriptions["sub"].dispatch
        if dispatch is not None:
            dispatch.core.check_invariants()


async def run_storm(storm: Storm, steps: int) -> None:
    rng = storm.topic.services.runtime.rng
    await storm.join(10)
    for _ in range(steps):
        chance = rng.random()
        if chance < 0.35:
            await storm.publish(rng)
        elif chance < 0.42 and len(storm.workers) < 5:
            await storm.join(1 + rng.below(12))
        elif chance < 0.48 and storm.workers:
            storm.workers.pop(rng.below(len(storm.workers))).connection.drop()
        elif chance < 0.52 and storm.workers:
            connection = storm.workers[rng.below(len(storm.workers))].connection
            connection.is_writable = not connection.is_writable
            if connection.is_writable:
                connection.set_writable()
        elif storm.workers:
            for _ in range(3):
                storm.workers[rng.below(len(storm.workers))].handle_next(rng)
        if rng.below(3) == 0:
            await settle(0.001 * rng.below(5))
        storm.check()
    storm.nack_share = 0.0
    for worker in storm.workers:
        worker.connection.set_writable()
    await storm.join(1000)
    for _ in range(50 + 3 * sum(map(len, storm.published.values()))):
        for worker in storm.workers:
            worker.handle_next(rng)
        await settle()
        if (
            all(worker.is_idle for worker in storm.workers)
            and not storm.topic.subscriptions["sub"].cursor.backlog_count
        ):
            break
    else:
        raise AssertionError("the storm did not get through")
    storm.check_counts()


@pytest.mark.parametrize("seed", sampled("storm", range(12), 5))
@pytest.mark.parametrize("uses_ring", [False, True])
def test_key_shared_storm_completes_each_key_in_order(seed, uses_ring):
    async def scenario(topic):
        storm = Storm(topic, sub_type=Sub.Key_Shared, nack_share=0.0)
        await run_storm(storm, 250)
        # Without negative acknowledgments, every key is completed exactly in its order. A consumer that completed
        # a message and lost its connection before the acknowledgment would repeat it; these workers never do.
        assert storm.done == storm.published

    with_topic(
        scenario,
        seed=seed,
        entries_per_ledger=40,
        subscription_key_shared_use_consistent_hashing=uses_ring,
        **FEW_AT_ONCE,
    )


async def all_is_done(topic, sub_type):
    """Though a fifth comes back."""
    storm = Storm(topic, sub_type=sub_type, nack_share=0.2)
    await run_storm(storm, 250)
    assert {k: sorted(v) for k, v in storm.done.items()} == {k: sorted(v) for k, v in storm.published.items()}


@pytest.mark.parametrize("seed", sampled("storm", range(12), 5))
@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_storm_with_negative_acknowledgments_loses_nothing(seed, sub_type):
    with_topic(
        partial(all_is_done, sub_type=sub_type),
        seed=seed,
        entries_per_ledger=40,
        **FEW_AT_ONCE,
        max_unacked_messages_per_subscription=40,
    )


@pytest.mark.uncompiled("another method of CursorState")
@pytest.mark.parametrize("seed", sampled("storm", range(12), 5))
@pytest.mark.parametrize("sub_type", [Sub.Shared, Sub.Key_Shared])
def test_storm_with_acknowledgments_on_disk_only_loses_nothing(seed, sub_type, monkeypatch):
    """Without any memory for it the state of every ledger is put away as soon as it was written."""
    monkeypatch.setattr(cursor_format, "INLINE_RANGES_MAX", 1)
    brought_back = []
    bring_back = CursorState.bring_back

    def counted(state, ledger_id, parts):
        brought_back.append(ledger_id)
        bring_back(state, ledger_id, parts)

    monkeypatch.setattr(CursorState, "bring_back", counted)

    with_topic(
        partial(all_is_done, sub_type=sub_type),
        seed=seed,
        entries_per_ledger=4,
        mark_delete_rate=1000,
        cursor_memory_bytes=0,
        **FEW_AT_ONCE,
        max_unacked_messages_per_subscription=40,
    )
    assert brought_back
