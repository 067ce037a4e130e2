"""Entry filters while consumers come and go, give back and acknowledge, and filters fail: nothing accepted is lost,
nothing rejected is sent, the order per key holds, and in the end nothing is left."""

from __future__ import annotations

import pytest

from geminga.broker.filters.pool import FilterPool
from geminga.broker.filters.topic_filters import TopicFilters
from geminga.broker.subscription.acknowledgment import acknowledge
from geminga.entry_filters import ACCEPT, REJECT, RESCHEDULE
from support.worlds.filter_processes import SimulatedProcesses
from support.worlds.subscriptions import Sub, settle, with_topic

KEYS = "abc"
ROUNDS = 40


class Storm:
    """One run."""

    def __init__(self, topic, sub_type):
        self.topic = topic
        self.sub_type = sub_type
        self.rng = topic.services.runtime.rng
        self.processes = SimulatedProcesses({"f": self.judge})
        config = topic.services.config
        self.pool = FilterPool(config, self.processes, topic.services.runtime.clock.monotonic, topic)
        topic.filters = TopicFilters(("f",), self.pool)
        self.is_calm = False
        #: Text -> whether it is for consumers.
        self.wanted = {}
        #: By consumer: its connection, and how much of what it was sent was looked at.
        self.consumers = {}
        self.got = []
        self.names = 0
        self.by_key = {}

    def judge(self, entry):
        if not self.is_calm and self.rng.random() < 0.01:
            raise ValueError("no")
        if not self.is_calm and self.rng.random() < 0.1:
            return RESCHEDULE
        return ACCEPT if entry.properties["wanted"] == "yes" else REJECT

    def one_of(self, things):
        return things[self.rng.below(len(things))]

    async def publish(self):
        for _ in range(1 + self.rng.below(7)):
            is_wanted = self.rng.random() < 0.6
            key, text = self.one_of(KEYS), f"{len(self.wanted):04d}"
            properties = [{"key": "wanted", "value": "yes" if is_wanted else "no"}]
            self.wanted[text] = is_wanted
            await self.topic.publish(text, key=key, properties=properties)

    async def join(self):
        if len(self.consumers) < (1 if self.sub_type == Sub.Exclusive else 3):
            self.names += 1
            connection = self.topic.connect()
            consumer = await self.topic.join(
                connection, self.sub_type, consumer_id=self.names, name=f"c{self.names}", permits=1000
            )
            self.consumers[consumer] = [connection, 0]

    def leave(self):
        if self.consumers:
            consumer = self.one_of(list(self.consumers))
            self.take(consumer, is_acknowledging=self.rng.random() < 0.5)
            connection, _ = self.consumers.pop(consumer)
            connection.drop()

    def take(self, consumer, *, is_acknowledging):
        """Look at what came; acknowledge it, or part of it, or have it sent again."""
        found = self.consumers[consumer]
        connection, seen = found
        for message in connection.messages[seen:]:
            assert self.wanted[message.text], f"{message.text} was rejected"
            self.got.append(message)
            before = self.by_key.setdefault(message.metadata.partition_key, [])
            if message.text not in before:
                # Seen for the first time: on Shared in any order.
                assert self.sub_type == Sub.Shared or not before or before[-1] < message.text
                before.append(message.text)
        if is_acknowledging:
            ids = [(*message.position, None) for message in connection.messages[seen:]]
            if ids:
                acknowledge(self.subscription, consumer, ids, is_cumulative=False, done=None)
            found[1] = len(connection.messages)
        elif self.subscription.dispatch is not None and self.rng.random() < 0.5:
            found[1] = len(connection.messages)
            self.subscription.dispatch.redeliver(consumer, None, -1)

    @property
    def subscription(self):
        return self.topic.subscriptions["sub"]

    def check(self):
        dispatch = self.subscription.dispatch
        if dispatch is not None and self.sub_type in (Sub.Shared, Sub.Key_Shared):
            dispatch.core.check_invariants()

    def trouble(self):
        where = self.one_of([self.processes.stalled, self.processes.deadly])
        if "f" in where:
            where.discard("f")
        elif self.rng.random() < 0.3:
            where.add("f")

    async def run(self):
        await self.topic.create_subscription("sub")
        for _ in range(ROUNDS):
            step = self.rng.below(7)
            if step < 2:
                await self.publish()
            elif step == 2:
                await self.join()
            elif step == 3 and self.rng.random() < 0.5:
                self.leave()
            elif step == 4:
                self.trouble()
            else:
                for consumer in list(self.consumers):
                    self.take(consumer, is_acknowledging=self.rng.random() < 0.7)
            self.processes.delay_s = self.one_of([0, 0, 0.02, 0.3])
            await settle(self.one_of([0, 0.01, 0.5, 1.5, 5]))
            self.check()
        await self.calm_down()

    async def calm_down(self):
        self.is_calm = True
        self.processes.stalled.clear()
        self.processes.deadly.clear()
        await self.join()
        for _ in range(4):
            await settle(320)
            for consumer in list(self.consumers):
                self.take(consumer, is_acknowledging=True)
        await settle(5)
        got = {message.text for message in self.got}
        assert got == {text for text, is_wanted in self.wanted.items() if is_wanted}
        assert self.subscription.cursor.backlog_count == 0
        assert self.subscription.filter.error is None
        await self.pool.close()
        assert self.processes.running == []


@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared])
@pytest.mark.parametrize("seed", range(3))
def test_storm(sub_type, seed):
    with_topic(lambda topic: Storm(topic, sub_type).run(), seed=seed)


@pytest.mark.long
@pytest.mark.parametrize("sub_type", [Sub.Exclusive, Sub.Failover, Sub.Shared, Sub.Key_Shared])
@pytest.mark.parametrize("seed", range(3, 100))
def test_longer_storm(sub_type, seed):
    with_topic(lambda topic: Storm(topic, sub_type).run(), seed=seed)
